"""Solve by our own Runge–Kutta steps, which the whole batch shares.

Gradient "backprop": autograd records every step. Gradient "checkpointed": only the start of every step is kept, and
the backward pass takes each step again to differentiate it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from acenode.ode.gradient_limits import (
    check_has_input,
    check_outside_tensors,
    no_second_derivatives,
    refuse_second_derivatives,
)
from acenode.ode.options import Solver
from acenode.ode.replay import FieldMemory, FieldState, Slopes
from acenode.ode.runge_kutta import Evaluations, State, Step, VectorField, parameters_of, take_step, with_end_slope
from acenode.ode.stepping import CountedField, steps_of
from acenode.ode.tableaus import TABLEAUS, Tableau


def solve_runge_kutta(field: VectorField, y: State, times: list[float], solver: Solver, cost: Evaluations) -> State:
    """Return every block (T, ...) at the times; the last step ends exactly at the last time."""
    F = CountedField(field, y, cost)
    if solver.gradient == "checkpointed" and torch.is_grad_enabled():
        check_has_input("checkpointed", field, y, torch.tensor(times[0]).to(y[0]), parameters_of(field))
        F.memory = FieldMemory(field, F.device)
        flat = _Checkpointed.apply(F, times, solver, len(y), *y, *parameters_of(field))
        return tuple(torch.stack(flat[n::len(y)]) for n in range(len(y)))
    rows, _ = _integrate(F, y, times, solver)
    return tuple(torch.stack(block) for block in zip(*rows, strict=True))


@dataclass(frozen=True)
class _StepRecord:
    """What is needed to take an accepted step again, and the requested times that the step covers.

    `k1` is the first stage if the step before computed it. `before` has the state of the field before each evaluation
    of the step. `inside` are the times within the step; `at_end` counts those that equal its end up to rounding.
    """

    t: float
    dt: float
    y0: State
    k1: State | None
    before: list[FieldState]
    inside: list[float]
    at_end: int


def _integrate(F: CountedField, y: State, times: list[float], solver: Solver) -> tuple[list[State], list[_StepRecord]]:
    """Return the state at every time and a record of every accepted step."""
    tableau = TABLEAUS[solver.method]
    sign = math.copysign(1.0, times[-1] - times[0])
    rows, records, reached = [y], [], 1
    for step in steps_of(F, tableau, y, times, solver):
        end = step.t + step.dt
        near = 4 * math.ulp(max(abs(step.t), abs(end)))  # rounding of t + dt
        inside: list[float] = []
        while reached < len(times) and sign * (times[reached] - end) < -near:
            inside.append(times[reached])
            reached += 1
        at_end = 0
        while reached + at_end < len(times) and abs(times[reached + at_end] - end) <= near:
            at_end += 1
        reached += at_end
        step = _with_dense_output(F, tableau, step, inside)
        rows += _outputs(tableau, step, inside, at_end)
        k1, evaluated = (step.ks[0], step.ks[1:]) if tableau.fsal else (None, step.ks)
        before = [k.before for k in evaluated if isinstance(k, Slopes)]
        records.append(_StepRecord(step.t, step.dt, step.y0, k1, before, inside, at_end))
    assert len(rows) == len(times)
    return rows, records


def _with_dense_output(F: CountedField, tableau: Tableau, step: Step, inside: list[float]) -> Step:
    """Append the slope at the step's end where a time within the step needs it."""
    return with_end_slope(F, tableau, step) if inside and len(step.ks) == len(tableau.b) else step


def _outputs(tableau: Tableau, step: Step, inside: list[float], at_end: int) -> list[State]:
    """Return the states at the requested times of one step."""
    return [step.dense(t, tableau) for t in inside] + [step.y1] * at_end


