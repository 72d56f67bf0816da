"""One `solve` for every ODE of the project: method, tolerances, gradient mode, evaluation counts, clear errors.

    native steps   every explicit Runge–Kutta method, gradient "backprop" or "checkpointed"
    torchdiffeq    its multistep and SciPy methods, gradient "adjoint", and all of it with engine "reference"

Both engines take the same steps under the same error norm (the larger of the blocks' root mean squares), except
that native steps end exactly at the last requested time where torchdiffeq steps past it and interpolates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from acenode.errors import SolveError, UserError
from acenode.runge_kutta import Evaluations, State, Step, adaptive_steps, fixed_steps, take_step, with_end_slope
from acenode.tableaus import TABLEAUS, Tableau

Gradient = Literal["backprop", "checkpointed", "adjoint"]
Engine = Literal["auto", "reference"]
METHODS: tuple[str, ...] = (*TABLEAUS, "explicit_adams", "implicit_adams", "scipy_solver")
GRADIENTS: tuple[str, ...] = get_args(Gradient)
ENGINES: tuple[str, ...] = get_args(Engine)

VectorField = Callable[[Tensor, State], State]


@dataclass(frozen=True)
class Solver:
    """How to integrate. `step_size` is for fixed-step methods; without it they step from one time to the next."""

    method: str = "dopri5"
    rtol: float = 1e-4
    atol: float = 1e-4
    step_size: float | None = None
    gradient: Gradient = "backprop"
    seminorm: bool = False
    max_steps: int = 1000
    engine: Engine = "auto"

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UserError(f"there is no solver {self.method!r}: choose one of {', '.join(METHODS)}")
        if self.gradient not in GRADIENTS:
            raise UserError(f"there is no gradient {self.gradient!r}: choose one of {', '.join(GRADIENTS)}")
        if self.engine not in ENGINES:
            raise UserError(f"there is no engine {self.engine!r}: choose one of {', '.join(ENGINES)}")
        if not (self.rtol > 0 and self.atol > 0):
            raise UserError("rtol and atol must be positive")
        if self.step_size is not None and not self.step_size > 0:
            raise UserError("step_size must be positive")
        if self.max_steps < 1:
            raise UserError("max_steps must be at least 1")
        if self.gradient == "checkpointed" and (self.method not in TABLEAUS or self.engine == "reference"):
            raise UserError(f"checkpointed gradients need a native Runge–Kutta method, not {self.method} with "
                            f"engine {self.engine}: use gradient adjoint")
        if self.method == "scipy_solver" and self.gradient == "backprop":
            raise UserError("scipy_solver leaves torch, so it cannot be back-propagated: use gradient adjoint")

    @property
    def native(self) -> bool:
        return self.engine == "auto" and self.method in TABLEAUS and self.gradient != "adjoint"


@dataclass(frozen=True)
class Solution:
    """The state's blocks at the requested times, each (T, *block), and what they cost."""

    states: State
    evaluations: Evaluations


def solve(field: VectorField, state: Sequence[Tensor], t: Tensor | Sequence[float],
          solver: Solver | None = None) -> Solution:
    """Integrate d(state)/dt = field(t, state) from t[0] and return the state at every t.

    `field` takes a scalar tensor and the blocks. With gradient "adjoint" or "checkpointed" its parameters are
    found through it, so it must be an nn.Module to have any.
    """
    solver = solver or Solver()
    times = [float(x) for x in (t.tolist() if isinstance(t, Tensor) else t)]
    steps = [b - a for a, b in pairwise(times)]
    if len(times) < 2 or not all(math.isfinite(x) for x in times):
        raise UserError("solve needs at least two finite times")
    if not (all(s > 0 for s in steps) or all(s < 0 for s in steps)):
        raise UserError("the times of a solve must be strictly increasing or strictly decreasing")
    y, cost = tuple(state), Evaluations()
    if not solver.native:
        return _solve_reference(field, y, times, solver, cost)
    counted = _Counted(field, y, cost)
    if solver.gradient == "checkpointed" and torch.is_grad_enabled():
        parameters = _parameters(field)
        flat = _Checkpointed.apply(counted, times, solver, len(y), *y, *parameters)
        states = tuple(torch.stack(flat[n::len(y)]) for n in range(len(y)))
    else:
        rows, _ = _march(counted, y, times, solver)
        states = tuple(torch.stack(block) for block in zip(*rows, strict=True))
    if not TABLEAUS[solver.method].adaptive and not all(bool(torch.isfinite(b[-1]).all()) for b in states):
        raise SolveError("the state became NaN or infinite", times[-1], cost.step_sizes[-1],
                         "use a smaller step_size, an adaptive solver such as dopri5, or a lower learning rate")
    return Solution(states, cost)


