"""Accepted Runge–Kutta steps from one time to another: adaptive or on a fixed grid.

The batch shares adaptive steps, or every sample has its own; it is stepped at once in either case. In one loop,
times, step sizes and error ratios are Python numbers in the first case, and tensors (B,) in the second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor

from acenode.errors import LOOSEN, RAISE_LIMIT, SMALLER_STEPS, SolveError
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import (
    Evaluations,
    State,
    Step,
    VectorField,
    move,
    rows,
    slopes_of,
    take_step,
    with_end_slope,
)
from acenode.ode.tableaus import TABLEAUS, Tableau

NAMES = "ha"  # of the blocks of an ODE layer


class CountedField:
    """A vector field that takes t as a Python number, or as (B,), and counts its evaluations.

    Set `in_backward` while steps are taken again in the backward pass, whose evaluations are counted apart.
    """

    def __init__(self, field: VectorField, like: State, cost: Evaluations) -> None:
        self.field, self.cost, self.in_backward, self.like = field, cost, False, like[0]
        self.dtype, self.device = like[0].dtype, like[0].device

    def __call__(self, t: Any, y: State) -> State:
        if self.in_backward:
            self.cost.backward += 1
        else:
            self.cost.forward += 1
        if isinstance(t, Tensor):
            return slopes_of(self.field, rows(t, self.like), y)
        return slopes_of(self.field, torch.full((), t, dtype=self.dtype, device=self.device), y)


Attempt = Callable[[CountedField, float, float, State, State], tuple[Step, float]]  # (F, t, dt, y, k1)


def steps_of(F: CountedField, y: State, times: list[float], solver: Solver,
             attempt: Attempt | None = None) -> Iterator[Step]:
    """Yield the accepted steps, which the batch shares, from the first of the times to the last.

    An `attempt` computes the adaptive steps instead of `take_step`: it returns a step, and its error in units of the
    tolerance.
    """
    tableau = TABLEAUS[solver.method]
    if not tableau.adaptive:
        return fixed_steps(F, tableau, y, fixed_grid(times, solver.step_size, solver.max_steps))
    return adaptive_steps(F, y, times, solver, SharedSteps(), attempt)


# Adaptive steps ---------------------------------------------------------------------------------------------------


def rms(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x) / math.sqrt(max(x.numel(), 1))


@torch.no_grad()
def in_tolerances(error: State, y0: State, y1: State, solver: Solver) -> State:
    """Return the blocks of an error, or of a slope, in units of the tolerance."""
    return tuple(e / torch.maximum(u.abs(), v.abs()).mul_(solver.rtol).add_(solver.atol)
                 for e, u, v in zip(error, y0, y1, strict=True))


def error_of(step: Step, tableau: Tableau) -> State:
    assert tableau.error is not None
    return move(tuple(torch.zeros_like(b) for b in step.y0), step.dt, tableau.error,
                [tuple(b.detach() for b in k) for k in step.ks])


class SharedSteps:
    """One step size for the whole batch: the case in which all samples agree.

    `read` sets what the host knows of an attempted step: `finished`, the mean `size` of the step over the samples that
    took it, 0 if none did, and whether the next step is `stuck`, too small to change t.
    """

    stuck: bool
    finished: bool
    size: float

    def time(self, t: float) -> Any:
        return t

    @torch.no_grad()
    def norm(self, error: State, y0: State, y1: State, solver: Solver) -> Any:
        """Return an error in units of the tolerance: the largest of the blocks' root mean squares."""
        return float(torch.stack([rms(x) for x in in_tolerances(error, y0, y1, solver)]).max())  # waits for the device

    def choose(self, accepted: Any, new: State, old: State) -> State:
        return new if accepted else old

    def read(self, stuck: Any, step: Step | None = None, accepted: Any = False, left: Any = False) -> None:
        """Read a step, after which the samples in `left` have not reached the end."""
        self.stuck, self.finished = stuck, accepted and not left
        self.size = step.dt if step is not None and accepted else 0.0

    def place(self, samples: Any, t: Any, size: Any) -> tuple[float, float, int | None]:
        return t, size, None


