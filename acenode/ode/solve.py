"""One `solve` for every ODE of the project.

    native steps   every explicit Runge–Kutta method, gradient "backprop" or "checkpointed"
    per sample     the adaptive ones with steps of each sample's own, for evaluation
    torchdiffeq    its multistep and SciPy methods, gradient "adjoint", and all of it with engine "reference"

Both take the same steps under the same error norm, the larger of the blocks' root mean squares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from acenode.errors import UserError
from acenode.ode.native import VectorField, solve_native
from acenode.ode.options import Solver
from acenode.ode.per_sample import solve_per_sample
from acenode.ode.reference import solve_reference
from acenode.ode.runge_kutta import Evaluations, State

__all__ = ["Solution", "Solver", "solve"]


@dataclass(frozen=True)
class Solution:
    """The state's blocks at the requested times, each (T, *block), and what they cost."""

    states: State
    evaluations: Evaluations


def solve(field: VectorField, state: Sequence[Tensor], t: Tensor | Sequence[float],
          solver: Solver | None = None, *, per_sample: bool = False) -> Solution:
    """Integrate d(state)/dt = field(t, state) from t[0] and return the state at every t.

    With `per_sample` the blocks' first axis is the batch, and with an adaptive method each sample has steps of its own.

    `field(t, state)` takes a scalar tensor and the tuple of blocks and returns the tuple of their rates. With gradient
    "adjoint" or "checkpointed" its parameters are found through it, so it must be an nn.Module to have any.
    """
    solver = solver or Solver()
    if isinstance(t, Tensor) and t.requires_grad:
        raise UserError("solve does not differentiate by its times: detach t")
    if not (t.dim() == 1 if isinstance(t, Tensor) else isinstance(t, Sequence)):
        raise UserError("the times of a solve are a list or a one-dimensional tensor, from t_0 to t_1")
    if isinstance(state, Tensor) or not all(isinstance(b, Tensor) and b.is_floating_point() for b in state):
        raise UserError("the state of a solve is a tuple of floating-point tensors")
    times = [float(x) for x in (t.tolist() if isinstance(t, Tensor) else t)]
    steps = [b - a for a, b in pairwise(times)]
    if len(times) < 2 or not all(math.isfinite(x) for x in times):
        raise UserError("solve needs at least two finite times")
    if not (all(s > 0 for s in steps) or all(s < 0 for s in steps)):
        raise UserError("the times of a solve must be strictly increasing or strictly decreasing")
    y, cost = tuple(state), Evaluations()
    if per_sample and solver.own_steps and len({b.shape[0] if b.dim() else None for b in y}) == 1 and y[0].dim() > 1:
        return Solution(solve_per_sample(field, y, times, solver, cost), cost)
    engine = solve_native if solver.native else solve_reference
    return Solution(engine(field, y, times, solver, cost), cost)
