"""Solve by our own Runge–Kutta steps, shared by the batch or chosen by every sample.

Gradient "backprop": autograd records every step. Gradient "checkpointed": only the start of every step is kept, and
the backward pass takes each step again to differentiate it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from acenode.ode.options import Solver
from acenode.ode.runge_kutta import (
    Evaluations,
    State,
    Step,
    VectorField,
    check_has_input,
    check_outside_tensors,
    dense_weights,
    no_second_derivatives,
    parameters_of,
    refuse_second_derivatives,
    take_step,
    with_end_slope,
)
from acenode.ode.stepping import CountedField, OwnSteps, adaptive_steps, steps_of
from acenode.ode.tableaus import TABLEAUS, Tableau

LIMIT = 4e9  # bytes that autograd may save in a solve
LARGE = 200  # numbers saved for each number of the state in one evaluation, more than any of our fields


def solve_runge_kutta(field: VectorField, y: State, times: list[float], solver: Solver, cost: Evaluations) -> State:
    """Return every block (T, ...) at the times; the last step ends exactly at the last time."""
    if solver.gradient == "checkpointed" and torch.is_grad_enabled():
        check_has_input("checkpointed", field, y, torch.tensor(times[0]).to(y[0]), parameters_of(field))
        F = RepeatableField(field, y, cost)
        flat = _Checkpointed.apply(F, times, solver, len(y), *y, *parameters_of(field))
        return tuple(torch.stack(flat[n::len(y)]) for n in range(len(y)))
    rows, _ = _integrate(CountedField(field, y, cost), y, times, solver)
    return tuple(torch.stack(block) for block in zip(*rows, strict=True))


# A step size for every sample -------------------------------------------------------------------------------------


class OutputPerSample:
    """Collect the first block at output times (B, T) of every sample's own, from each step as it is accepted."""

    def __init__(self, times: Tensor, h: Tensor) -> None:
        self.times = times.double()
        self.states = h.unsqueeze(1).expand(-1, times.shape[1], *h.shape[1:])  # h(t_0) until a step covers the time

    def add_step(self, step: Step, accepted: Tensor, last: Tensor, tableau: Tableau) -> None:
        """Interpolate at the times that a step covers; the last step also covers the times after its end.

        `accepted` and `last` (B,) tell which samples took the step, and which reach the end with it.
        """
        t, dt, h = step.t[:, None], step.dt[:, None], step.y0[0]
        end = (step.t + step.dt)[:, None]  # the next step starts at exactly this end, so no time is missed
        covered = accepted[:, None] & (self.times > t) & ((self.times <= end) | last[:, None])  # (B, T)
        x = torch.where(covered, (self.times - t) / dt, 0.0)
        weights = [w * dt for w in dense_weights(x, tableau, len(step.ks))]
        W = torch.stack([torch.ones_like(x), *weights], dim=-1).to(h.dtype)  # (B, T, 1+stages)
        stages = torch.stack([h, *(k[0] for k in step.ks)], dim=1).flatten(2)  # (B, 1+stages, d)
        inside = torch.bmm(W, stages).unflatten(-1, h.shape[1:])
        self.states = torch.where(covered.view(*covered.shape, *[1] * (h.dim() - 1)), inside, self.states)


def solve_per_sample(field: VectorField, y: State, times: list[float], solver: Solver, cost: Evaluations,
                     output: OutputPerSample | None = None) -> State:
    """Return every block (T, B, ...) at the times, with adaptive steps of every sample's own.

    The field gets t as (B, 1, ...). `output` collects states at further times of every sample's own.
    """
    tableau, sign = TABLEAUS[solver.method], math.copysign(1.0, times[-1] - times[0])
    inner = torch.tensor(times[1:-1], dtype=torch.float64, device=y[0].device)[:, None]  # (T-2, 1)
    control, end = OwnSteps(y[0], inner, sign), y
    rows = [y] + [tuple(torch.zeros_like(b) for b in y) for _ in times[1:-1]]
    for step in adaptive_steps(CountedField(field, y, cost), y, times, solver, control):
        for n, s in enumerate(times[1:-1]):
            if control.any_covered[n]:
                inside = step.inside(torch.where(control.covered[n], (s - step.t) / step.dt, 0), tableau)
                rows[n + 1] = control.choose(control.covered[n], inside, rows[n + 1])
        if output is not None:
            output.add_step(step, control.accepted, control.last, tableau)
        end = control.choose(control.accepted, step.y1, step.y0)
    return tuple(torch.stack(block) for block in zip(*rows, end, strict=True))


# Shared steps -----------------------------------------------------------------------------------------------------


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
    tableau = TABLEAUS[solver.method]
    sign = math.copysign(1.0, times[-1] - times[0])
    rows, records, reached = [y], [], 1
    for step in steps_of(F, y, times, solver):
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
    return [step.dense(t, tableau) for t in inside] + [step.y1] * at_end


