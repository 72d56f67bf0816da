"""Pairwise attention between the coordinates of a state, expressed between the variables predicted from it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def excess_flow(a: Tensor, E: Tensor) -> np.ndarray:
    """Return how much more of variable j flows into variable i than with uniform attention, (D, D).

    That is |E| softmax(a) |E|ᵀ with rows normalised to 1, minus 1/D.

    Args:
        a: attention (…, d, d), averaged over the leading dimensions.
        E: weights from the state to the variables, (D, d).
    """
    flow = E.abs() @ torch.softmax(a, -1).flatten(0, -3).mean(0) @ E.abs().T
    return (flow / flow.sum(1, keepdim=True) - 1 / len(flow)).cpu().numpy()


def row_distance(a: Tensor) -> float:
    """Return the mean total-variation distance between two different rows of softmax(a), over the leading dimensions.

    It is 0 if all rows are equal and 1 if no two rows attend to a common coordinate.

    Args:
        a: attention, (…, d, d) with d > 1.
    """
    S = torch.softmax(a, -1)
    d = S.shape[-1]
    distance = 0.5 * (S.unsqueeze(-2) - S.unsqueeze(-3)).abs().sum(-1)  # (…, d, d); zero on the diagonal
    return float(distance.sum((-1, -2)).mean() / (d * (d - 1)))