class OwnSteps(SharedSteps):
    """A step size for every sample, whose result then does not depend on the rest of the batch.

    A sample whose step is rejected, or that has reached the end, keeps its state. Each step waits for the device once,
    to read also which of the `times` (T, 1), where states are wanted, it covers.
    """

    any_covered: list[float]  # one for each of the times

    def __init__(self, like: Tensor, times: Tensor, sign: float) -> None:
        self.like, self.times, self.sign = like, times, sign

    def time(self, t: float) -> Any:
        return torch.full((self.like.shape[0],), t, dtype=torch.float64, device=self.like.device)

    @torch.no_grad()
    def norm(self, error: State, y0: State, y1: State, solver: Solver) -> Any:
        ratios = [x.flatten(1).square().mean(1).sqrt() for x in in_tolerances(error, y0, y1, solver)]
        return torch.stack(ratios).amax(0).double()

    def choose(self, accepted: Any, new: State, old: State) -> State:
        return tuple(torch.where(accepted.view(-1, *[1] * (x.dim() - 1)), x, y) for x, y in zip(new, old, strict=True))

    def read(self, stuck: Any, step: Step | None = None, accepted: Any = False, left: Any = False) -> None:
        flags = [stuck.any().double()]
        if step is not None:
            self.accepted, self.last = accepted, accepted & ~left
            reached = (self.sign * (self.times - (step.t + step.dt)) <= 0) | self.last
            self.covered = accepted & (self.sign * (self.times - step.t) > 0) & reached  # (T, B)
            mean = torch.where(accepted, step.dt, 0).sum() / accepted.sum().clamp(min=1)
            flags += [(~left.any()).double(), mean, *self.covered.any(1).double().unbind()]
        any_stuck, *rest = torch.stack(flags).tolist()
        finished, self.size, *self.any_covered = rest or (0.0, 0.0)
        self.stuck, self.finished = bool(any_stuck), bool(finished)

    def place(self, samples: Any, t: Any, size: Any) -> tuple[float, float, int | None]:
        i = int(samples.nonzero()[0])
        return float(t[i]), float(size[i]), i


@torch.no_grad()  # also so that no running average counts the trial step
def first_step(F: CountedField, control: SharedSteps, t: Any, y: State, k1: State, sign: float, solver: Solver) -> Any:
    """Return the size of the first step from (t, y), where the slope is k1; NaN if that slope is not finite."""
    slope_norm = control.norm(k1, y, y, solver)
    h0 = trial_step_size(control.norm(y, y, y, solver), slope_norm)
    if not isinstance(h0, Tensor) and not 0 < h0 < math.inf:  # 0 where the slope is infinite
        return math.nan
    k2 = F(t + sign * h0, move(y, sign * h0, (1.0,), [k1]))
    change_norm = control.norm(tuple(b - a for a, b in zip(k1, k2, strict=True)), y, y, solver)
    return first_step_size(h0, slope_norm, change_norm, TABLEAUS[solver.method].order)


def adaptive_steps(F: CountedField, y: State, times: Sequence[float], solver: Solver, control: SharedSteps,
                   attempt: Attempt | None = None) -> Iterator[Step]:
    """Yield steps that were accepted, by any sample, from the first of the times to exactly the last.

    Raises:
        SolveError: the state or its slope is not finite, the step size underflows, or `max_steps` are not enough.
    """
    tableau = TABLEAUS[solver.method]

    def attempt_step(F: CountedField, t: Any, dt: Any, y: State, k1: State) -> tuple[Step, Any]:
        step = take_step(F, tableau, t, dt, y, k1)
        return step, control.norm(error_of(step, tableau), y, step.y1, solver)

    def plan(t: Any, size: Any) -> tuple[Any, Any, Any, Any]:
        """Return of the next step who still moves, for whom it is the last, its size, and for whom it is too small."""
        rest = sign * (end - t)
        last = where(size < rest, False, True)
        dt = sign * where(last, rest, size)
        return rest > 0, last, dt, (rest > 0) & where(finite(size), t + dt == t, True)

    sign, end, attempt = math.copysign(1.0, times[-1] - times[0]), times[-1], attempt or attempt_step
    if not bool(torch.stack([torch.isfinite(b).all() for b in y]).all()):
        raise SolveError("the initial state is NaN or infinite", times[0], 0.0, "check what the ODE is started from")
    t = control.time(times[0])
    k1 = F(t, y)
    size = first_step(F, control, t, y, k1, sign, solver)
    active, last, dt, stuck = plan(t, size)
    control.read(stuck)
    ratio, start, rejected = 0.0 * t, (k1, y), None
    for _ in range(solver.max_steps):
        if control.stuck:
            time, tried, sample = control.place(stuck, t, dt)
            one = slice(None) if sample is None else slice(sample, sample + 1)
            error, at = start if rejected is None else (error_of(rejected, tableau), rejected.y0)
            share = tuple(b[one] for b in in_tolerances(error, at, at, solver))
            broken = where(finite(size), where(finite(ratio), False, True), True) & stuck
            raise step_failure(bool(broken if sample is None else broken.any()), time, tried, share, F.cost, sample)
        step, ratio = attempt(F, t, dt, y, k1)
        accepted = active & (ratio <= 1)  # False for NaN
        if accepted is not False:
            step = with_end_slope(F, tableau, step)
        if accepted is not True:
            rejected = step
        size = next_step_size(dt, ratio, accepted, tableau.order)
        t = where(accepted, where(last, end, t + dt), t)
        y, k1 = control.choose(accepted, step.y1, y), control.choose(accepted, step.ks[-1], k1)
        active, last, dt, stuck = plan(t, size)
        control.read(stuck, step, accepted, active)
        if control.size:
            F.cost.step_sizes.append(control.size)
            yield step
        else:
            F.cost.rejected += 1
        if control.finished:
            return
    time, tried, _ = control.place(active, t, size)
    raise SolveError(f"the step limit of {solver.max_steps} was reached", time, sign * tried, RAISE_LIMIT)