class _Checkpointed(torch.autograd.Function):
    """Compute the exact gradient of the steps taken, with the memory of one step.

    The forward pass keeps where each accepted step started. The backward pass takes each step again, the last one
    first, and differentiates it. Where a step's last stage is the next one's first (FSAL), that stage's gradient is
    passed on to the earlier step.
    """

    @staticmethod
    def forward(ctx: Any, F: RepeatableField, times: list[float], solver: Solver, blocks: int,
                *tensors: Tensor) -> State:
        start = tuple(b.clone() for b in tensors[:blocks])  # kept until the backward pass: must not change in place
        with torch.set_grad_enabled(bool(F.buffers)):  # some averages are updated with gradients enabled only
            rows, records = _integrate(F, start, times, solver)
        ctx.F, ctx.records, ctx.tableau, ctx.blocks = F, records, TABLEAUS[solver.method], blocks
        ctx.inputs, ctx.parameters = tensors, tensors[blocks:]
        # copies and detached aliases: a tensor both returned and kept in ctx would keep its own graph alive
        return tuple(b.clone() if i < blocks else b.detach() for i, b in enumerate(b for row in rows for b in row))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        with ctx.F.replaying(), torch.no_grad():
            found = _Checkpointed.gradients(ctx, grads)
        return None, None, None, None, *refuse_second_derivatives(no_second_derivatives("checkpointed"), found,
                                                                  ctx.inputs)

    @staticmethod
    def gradients(ctx: Any, grads: Sequence[Tensor]) -> list[Tensor | None]:
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

        def leaf(y: State) -> State:
            return tuple(b.detach().requires_grad_() for b in y)

        for record in reversed(ctx.records):
            F.queue.extend(record.before)
            with torch.enable_grad():
                y0, k1 = leaf(record.y0), None if record.k1 is None else leaf(record.k1)
                step = take_step(F, tableau, record.t, record.dt, y0, k1)
                step = _with_dense_output(F, tableau, step, record.inside)
                targets = _outputs(tableau, step, record.inside, record.at_end)
            F.queue.clear()  # of the slope at the end, which only the next step used
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
            F.queue.append(ctx.records[0].k1.before)
            with torch.enable_grad():
                y0 = leaf(ctx.records[0].y0)
                first = F(ctx.records[0].t, y0)
            grad_y = [a + b for a, b in zip(grad_y, pull_back(list(first), grad_k, y0), strict=True)]
        return [*(a + b for a, b in zip(grad_y, rows.pop(), strict=True)), *total]


# The field, evaluated a second time exactly as the first time --------------------------------------------------------


@dataclass(frozen=True)
class FieldState:
    random: list[Tensor] | None  # of the generators; None if the evaluation draws no random numbers
    buffers: list[Tensor]


class Slopes(tuple[Tensor, ...]):
    """The slopes of a state, with the state of the field before they were computed."""

    before: FieldState


class RepeatableField(CountedField):
    """A counted field whose evaluations in the backward pass are those of the forward pass.

    A field with dropout must draw the same masks in both, and one with running averages, such as batch normalisation,
    must update them in the first pass only. So the state of the field before each evaluation is recorded, and restored
    in the backward pass from the `queue`.
    """

    def __init__(self, field: VectorField, like: State, cost: Evaluations) -> None:
        super().__init__(field, like, cost)
        self.buffers = list(field.buffers()) if isinstance(field, nn.Module) else []
        self.copies = [b.clone() for b in self.buffers]
        self.queue: deque[FieldState] = deque()
        self.rewound = False

    def __call__(self, t: Any, y: State) -> State:
        if self.in_backward:
            self._restore(self.queue.popleft())
            return super().__call__(t, y)
        random, copies = self._random(), self.copies
        slopes = Slopes(b.detach() for b in super().__call__(t, y))
        drew = any(not torch.equal(a, b) for a, b in zip(random, self._random(), strict=True))
        slopes.before = FieldState(random if drew else None, copies)
        self.copies = [c if torch.equal(b, c) else b.clone() for b, c in zip(self.buffers, copies, strict=True)]
        return slopes

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Replay evaluations, and undo at the end what they do to the generators and buffers."""
        random, buffers, self.rewound = self._random(), [b.clone() for b in self.buffers], False
        self.in_backward = True
        try:
            yield
        finally:
            self.in_backward = False
            self.queue.clear()
            self._restore(FieldState(random if self.rewound else None, buffers))

    def _random(self) -> list[Tensor]:
        states = [torch.get_rng_state()]
        return [*states, torch.cuda.get_rng_state(self.device)] if self.device.type == "cuda" else states

    def _restore(self, state: FieldState) -> None:
        if state.random is not None:
            self.rewound = True
            torch.set_rng_state(state.random[0])
            if len(state.random) > 1:
                torch.cuda.set_rng_state(state.random[1], self.device)
        for buffer, value in zip(self.buffers, state.buffers, strict=True):
            if not torch.equal(buffer, value):
                buffer.data.copy_(value)  # .data: the graph of this step does not need the buffer's earlier value


# Memory of the backward pass ------------------------------------------------------------------------------------------


def within_memory(solver: Solver, field: VectorField, state: State, steps: int) -> Solver:
    """Return the solver, with gradient "checkpointed" if "backprop" would save more than `LIMIT` bytes in these steps.

    The field is evaluated once if there might be too much to save.
    """
    if not (torch.is_grad_enabled() and solver.native and solver.gradient == "backprop"):
        return solver
    evaluations = steps * len(TABLEAUS[solver.method].b)
    if evaluations * LARGE * sum(block.nbytes for block in state) <= LIMIT:
        return solver
    return replace(solver, gradient="checkpointed") if evaluations * saved_bytes(field, state) > LIMIT else solver


def saved_bytes(field: VectorField, state: State) -> int:
    """Return how many bytes autograd saves in one evaluation of the field, its parameters included."""
    saved: dict[int, Tensor] = {}  # by storage; kept, so that no address is used twice

    def pack(x: Tensor) -> Tensor:
        saved[x.untyped_storage().data_ptr()] = x
        return x

    with saved_tensors_hooks(pack, lambda x: x):
        field(torch.zeros((), dtype=state[0].dtype, device=state[0].device), state)
    return sum(x.untyped_storage().nbytes() for x in saved.values())