class _Checkpointed(torch.autograd.Function):
    """Compute the exact gradient of the steps taken, with the memory of one step.

    The forward pass keeps where each accepted step started. The backward pass takes each step again, the last one
    first, and differentiates it. Where a step's last stage is the next one's first (FSAL), that stage's gradient is
    passed on to the earlier step.
    """

    @staticmethod
    def forward(ctx: Any, F: CountedField, times: list[float], solver: Solver, blocks: int, *tensors: Tensor) -> State:
        start = tuple(b.clone() for b in tensors[:blocks])  # kept until the backward pass: must not change in place
        assert F.memory is not None
        with torch.set_grad_enabled(bool(F.memory.buffers)):  # some averages are updated with gradients enabled only
            rows, records = _integrate(F, start, times, solver)
        ctx.F, ctx.records, ctx.tableau, ctx.blocks = F, records, TABLEAUS[solver.method], blocks
        ctx.inputs, ctx.parameters = tensors, tensors[blocks:]
        # copies and detached aliases: a tensor both returned and kept in ctx would keep its own graph alive
        return tuple(b.clone() if i < blocks else b.detach() for i, b in enumerate(b for row in rows for b in row))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        ctx.F.in_backward = True
        try:
            with ctx.F.memory.replaying(), torch.no_grad():
                found = _Checkpointed.gradients(ctx, grads)
        finally:
            ctx.F.in_backward = False
        reason = no_second_derivatives("checkpointed")
        return None, None, None, None, *refuse_second_derivatives(reason, found, ctx.inputs)

    @staticmethod
    def gradients(ctx: Any, grads: Sequence[Tensor]) -> list[Tensor | None]:
        """Return the gradients of the initial state and of the parameters."""
        F, tableau, n, parameters = ctx.F, ctx.tableau, ctx.blocks, ctx.parameters
        rows = [list(grads[i:i + n]) for i in range(0, len(grads), n)]
        total: list[Tensor | None] = [None] * len(parameters)
        grad_y: list[Tensor] = [torch.zeros_like(g) for g in rows[0]]
        grad_k: list[Tensor] | None = None

        def pull_back(outputs: list[Tensor], cotangents: list[Tensor], inputs: State) -> list[Tensor]:
            """Return the gradients of the inputs and add those of the parameters to `total`."""
            found = torch.autograd.grad(outputs, (*inputs, *parameters), cotangents, allow_unused=True)
            for i, g in enumerate(found[len(inputs):]):
                if g is not None:
                    so_far = total[i]
                    total[i] = g if so_far is None else so_far + g
            return [torch.zeros_like(x) if g is None else g
                    for x, g in zip(inputs, found[:len(inputs)], strict=True)]

        def leaf(y: State | None) -> State | None:
            return None if y is None else tuple(b.detach().requires_grad_() for b in y)

        for record in reversed(ctx.records):
            F.memory.queue.extend(record.before)
            with torch.enable_grad():
                y0, k1 = leaf(record.y0), leaf(record.k1)
                assert y0 is not None
                step = take_step(F, tableau, record.t, record.dt, y0, k1)
                step = _with_dense_output(F, tableau, step, record.inside)
                targets = _outputs(tableau, step, record.inside, record.at_end)
            F.memory.queue.clear()  # of the slope at the end, which only the next step used
            if record is ctx.records[-1]:
                check_outside_tensors("checkpointed", (*step.y1, *step.ks[-1]), (*y0, *(k1 or ()), *parameters))
            cotangents = [rows.pop() for _ in targets][::-1]
            outputs, seeds = [step.y1, *targets], [grad_y, *cotangents]
            if grad_k is not None:
                outputs.append(step.ks[-1])
                seeds.append(grad_k)
            found = pull_back([b for y in outputs for b in y], [b for g in seeds for b in g], y0 + (k1 or ()))
            grad_y, grad_k = found[:n], found[n:] if k1 is not None else None
        if grad_k is not None:  # of the very first stage, F(t0, y0)
            F.memory.queue.append(ctx.records[0].k1.before)
            with torch.enable_grad():
                y0 = leaf(ctx.records[0].y0)
                assert y0 is not None
                first = F(ctx.records[0].t, y0)
            grad_y = [a + b for a, b in zip(grad_y, pull_back(list(first), grad_k, y0), strict=True)]
        return [*(a + b for a, b in zip(grad_y, rows.pop(), strict=True)), *total]