# Fixed steps ------------------------------------------------------------------------------------------------------


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


def fixed_steps(F: CountedField, tableau: Tableau, y: State, grid: Sequence[float]) -> Iterator[Step]:
    """Yield one step between each two neighbouring times of the grid.

    Raises:
        SolveError: the state is no longer finite.
    """
    for t, end in pairwise(grid):
        step = take_step(F, tableau, t, end - t, y)
        try:
            finite_state = all(bool(torch.isfinite(b).all()) for b in step.y1)
        except RuntimeError as error:
            if not str(error).startswith("vmap:"):
                raise
            finite_state = True  # vmap cannot tell
        if not finite_state:
            raise SolveError("the state became NaN or infinite", t, step.dt, SMALLER_STEPS)
        F.cost.step_sizes.append(step.dt)
        yield step
        y = step.y1


# Failures ---------------------------------------------------------------------------------------------------------


@torch.no_grad()
def step_failure(broken: bool, t: float, dt: float, share: State, cost: Evaluations,
                 sample: int | None = None) -> SolveError:
    """Return the error of a solve whose step size became too small.

    Args:
        broken: whether the field gave NaN or infinity, rather than a finite slope that changes too fast.
        share: what made the step too long, entry by entry: the error of the last step, or the slope at its start.
        sample: its index in the batch, if `share` has one sample only.
    """
    reason = "the field gave NaN or infinity" if broken else "underflow in dt"
    largest = [torch.where(x.isfinite(), x.abs().double(), torch.inf).flatten() for x in share]
    block = int(torch.stack([x.max() for x in largest]).argmax())
    index = [int(i) for i in torch.unravel_index(largest[block].argmax(), share[block].shape)]
    if share[block].dim() > 1:
        own, *index = index
        sample = own if sample is None else sample
    name = NAMES[block] if block < len(NAMES) else f"block {block}"
    return SolveError(reason, t, dt, LOOSEN, sample=sample, variable=f"{name}{index}" if index else name,
                      evaluations=cost.forward)


# Step sizes -------------------------------------------------------------------------------------------------------
# On Python numbers where the batch shares its steps, on tensors (B,) where every sample has its own, and on scalar
# tensors where nothing may wait for the device. The kernels of `accelerate` repeat these rules and are tested against
# them. An error ratio is the error in units of the tolerance, so a step is accepted if it is at most 1.
# Hairer, Nørsett & Wanner, Solving Ordinary Differential Equations I, section II.4.

SAFETY, GROW, SHRINK = 0.9, 10.0, 0.2  # how far below the estimate to stay, and the bounds of dt_next / dt

Number = TypeVar("Number", float, Tensor)


def trial_step_size(state_norm: Number, slope_norm: Number) -> Number:
    """Return h0, the size of the explicit Euler step that measures how fast the slope changes.

    The norms are those of y(t_0) and F(t_0, y(t_0)), in units of the tolerance.
    """
    tiny = _at_most(state_norm, slope_norm) < 1e-5
    return where(tiny, 1e-6, 0.01 * state_norm / _at_least(slope_norm, 1e-5))


def first_step_size(h0: Number, slope_norm: Number, change_norm: Number, order: int) -> Number:
    """Return the first step size after `trial_step_size`, NaN if h0 is not a positive number.

    `change_norm` is that of F(t_0 + h0, y + h0 F) - F(t_0, y), in units of the tolerance.
    """
    steepest = _at_least(slope_norm, change_norm / h0)
    flat = steepest <= 1e-15
    h1 = where(flat, _at_least(h0 * 1e-3, 1e-6), (0.01 / _at_least(steepest, 1e-15)) ** (1 / order))
    return where((h0 > 0) & (h0 < math.inf), _at_most(100 * h0, h1), math.nan)


def next_step_size(dt: Number, ratio: Number, accepted: bool | Tensor, order: int) -> Number:
    """Return the size of the next step after a step of size |dt| with this error ratio.

    The size shrinks after a rejected step only. A ratio that is NaN or infinite shrinks it as far as allowed.
    """
    factor = SAFETY * _at_least(ratio, 1e-30) ** (-1 / order)  # below 1e-30 the factor is GROW for every order
    factor = _at_most(_at_least(factor, where(accepted, 1.0, SHRINK)), GROW)
    return abs(dt) * where(finite(ratio), factor, SHRINK)


# The same operation on a Python number and on a tensor:


def where(condition: Any, yes: Any, no: Any) -> Any:
    if isinstance(condition, Tensor):
        return torch.where(condition, yes, no)
    return yes if condition else no


def _at_least(x: Any, bound: Any) -> Any:
    return x.clamp(min=bound) if isinstance(x, Tensor) else max(x, bound)


def _at_most(x: Any, bound: Any) -> Any:
    return x.clamp(max=bound) if isinstance(x, Tensor) else min(x, bound)


def finite(x: Any) -> Any:
    return torch.isfinite(x) if isinstance(x, Tensor) else math.isfinite(x)
