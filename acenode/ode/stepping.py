"""Accepted Runge–Kutta steps from one time to another: adaptive or on a fixed grid, shared by the whole batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from acenode.errors import RAISE_LIMIT, SMALLER_STEPS, SolveError
from acenode.ode.diagnosis import share_of_tolerance, step_failure
from acenode.ode.options import Solver
from acenode.ode.replay import FieldMemory
from acenode.ode.runge_kutta import (
    Evaluations,
    Slope,
    State,
    Step,
    VectorField,
    combine,
    slopes_of,
    take_step,
    with_end_slope,
)
from acenode.ode.step_size import first_step_size, next_step_size, trial_step_size
from acenode.ode.tableaus import Tableau


class CountedField:
    """A vector field that takes t as a Python number and counts its evaluations.

    Set `in_backward` while steps are taken again in the backward pass: they are counted apart, and with a `memory`
    they start from the random numbers and buffers of the forward pass.
    """

    memory: FieldMemory | None = None

    def __init__(self, field: VectorField, like: State, cost: Evaluations) -> None:
        self.field, self.cost, self.in_backward = field, cost, False
        self.dtype, self.device = like[0].dtype, like[0].device

    def __call__(self, t: float, y: State) -> State:
        if self.in_backward:
            self.cost.backward += 1
        else:
            self.cost.forward += 1

        def evaluate() -> State:
            return slopes_of(self.field, torch.full((), t, dtype=self.dtype, device=self.device), y)

        if self.memory is None:
            return evaluate()
        return self.memory.replay(evaluate) if self.in_backward else self.memory.record(evaluate)


Attempt = Callable[[CountedField, float, float, State, State], tuple[Step, float]]  # (F, t, dt, y, k1)


def steps_of(F: CountedField, tableau: Tableau, y: State, times: list[float], solver: Solver,
             attempt: Attempt | None = None) -> Iterator[Step]:
    """Yield the accepted steps from the first of the times to the last.

    An `attempt` computes the adaptive steps instead of `take_step`: it returns a step, and its error in units of the
    tolerance.
    """
    if not tableau.adaptive:
        return fixed_steps(F, tableau, y, fixed_grid(times, solver.step_size, solver.max_steps), F.cost)
    return adaptive_steps(F, tableau, y, times[0], times[-1], rtol=solver.rtol, atol=solver.atol,
                          max_steps=solver.max_steps, attempt=attempt)


def rms(x: Tensor) -> Tensor:
    """Return the root mean square of all elements."""
    return torch.linalg.vector_norm(x) / math.sqrt(max(x.numel(), 1))


@torch.no_grad()
def scaled_norm(error: State, y0: State, y1: State, rtol: float, atol: float) -> float:
    """Return the error in units of the tolerance: the largest of the blocks' root mean squares."""
    ratios = [rms(e / torch.maximum(u.abs(), v.abs()).mul_(rtol).add_(atol))
              for e, u, v in zip(error, y0, y1, strict=True)]
    return float(torch.stack(ratios).max())  # the only wait for the device in a step


@torch.no_grad()
def choose_first_step(F: Slope, t: float, y: State, k1: State, order: int, rtol: float, atol: float,
                      sign: float) -> float:
    """Return the size of the first step from (t, y), where the slope is k1; NaN if that slope is not finite."""
    slope_norm = scaled_norm(k1, y, y, rtol, atol)
    h0 = trial_step_size(scaled_norm(y, y, y, rtol, atol), slope_norm)
    if not 0 < h0 < math.inf:  # 0 where the slope is infinite
        return math.nan
    k2 = F(t + sign * h0, combine(y, [sign * h0], [k1]))
    change_norm = scaled_norm(tuple(b - a for a, b in zip(k1, k2, strict=True)), y, y, rtol, atol)
    return first_step_size(h0, slope_norm, change_norm, order)