class _Counted:
    """The field with times as numbers, counting its evaluations."""

    def __init__(self, field: VectorField, like: State, cost: Evaluations) -> None:
        self.field, self.cost, self.replaying = field, cost, False
        self.dtype, self.device = like[0].dtype, like[0].device

    def __call__(self, t: float, y: State) -> State:
        if self.replaying:
            self.cost.backward += 1
        else:
            self.cost.forward += 1
        return tuple(self.field(torch.full((), t, dtype=self.dtype, device=self.device), y))


def _parameters(field: VectorField) -> list[Tensor]:
    return [p for p in field.parameters() if p.requires_grad] if isinstance(field, nn.Module) else []


def _grid(times: list[float], step_size: float | None) -> list[float]:
    """The steps of a fixed-step method: the times themselves, or equal steps with a shorter last one."""
    if step_size is None:
        return times
    start, end = times[0], times[-1]
    count = max(1, math.ceil(abs(end - start) / step_size - 1e-9))
    return [start + math.copysign(i * step_size, end - start) for i in range(count)] + [end]


@dataclass(frozen=True)
class _Mark:
    """What is kept of an accepted step: enough to take it again, and the requested times that it covers."""

    t: float
    dt: float
    y0: State
    k1: State | None
    inside: list[float]
    at_end: bool


def _march(F: _Counted, y: State, times: list[float], solver: Solver) -> tuple[list[State], list[_Mark]]:
    """States at the times, and a mark of every step."""
    tableau = TABLEAUS[solver.method]
    sign = math.copysign(1.0, times[-1] - times[0])
    steps = (
        adaptive_steps(F, tableau, y, times[0], times[-1], rtol=solver.rtol, atol=solver.atol,
                       max_steps=solver.max_steps, cost=F.cost)
        if tableau.adaptive else fixed_steps(F, tableau, y, _grid(times, solver.step_size), F.cost)
    )
    rows, marks, wanted = [y], [], 1
    for step in steps:
        end = step.t + step.dt
        inside: list[float] = []
        while wanted < len(times) and sign * (times[wanted] - end) < -1e-12 * abs(step.dt):
            inside.append(times[wanted])
            wanted += 1
        at_end = wanted < len(times) and abs(times[wanted] - end) <= 1e-12 * abs(step.dt)
        wanted += at_end
        rows += _outputs(F, tableau, step, inside, at_end)
        marks.append(_Mark(step.t, step.dt, step.y0, step.ks[0] if tableau.fsal else None, inside, at_end))
    return rows, marks


def _outputs(F: _Counted, tableau: Tableau, step: Step, inside: list[float], at_end: bool) -> list[State]:
    if inside and len(step.ks) == len(tableau.b):
        step = with_end_slope(F, tableau, step)
    return [step.dense(t, tableau) for t in inside] + ([step.y1] if at_end else [])


class _Checkpointed(torch.autograd.Function):
    """The exact gradient of the steps that were taken, with the memory of one step.

    Forward keeps where each accepted step started. Backward takes each step again, last one first, and
    differentiates it; a method whose last stage is the next one's first passes that stage's gradient along.
    """

    @staticmethod
    def forward(ctx: Any, F: _Counted, times: list[float], solver: Solver, blocks: int, *tensors: Tensor) -> State:
        rows, marks = _march(F, tensors[:blocks], times, solver)
        ctx.F, ctx.marks, ctx.tableau, ctx.blocks = F, marks, TABLEAUS[solver.method], blocks
        ctx.parameters = tensors[blocks:]
        # aliases: a tensor both returned and kept in ctx would hold its own graph alive
        return tuple(b.clone() if i < blocks else b.detach() for i, b in enumerate(b for row in rows for b in row))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        F, tableau, n, parameters = ctx.F, ctx.tableau, ctx.blocks, ctx.parameters
        rows = [list(grads[i:i + n]) for i in range(0, len(grads), n)]
        total: list[Tensor | None] = [None] * len(parameters)
        grad_y: list[Tensor] = [torch.zeros_like(g) for g in rows[0]]
        grad_k: list[Tensor] | None = None
        F.replaying = True

        def pull(outputs: list[Tensor], cotangents: list[Tensor], inputs: State) -> list[Tensor]:
            found = torch.autograd.grad(outputs, (*inputs, *parameters), cotangents, allow_unused=True)
            for i, g in enumerate(found[len(inputs):]):
                if g is not None:
                    so_far = total[i]
                    total[i] = g if so_far is None else so_far + g
            return [torch.zeros_like(x) if g is None else g
                    for x, g in zip(inputs, found[:len(inputs)], strict=True)]

        def leaf(y: State | None) -> State | None:
            return None if y is None else tuple(b.detach().requires_grad_() for b in y)

        for mark in reversed(ctx.marks):
            with torch.enable_grad():
                y0, k1 = leaf(mark.y0), leaf(mark.k1)
                assert y0 is not None
                step = take_step(F, tableau, mark.t, mark.dt, y0, k1)
                targets = _outputs(F, tableau, step, mark.inside, mark.at_end)
            cotangents = [rows.pop() for _ in targets][::-1]
            outputs, seeds = [step.y1, *targets], [grad_y, *cotangents]
            if grad_k is not None:
                outputs.append(step.ks[-1])
                seeds.append(grad_k)
            back = pull([b for y in outputs for b in y], [b for g in seeds for b in g], y0 + (k1 or ()))
            grad_y, grad_k = back[:n], back[n:] if k1 is not None else None
        if grad_k is not None:  # the very first stage, F(t0, y0)
            with torch.enable_grad():
                y0 = leaf(ctx.marks[0].y0)
                assert y0 is not None
                first = F(ctx.marks[0].t, y0)
            grad_y = [a + b for a, b in zip(grad_y, pull(list(first), grad_k, y0), strict=True)]
        grad_y = [a + b for a, b in zip(grad_y, rows.pop(), strict=True)]
        F.replaying = False
        return None, None, None, None, *grad_y, *total


