"""`solve`: the one entry to all solvers.

    runge_kutta_solve   our own explicit Runge–Kutta steps, gradient "backprop" or "checkpointed", or for evaluation
                        adaptive steps of every sample's own
    torchdiffeq_solve   its multistep and SciPy methods, gradient "adjoint", and everything with engine "reference"

Our own steps and torchdiffeq's are the same: the error norm is the largest of the blocks' root mean squares in both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor

from acenode.errors import UserError
from acenode.ode.event import Event, solve_until
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import Evaluations, Solution, State, VectorField
from acenode.ode.runge_kutta_solve import solve_per_sample, solve_runge_kutta
from acenode.ode.torchdiffeq_solve import solve_torchdiffeq

__all__ = ["Solution", "Solver", "solve"]


def checked_state(state: Sequence[Tensor]) -> State:
    """Return the blocks as a tuple; raise a UserError unless they are floating-point tensors with elements."""
    if isinstance(state, Tensor) or not all(isinstance(b, Tensor) and b.is_floating_point() for b in state):
        raise UserError("the state of a solve is a tuple of floating-point tensors")
    if not state or not all(b.numel() for b in state):
        raise UserError("the state of a solve is empty: give it at least one block, each with at least one sample")
    return tuple(state)


@contextmanager
def transforms_explained(solver: Solver, event: bool = False) -> Iterator[None]:
    """Raise a UserError where torch.func or forward-mode differentiation cannot pass through a solve."""
    try:
        yield
    except RuntimeError as error:  # NotImplementedError too
        if str(error).startswith("vmap:") and event:
            raise UserError("vmap cannot pass through a solve with an event, whose time it would have to read: call "
                            "solve for each sample") from None
        if str(error).startswith("vmap:"):
            raise UserError(f"vmap cannot pass through {solver.method}, which reads values to choose its steps: use a "
                            "fixed-step method such as rk4, or solve for the whole batch at once") from None
        if any(phrase in str(error) for phrase in ("setup_context", "forward mode AD", "forward AD")):
            raise UserError("torch.func and forward-mode differentiation need our own Runge–Kutta steps with gradient "
                            f'"backprop", not {solver.method} with gradient "{solver.gradient}"') from None
        raise


def has_batch(state: State) -> bool:
    """Return whether all blocks have the same first axis, the batch, and the first block has further axes."""
    return len({b.shape[0] if b.dim() else None for b in state}) == 1 and state[0].dim() > 1


def checked_times(t: Tensor | Sequence[float]) -> list[float]:
    """Return the times of a solve as numbers; raise a UserError unless they are at least two and monotone."""
    if isinstance(t, Tensor) and t.requires_grad:
        raise UserError("solve does not differentiate with respect to its times: detach t")
    if not (t.dim() == 1 if isinstance(t, Tensor) else isinstance(t, Sequence)):
        raise UserError("the times of a solve are a list or a one-dimensional tensor, from t_0 to t_1")
    times = [float(x) for x in (t.tolist() if isinstance(t, Tensor) else t)]
    steps = [b - a for a, b in pairwise(times)]
    if len(times) < 2 or not all(math.isfinite(x) for x in times):
        raise UserError("solve needs at least two finite times")
    if not (all(s > 0 for s in steps) or all(s < 0 for s in steps)):
        raise UserError("the times of a solve must be strictly increasing or strictly decreasing")
    return times


def solve(field: VectorField, state: Sequence[Tensor], t: Tensor | Sequence[float],
          solver: Solver | None = None, *, per_sample: bool = False, event: Event | None = None) -> Solution:
    """Integrate d(state)/dt = field(t, state) from t[0] and return the state at every t.

    Args:
        field: takes t, a scalar tensor, and the tuple of blocks, and returns the tuple of their derivatives, each of
            its block's shape. With gradient "adjoint" or "checkpointed" only the parameters of an `nn.Module` get
            gradients.
        state: the blocks at t[0], floating-point tensors of any shapes, such as (h, a).
        t: (T,) at least two times, strictly increasing or strictly decreasing.
        solver: how to integrate; `Solver()` if None.
        per_sample: choose adaptive steps for every sample on its own; the first axis of every block is then the batch,
            and field gets t as (B, 1, ...).
        event: called as event(t, state), returns a tensor with one number; the solve ends where it crosses zero. Needs
            a Runge–Kutta method and gradient "backprop"; the batch then shares its steps.

    Returns:
        A `Solution`: every block at every time, (T, *block), and the cost.

    Raises:
        UserError: the times or the state are not of the form above.
        SolveError: the solve failed, such as by an underflow of the step size.

    Examples:
        dy/dt = -y has the solution y(t) = exp(-t) y(0).

        >>> import torch
        >>> from acenode import Solver, solve
        >>> y0 = torch.tensor([1.0, 2.0], dtype=torch.float64)
        >>> solution = solve(lambda t, state: (-state[0],), (y0,), [0.0, 1.0], Solver("dopri5", rtol=1e-9, atol=1e-9))
        >>> torch.allclose(solution.states[0][-1], y0 * torch.exp(torch.tensor(-1.0)), atol=1e-7)
        True

        A ball that falls from a height of 2 reaches the ground at t = √(4 / 9.81).

        >>> fall = lambda t, state: (state[1], torch.full_like(state[1], -9.81))
        >>> start = torch.tensor([2.0], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        >>> landing = solve(fall, start, [0.0, 5.0], event=lambda t, state: state[0].min())
        >>> round(float(landing.event_t), 4)
        0.6386
    """
    return integrate(field, checked_state(state), checked_times(t), solver or Solver(), per_sample, event)


def integrate(field: VectorField, y: State, times: list[float], solver: Solver, per_sample: bool = False,
              event: Event | None = None) -> Solution:
    """Do the same for a state and times that have been checked."""
    cost = Evaluations()
    with transforms_explained(solver, event is not None):
        if event is not None:
            return solve_until(field, y, times, event, solver, cost)
        if per_sample and solver.steps_per_sample and has_batch(y):
            states = solve_per_sample(field, y, times, solver, cost)
        else:
            states = (solve_runge_kutta if solver.native else solve_torchdiffeq)(field, y, times, solver, cost)
        return Solution(states, cost, torch.tensor(times, dtype=torch.float64, device=y[0].device))
