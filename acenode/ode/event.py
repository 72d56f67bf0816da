"""End a solve where an event function crosses zero.

The crossing is found on the dense output of the step that contains it. Event time and state have gradients: one Newton
step from the crossing, t_e = t − e / ė, has the derivative that the implicit function theorem gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from acenode.errors import GradientError, UserError
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import (
    Evaluations,
    Solution,
    State,
    Step,
    VectorField,
    refuse_second_derivatives,
    with_end_slope,
)
from acenode.ode.stepping import CountedField, steps_of
from acenode.ode.tableaus import TABLEAUS, Tableau

Event = Callable[[Tensor, State], Tensor]  # (t, state) -> a number that crosses zero where the solve ends
BISECTIONS = 60
NO_GRADIENT = ("the time of the event has no gradient, because the event function does not cross zero with a finite "
               "slope: use a smooth function, or detach event_t and the last state")
NO_SECOND = "the time of an event, and the state there, have no second derivatives: differentiate them once"


def solve_until(field: VectorField, y: State, times: list[float], event: Event, solver: Solver,
                cost: Evaluations) -> Solution:
    """Integrate until the event changes its sign, or to the last time.

    An event that happens twice within one step is not noticed: give adaptive methods a tighter tolerance, and others a
    smaller step_size.
    """
    if not solver.native or solver.gradient != "backprop":
        raise UserError(f'an event needs our own Runge–Kutta steps and gradient "backprop", not {solver.method} with '
                        f'gradient "{solver.gradient}" and engine "{solver.engine}"')
    F, tableau = CountedField(field, y, cost), TABLEAUS[solver.method]
    sign = math.copysign(1.0, times[-1] - times[0])
    reached, rows, before = [times[0]], [y], _value(event, F, times[0], y)
    for taken in steps_of(F, y, times, solver):
        step = with_end_slope(F, tableau, taken) if len(taken.ks) == len(tableau.b) else taken
        end = step.t + step.dt
        after = _value(event, F, end, step.y1)
        happened = after == 0 or before * after < 0
        stop = _crossing(event, F, tableau, step, before) if happened else end
        near = 4 * math.ulp(max(abs(step.t), abs(end)))
        for t in times[len(reached):]:
            if sign * (t - stop) > (-near if happened else near):
                break
            reached.append(t)
            rows.append(step.y1 if abs(t - end) <= near else step.dense(t, tableau))
        if happened:
            break
        before = after or before
    ends, event_t = torch.tensor(reached, dtype=torch.float64, device=F.device), None
    if happened:
        event_t, y_e = _differentiable(event, F, stop, step.dense(stop, tableau))
        ends = torch.cat((ends, event_t.double().reshape(1)))
        rows.append(y_e)
    return Solution(tuple(torch.stack(block) for block in zip(*rows, strict=True)), cost, ends, event_t)


def _evaluate(event: Event, t: Tensor, y: State) -> Tensor:
    value = event(t, y)
    if not isinstance(value, Tensor) or value.numel() != 1:
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise UserError(f"an event returns a tensor with one number, not {shape}: reduce it over the batch, such as by "
                        "min()")
    return value.reshape(())


@torch.no_grad()
def _value(event: Event, F: CountedField, t: float, y: State) -> float:
    return float(_evaluate(event, torch.full((), t, dtype=F.dtype, device=F.device), y))


@torch.no_grad()
def _crossing(event: Event, F: CountedField, tableau: Tableau, step: Step, before: float) -> float:
    """Return where the event crosses zero within the step, by bisection."""
    low, high = step.t, step.t + step.dt
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        value = _value(event, F, middle, step.dense(middle, tableau))
        low, high = (low, middle) if value * before < 0 or value == 0 else (middle, high)
    return high


def _differentiable(event: Event, F: CountedField, stop: float, y: State) -> tuple[Tensor, State]:
    """Return the time of the event and the state there, with gradients with respect to all that y depends on.

    Differentiating them raises a GradientError if the event does not cross zero with a finite slope.
    """
    t = torch.full((), stop, dtype=F.dtype, device=F.device)
    slope, value = F(stop, y), _evaluate(event, t, y)
    rate = _rate(event, t, y, slope)
    if rate == 0 or not math.isfinite(rate):
        return _NoGradient.apply(t, value, *y), tuple(_NoGradient.apply(b, value, *y) for b in y)
    moved = -value / rate  # zero up to rounding; its gradient is that of the event's time
    moved = _FirstOrderTime.apply(moved - moved.detach(), value)
    return t + moved, tuple(b + moved * k.detach() for b, k in zip(y, slope, strict=True))


def _rate(event: Event, t: Tensor, y: State, slope: State) -> float:
    """Return how fast the event's value changes along the solution; 0 if it is computed without gradients."""
    inputs = t.detach(), *(b.detach() for b in y)
    found: Sequence[Tensor | None]
    try:
        with torch.enable_grad():
            tracked = tuple(x.detach().requires_grad_() for x in inputs)
            value = _evaluate(event, tracked[0], tracked[1:])
            if not value.requires_grad:
                return 0.0
            found = torch.autograd.grad(value, tracked, allow_unused=True)
    except RuntimeError as error:
        if "functorch" not in str(error):  # within a transform of torch.func, only torch.func computes gradients
            raise
        found = torch.func.grad(lambda *x: _evaluate(event, x[0], x[1:]), tuple(range(len(inputs))))(*inputs)
    rates = (torch.ones_like(t), *slope)
    return float(sum((g * r.detach()).sum() for g, r in zip(found, rates, strict=True) if g is not None))


class _FirstOrderTime(torch.autograd.Function):
    """The identity of a shift in time; its gradient has fixed slopes and cannot be differentiated again."""

    @staticmethod
    def forward(moved: Tensor, value: Tensor) -> Tensor:
        return moved.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return refuse_second_derivatives(NO_SECOND, [grad], ctx.saved_tensors)[0], None

    @staticmethod
    def jvp(ctx: Any, moved: Tensor, value: Tensor) -> Tensor:
        return moved.clone()


class _NoGradient(torch.autograd.Function):
    """The identity of a time or state whose gradient does not exist; `others` are what it depends on besides."""

    @staticmethod
    def forward(x: Tensor, *others: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.count = len(inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        try:
            refused = bool((grad != 0).any())
        except RuntimeError:  # vmap cannot tell, as in jacrev
            refused = True
        if refused:
            raise GradientError(NO_GRADIENT)
        return (None,) * ctx.count

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        raise GradientError(NO_GRADIENT)