def error_of(step: Step, tableau: Tableau) -> State:
    """Return the embedded estimate of a step's error."""
    assert tableau.error is not None
    return combine(tuple(torch.zeros_like(b) for b in step.y0), [step.dt * w for w in tableau.error],
                   [tuple(b.detach() for b in k) for k in step.ks])


def adaptive_steps(F: CountedField, tableau: Tableau, y: State, t0: float, t1: float, *, rtol: float, atol: float,
                   max_steps: int, attempt: Attempt | None = None) -> Iterator[Step]:
    """Yield accepted steps from t0 to exactly t1; the embedded error estimate controls their size.

    Raises:
        SolveError: the state or its slope is not finite, the step size underflows, or `max_steps` are not enough.
    """
    def attempt_step(F: CountedField, t: float, dt: float, y: State, k1: State) -> tuple[Step, float]:
        step = take_step(F, tableau, t, dt, y, k1)
        return step, scaled_norm(error_of(step, tableau), y, step.y1, rtol, atol)

    sign, t, attempt = math.copysign(1.0, t1 - t0), t0, attempt or attempt_step
    if not all(bool(torch.isfinite(b).all()) for b in y):
        raise SolveError("the initial state is NaN or infinite", t, 0.0, "check what the ODE is started from")
    k1 = F(t, y)
    size = choose_first_step(F, t, y, k1, tableau.order, rtol, atol, sign)
    ratio, blamed = 0.0, (k1, y)  # the slope, or the error of a rejected step, and the state there
    for _ in range(max_steps):
        rest = abs(t1 - t)
        last = not size < rest
        dt = sign * (rest if last else size)
        if not math.isfinite(size) or t + dt == t:
            broken = not math.isfinite(size) or not math.isfinite(ratio)
            raise step_failure(broken, t, dt, share_of_tolerance(*blamed, rtol, atol), F.cost)
        step, ratio = attempt(F, t, dt, y, k1)
        accepted = ratio <= 1  # False for NaN
        if accepted:
            F.cost.step_sizes.append(dt)
            step = with_end_slope(F, tableau, step)
            yield step
            if last:
                return
            t, y, k1 = t + dt, step.y1, step.ks[-1]
        else:
            F.cost.rejected += 1
            blamed = error_of(step, tableau), y
        size = next_step_size(dt, ratio, accepted, tableau.order)
    raise SolveError(f"the step limit of {max_steps} was reached", t, sign * size, RAISE_LIMIT)


def fixed_grid(times: list[float], step_size: float | None, max_steps: int) -> list[float]:
    """Return the grid of a fixed-step method: the times themselves, or equal steps with a shorter last one."""
    if step_size is None:
        return times
    start, end = times[0], times[-1]
    if abs(end - start) / step_size > max_steps + 1e-9:
        raise SolveError(f"more than the step limit of {max_steps} steps would be needed", start, step_size,
                         "use a larger step_size, or raise max_steps")
    count = max(1, math.ceil(abs(end - start) / step_size - 1e-9))
    return [start + math.copysign(i * step_size, end - start) for i in range(count)] + [end]


def _finite(state: State) -> bool:
    """Return whether all numbers are finite; under vmap, which cannot tell, assume that they are."""
    try:
        return all(bool(torch.isfinite(b).all()) for b in state)
    except RuntimeError as error:
        if not str(error).startswith("vmap:"):
            raise
        return True


def fixed_steps(F: Slope, tableau: Tableau, y: State, grid: Sequence[float], cost: Evaluations) -> Iterator[Step]:
    """Yield one step between each two neighbouring times of the grid.

    Raises:
        SolveError: the state is no longer finite.
    """
    for t, end in pairwise(grid):
        step = take_step(F, tableau, t, end - t, y)
        if not _finite(step.y1):
            raise SolveError("the state became NaN or infinite", t, step.dt, SMALLER_STEPS)
        cost.step_sizes.append(step.dt)
        yield step
        y = step.y1
