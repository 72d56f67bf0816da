"""Say where a solve failed: at which time, for which sample and variable, and after how many evaluations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from acenode.errors import LOOSEN, SolveError
from acenode.ode.runge_kutta import Evaluations, State

NAMES = "ha"  # of the blocks of an ODE layer


@torch.no_grad()
def step_failure(broken: bool, t: float, dt: float, share: State, cost: Evaluations,
                 sample: int | None = None) -> SolveError:
    """Return the error of a solve whose step size became too small.

    Args:
        broken: whether the field gave NaN or infinity, rather than a finite slope that changes too fast.
        t: the time that was reached.
        dt: the step size.
        share: what made the step too long, entry by entry: the error of the last step, or the slope at its start.
        cost: what the solve has cost so far.
        sample: its index in the batch, if `share` has one sample only.
    """
    reason = "the field gave NaN or infinity" if broken else "underflow in dt"
    block, index = worst_entry(share)
    if share[block].dim() > 1:
        own, *index = index
        sample = own if sample is None else sample
    name = NAMES[block] if block < len(NAMES) else f"block {block}"
    return SolveError(reason, t, dt, LOOSEN, sample=sample, variable=f"{name}{index}" if index else name,
                      evaluations=cost.forward)


def worst_entry(share: Sequence[Tensor]) -> tuple[int, list[int]]:
    """Return the block and the index of the entry of largest size; NaN counts as the largest."""
    largest = [torch.where(x.isfinite(), x.abs().double(), torch.inf).flatten() for x in share]
    block = int(torch.stack([x.max() for x in largest]).argmax())
    position = torch.unravel_index(largest[block].argmax(), share[block].shape)
    return block, [int(i) for i in position]


def share_of_tolerance(error: State, y: State, rtol: float, atol: float) -> State:
    """Return every entry of an error, or of a slope, in units of its tolerance at y."""
    return tuple(e.detach() / (atol + rtol * b.detach().abs()) for e, b in zip(error, y, strict=True))
