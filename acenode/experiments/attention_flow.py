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