class _Watched(nn.Module):
    """The field as torchdiffeq sees it: counts, step sizes, and its troubles in our words."""

    def __init__(self, field: VectorField, cost: Evaluations, solver: Solver, adaptive: bool) -> None:
        super().__init__()
        self.field, self.cost, self.solver, self.adaptive = field, cost, solver, adaptive
        self.backward_pass, self.tries = False, 0
        if solver.method != "scipy_solver":
            self.callback_step = self.callback_step_adjoint = self.watch
        if adaptive:
            self.callback_accept_step, self.callback_reject_step = self.accepted, self.refused

    def forward(self, t: Tensor, y: State) -> State:
        if self.backward_pass:
            self.cost.backward += 1
        else:
            self.cost.forward += 1
        return tuple(self.field(t, y))

    def watch(self, t: Tensor, y: Any, dt: Tensor) -> None:
        self.tries += 1
        time, size = float(t.detach()), float(dt.detach())
        advice = "loosen rtol and atol, lower the learning rate, or use a fixed-step solver such as rk4"
        finite = size != 0 and math.isfinite(size) and all(
            bool(torch.isfinite(b).all()) for b in (y if isinstance(y, tuple) else (y,)))
        if not finite or time + size == time:
            raise SolveError("underflow in dt" if finite else "the field gave NaN or infinity", time, size, advice)
        if not self.adaptive:
            if not self.backward_pass:
                self.cost.step_sizes.append(size)
        elif self.tries > self.solver.max_steps:
            raise SolveError(f"the step limit of {self.solver.max_steps} was reached", time, size,
                             "raise max_steps, loosen rtol and atol, or use a fixed-step solver such as rk4")

    def accepted(self, t: Tensor, y: Any, dt: Tensor) -> None:
        self.cost.step_sizes.append(float(dt.detach()))

    def refused(self, t: Tensor, y: Any, dt: Tensor) -> None:
        self.cost.rejected += 1


def _solve_reference(field: VectorField, y: State, times: list[float], solver: Solver,
                     cost: Evaluations) -> Solution:
    """The same through torchdiffeq."""
    import torchdiffeq  # imports SciPy, which takes half a second

    from acenode.reference import register_missing_methods

    register_missing_methods()
    tableau = TABLEAUS.get(solver.method)
    adaptive = tableau is not None and tableau.adaptive
    options: dict[str, Any] = {}
    if not adaptive and solver.method != "scipy_solver":
        if solver.step_size is not None:
            options |= {"step_size": solver.step_size}
        if tableau is not None and len(times) > 2:  # costs an evaluation a time, so not where only the end is asked
            options |= {"interp": "cubic"}
    watched = _Watched(field, cost, solver, adaptive)
    # torchdiffeq works in the state's precision but keeps time in float64; so do we
    t = torch.tensor(times, dtype=torch.float64, device=y[0].device)
    kwargs: dict[str, Any] = {"rtol": solver.rtol, "atol": solver.atol, "method": solver.method, "options": options}
    try:
        if solver.gradient == "adjoint":
            norm = {"norm": "seminorm"} if solver.seminorm else {}
            states = torchdiffeq.odeint_adjoint(watched, y, t, adjoint_params=_parameters(field),
                                                adjoint_options={**options, **norm}, **kwargs)
        else:
            states = torchdiffeq.odeint(watched, y, t, **kwargs)
    except AssertionError as error:
        raise SolveError(f"torchdiffeq stopped ({error})", times[0], 0.0,
                         "loosen rtol and atol, or lower the learning rate") from None
    watched.backward_pass, watched.tries = True, 0
    return Solution(tuple(states), cost)
