"""Pairwise attention on a state, carried to the variables that are said from it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def beyond_even(a: Tensor, E: Tensor) -> np.ndarray:
    """How much more of variable j than an even share flows into variable i: |E| σ(a) |E|ᵀ, rows as shares less 1/D.

    a (…, d, d) is averaged over all but its matrices; E (D, d) is from the state to the variables.
    """
    flow = E.abs() @ torch.softmax(a, -1).flatten(0, -3).mean(0) @ E.abs().T
    return (flow / flow.sum(1, keepdim=True) - 1 / len(flow)).cpu().numpy()
