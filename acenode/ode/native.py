"""Native steps: march through an interval, the graph recorded (backprop) or each step replayed (checkpointed)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from acenode.errors import SolveError
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import Evaluations, State, Step, adaptive_steps, fixed_steps, take_step, with_end_slope
from acenode.ode.tableaus import TABLEAUS, Tableau

VectorField = Callable[[Tensor, State], State]


def solve_native(field: VectorField, y: State, times: list[float], solver: Solver, cost: Evaluations) -> State:
    """The state at the times by explicit Runge–Kutta steps that end exactly at the last of them."""
    F = Counted(field, y, cost)
    if solver.gradient == "checkpointed" and torch.is_grad_enabled():
        flat = _Checkpointed.apply(F, times, solver, len(y), *y, *parameters_of(field))
        states = tuple(torch.stack(flat[n::len(y)]) for n in range(len(y)))
    else:
        rows, _ = _march(F, y, times, solver)
        states = tuple(torch.stack(block) for block in zip(*rows, strict=True))
    return states


def parameters_of(field: VectorField) -> list[Tensor]:
    return [p for p in field.parameters() if p.requires_grad] if isinstance(field, nn.Module) else []


class Counted:
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


def fixed_grid(times: list[float], step_size: float | None, max_steps: int) -> list[float]:
    """The steps of a fixed-step method: the times themselves, or equal steps with a shorter last one."""
    if step_size is None:
        return times
    start, end = times[0], times[-1]
    if abs(end - start) / step_size > max_steps + 1e-9:
        raise SolveError(f"more than the step limit of {max_steps} steps would be needed", start, step_size,
                         "use a larger step_size, or raise max_steps")
    count = max(1, math.ceil(abs(end - start) / step_size - 1e-9))
    return [start + math.copysign(i * step_size, end - start) for i in range(count)] + [end]


@dataclass(frozen=True)
class _Mark:
    """What is kept of an accepted step: enough to take it again, and the requested times that it covers.

    `at_end` counts the times that are its end, up to rounding.
    """

    t: float
    dt: float
    y0: State
    k1: State | None
    inside: list[float]
    at_end: int


def steps_of(F: Counted, tableau: Tableau, y: State, times: list[float], solver: Solver) -> Iterator[Step]:
    """The accepted steps of a method from the first of the times to the last."""
    if not tableau.adaptive:
        return fixed_steps(F, tableau, y, fixed_grid(times, solver.step_size, solver.max_steps), F.cost)
    return adaptive_steps(F, tableau, y, times[0], times[-1], rtol=solver.rtol, atol=solver.atol,
                          max_steps=solver.max_steps, cost=F.cost)


def _march(F: Counted, y: State, times: list[float], solver: Solver) -> tuple[list[State], list[_Mark]]:
    """States at the times, and a mark of every step."""
    tableau = TABLEAUS[solver.method]
    sign = math.copysign(1.0, times[-1] - times[0])
    rows, marks, wanted = [y], [], 1
    for step in steps_of(F, tableau, y, times, solver):
        end = step.t + step.dt
        near = 4 * math.ulp(max(abs(step.t), abs(end)))  # rounding of t + dt
        inside: list[float] = []
        while wanted < len(times) and sign * (times[wanted] - end) < -near:
            inside.append(times[wanted])
            wanted += 1
        at_end = 0
        while wanted + at_end < len(times) and abs(times[wanted + at_end] - end) <= near:
            at_end += 1
        wanted += at_end
        rows += _outputs(F, tableau, step, inside, at_end)
        marks.append(_Mark(step.t, step.dt, step.y0, step.ks[0] if tableau.fsal else None, inside, at_end))
    assert len(rows) == len(times)
    return rows, marks


def _outputs(F: Counted, tableau: Tableau, step: Step, inside: list[float], at_end: int) -> list[State]:
    if inside and len(step.ks) == len(tableau.b):
        step = with_end_slope(F, tableau, step)
    return [step.dense(t, tableau) for t in inside] + [step.y1] * at_end


class _Checkpointed(torch.autograd.Function):
    """The exact gradient of the steps that were taken, with the memory of one step.

    Forward keeps where each accepted step started. Backward takes each step again, last one first, and
    differentiates it; a method whose last stage is the next one's first passes that stage's gradient along.
    """

    @staticmethod
    def forward(ctx: Any, F: Counted, times: list[float], solver: Solver, blocks: int, *tensors: Tensor) -> State:
        start = tuple(b.clone() for b in tensors[:blocks])  # kept here, so nobody may change it in place
        rows, marks = _march(F, start, times, solver)
        ctx.F, ctx.marks, ctx.tableau, ctx.blocks = F, marks, TABLEAUS[solver.method], blocks
        ctx.parameters = tensors[blocks:]
        # aliases: a tensor both returned and kept in ctx would hold its own graph alive
        return tuple(b.clone() if i < blocks else b.detach() for i, b in enumerate(b for row in rows for b in row))

    @staticmethod
    @torch.autograd.function.once_differentiable
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
