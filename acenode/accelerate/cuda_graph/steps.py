"""Runge–Kutta steps that can be recorded: fixed sequences of operations on tensors of fixed address.

    StageEvaluator  the stages of a step, and their gradients, one stage after another
    DeviceSteps     steps whose size and time are on the device, recorded once and replayed for every step
    AdjointSteps    a few fixed steps, and the adjoint equation backward, all in one recording
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from acenode.accelerate.cuda_graph.step_control import FixedStepControl, SolveStatus, StateStore, StepOperations
from acenode.device import torch_private
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import Evaluations, State
from acenode.ode.stepping import fixed_grid
from acenode.ode.tableaus import TABLEAUS, Tableau

CAPACITY = 32  # accepted steps that are stored
MAX_ADJOINT_STEPS = 16  # of a solve with adjoint gradients: all of them are in one recording


class GradientSums:
    """Sums of the gradients of parameters, at fixed addresses."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self.sums = {p: torch.zeros_like(p) for p in parameters}
        self.reached: set[Tensor] = set()  # the parameters that a gradient reaches

    def clear(self) -> None:
        torch_private.zero_all(list(self.sums.values()))

    def add(self, parameters: Sequence[Tensor], found: Sequence[Tensor | None]) -> None:
        """Add gradients of some of the parameters."""
        pairs = [(p, g) for p, g in zip(parameters, found, strict=True) if g is not None]
        torch_private.add_all([self.sums[p] for p, _ in pairs], [g for _, g in pairs])
        self.reached.update(p for p, _ in pairs)

    def through(self, field: nn.Module, k: State, y: State, slope_grad: State) -> State:
        """Return the gradient of y from that of the field's slope k at y, and add those of its parameters."""
        parameters = [p for p in field.parameters() if p in self.sums]
        found = torch.autograd.grad(k, (*y, *parameters), slope_grad, allow_unused=True)
        self.add(parameters, found[len(y):])
        return tuple(torch.zeros_like(b) if g is None else g for b, g in zip(y, found[:len(y)], strict=True))


Stage = tuple[State, State]  # its state and slope, each block with its autograd graph if that is kept


@dataclass(frozen=True)
class StageEvaluator:
    """Evaluates and differentiates the stages of steps of size `dt`; the last stage is at the end of the step."""

    tableau: Tableau
    operations: StepOperations
    dt: Tensor

    def evaluate(self, field: nn.Module, times: Tensor, y: State, k1: State, keep_graphs: bool) -> list[Stage]:
        """Evaluate the stages after the first; with `keep_graphs` each has its own graph, from state to slope."""
        stages, ks = list[Stage](), [k1]
        for i, row in enumerate(self.tableau.a, 1):
            yi = self.operations.combine(y, self.dt, row, ks)
            if keep_graphs:
                yi = tuple(b.requires_grad_() for b in yi)
            with torch.set_grad_enabled(keep_graphs):
                k = tuple(field(times[i], yi))
            stages.append((yi, k))
            ks.append(detached(k))
        return stages

    def differentiate(self, field: nn.Module, stages: Sequence[Stage], grad_end: State, grad_ks: Sequence[State | None],
                      sums: GradientSums, out: tuple[State, State]) -> None:
        """Write the gradients of the step's first state and slope to `out`, and add the parameters' to `sums`.

        Args:
            field: the field.
            stages: the stages after the first, with their graphs.
            grad_end: of the state at the end.
            grad_ks: of the slopes after the first; None for zero, except for the last.
            sums: of the parameters that are trained.
            out: may be the tensors of `grad_end` and of the last of `grad_ks`.
        """
        ops, rows = self.operations, self.tableau.a
        stage_grads: list[State] = []  # gradients of the stages' states, the last stage first
        for i in range(len(rows), 0, -1):
            (y, k), slope_grad = stages[i - 1], grad_ks[i - 1]
            column = [row[i] for row in rows[:i - 1:-1]]  # weights of stage i in the later stages
            if any(column):
                slope_grad = ops.combine(slope_grad, self.dt, column, stage_grads)
            assert slope_grad is not None  # every stage has a weight in a later one
            found = sums.through(field, k, y, slope_grad)
            stage_grads.append(ops.combine(grad_end, ops.one, (1.0,), [found]) if i == len(rows) else found)
        ops.combine(None, self.dt, [row[0] for row in reversed(rows)], stage_grads, out=out[1])
        ops.combine(None, ops.one, [1.0] * len(stage_grads), stage_grads, out=out[0])


def detached(y: State) -> State:
    """Return the blocks without their graphs."""
    return tuple(b.detach() for b in y)


def first_same_as_last(tableau: Tableau) -> Tableau:
    """Return the method with the slope at the end of a step as its last stage, added where it is missing."""
    if tableau.fsal:
        return tableau
    error = None if tableau.error is None else (*tableau.error, 0.0)
    return Tableau(tableau.order, (*tableau.c, 1.0), (*tableau.a, tableau.b), (*tableau.b, 0.0), error)


class DeviceSteps:
    """The steps from 0 to 1 of a field, for states of the shapes of `like`: begin, attempt a step, go back over a step.

    The backward pass differentiates a step stage by stage, which gives the exact gradient of the steps that were taken.
    The autograd graphs of the stages are kept from the attempt, or rebuilt from the stored state.
    """

    def __init__(self, like: State, solver: Solver, operations: StepOperations, capacity: int = CAPACITY) -> None:
        self.solver, self.operations = solver, operations
        # called with the number of stages before they are evaluated, and with 0 once they are differentiated
        self.observe: Callable[[int], None] = lambda stages: None
        tableau = self.tableau = first_same_as_last(TABLEAUS[solver.method])
        self.stages = len(tableau.a)
        self.control = (operations.control(tableau.order, solver.max_steps, capacity, tableau.c, like)
                        if tableau.adaptive else
                        FixedStepControl(fixed_grid([0.0, 1.0], solver.step_size, solver.max_steps), tableau.c, like))
        self.evaluator = StageEvaluator(tableau, operations, self.control.dt)
        self.store = StateStore(like, self.control.capacity + 2)  # room for attempts after the last step
        self.forward_row, self.backward_row = self.control.counts[0], self.control.counts[1]
        self.before_first, self.first_row = self.control.counts.new_full((), -1), self.control.counts.new_zeros(())
        self.grad_y, self.grad_k = (tuple(torch.zeros_like(b) for b in like) for _ in range(2))

    @torch.no_grad()
    def begin(self, field: nn.Module, y: State) -> None:
        """Start from y: evaluate the first slope and, for adaptive methods, choose the first step size."""
        ops, control = self.operations, self.control
        y = ops.arrange(y)
        control.start()
        k1 = tuple(field(control.times[0], y))
        self.store.write_after(self.before_first, y, k1)
        if not self.tableau.adaptive:
            return
        control.trial_step(ops.scaled_squares(ops.one, (1.0,), [y], y, y, self.solver),
                           ops.scaled_squares(ops.one, (1.0,), [k1], y, y, self.solver))
        k2 = tuple(field(control.times[0], ops.combine(y, control.dt, (1.0,), [k1])))
        control.first_step(ops.scaled_squares(ops.one, (-1.0, 1.0), [k1, k2], y, y, self.solver))

    def attempt(self, field: nn.Module, keep_graphs: bool = False) -> list[Stage]:
        """Attempt the planned step, without effect if the solve has ended; return its stages."""
        ops, control, error = self.operations, self.control, self.tableau.error
        y, k1 = self.store.read(self.forward_row)
        stages = self._stages(field, y, k1, keep_graphs)
        ks, y1 = [k1, *(detached(k) for _, k in stages)], detached(stages[-1][0])
        self.store.write_after(self.forward_row, y1, ks[-1])
        control.accept_or_reject(ops.scaled_squares(ops.one, (1.0,), [y1], y1, y1, self.solver) if error is None else
                                 ops.scaled_squares(control.dt, error, ks, y, y1, self.solver))
        return stages

    def _stages(self, field: nn.Module, y: State, k1: State, keep_graphs: bool) -> list[Stage]:
        times = self.control.times
        if keep_graphs:
            self.observe(self.stages)
            times = times.clone()
        return self.evaluator.evaluate(field, times, y, k1, keep_graphs)

    def end_state(self) -> State:
        """Return the state after the last accepted step."""
        return self.store.read(self.forward_row)[0]

    def begin_backward(self, grads: Sequence[Tensor | None]) -> None:
        """Start the backward pass from the gradients of the end state's blocks."""
        self.control.begin_backward()
        for total, grad in zip(self.grad_y, grads, strict=True):
            total.zero_() if grad is None else total.copy_(grad)
        torch_private.zero_all(self.grad_k)

    def step_back(self, field: nn.Module, sums: GradientSums, stages: list[Stage] | None = None) -> None:
        """Differentiate the previous step, evaluated again unless its stages are given."""
        self.control.previous_step()
        stages = stages or self._stages(field, *self.store.read(self.backward_row), keep_graphs=True)
        grad_ks = [*[None] * (len(stages) - 1), self.grad_k]
        self.evaluator.differentiate(field, stages, self.grad_y, grad_ks, sums, (self.grad_y, self.grad_k))
        self.observe(0)

    def back_to_start(self, field: nn.Module, sums: GradientSums) -> State:
        """Differentiate the very first stage and return the gradient of the initial state."""
        self.control.times.zero_()
        self.observe(1)
        y = tuple(b.requires_grad_() for b in self.store.read(self.first_row)[0])
        with torch.enable_grad():
            k = tuple(field(self.control.times[0], y))
        found = sums.through(field, k, y, self.grad_k)
        self.observe(0)
        return self.operations.combine(self.grad_y, self.operations.one, (1.0,), [found])

    def evaluations(self, status: SolveStatus, kept: int) -> Evaluations:
        """Return the cost of a solve and its backward pass, where the first `kept` attempts kept their graphs."""
        rebuilt, first = sum(i >= kept for i in status.accepted), 2 if self.tableau.adaptive else 1
        return Evaluations(first + self.stages * status.attempts, 1 + self.stages * rebuilt,
                           status.attempts - len(status.step_sizes), status.step_sizes)


def can_record_adjoint(solver: Solver) -> bool:
    """Return True for adjoint gradients of a fixed-step method that takes few steps from 0 to 1.

    Every stage must have a weight: the parameters' gradients are those of the weighted stages.
    """
    tableau = TABLEAUS.get(solver.method)
    return (solver.gradient == "adjoint" and solver.engine != "reference" and tableau is not None
            and not tableau.adaptive and all(tableau.b) and 1 / (solver.step_size or 1) <= MAX_ADJOINT_STEPS)


class AdjointSteps:
    """Fixed steps of a field, and the adjoint equation backward in as many steps, as torchdiffeq takes them.

    Backward, the state is integrated again from its end, together with its adjoint (Eqs. 7 and 8): dλ/dt = -λ ∂f/∂y,
    and the parameters' gradient is the integral of λ ∂f/∂θ.
    """

    def __init__(self, like: State, solver: Solver, operations: StepOperations) -> None:
        self.tableau, self.operations = TABLEAUS[solver.method], operations
        self.observe: Callable[[int], None] = lambda stages: None  # as of `DeviceSteps`
        self.grid, self.grid_back = (fixed_grid(ends, solver.step_size, solver.max_steps)
                                     for ends in ([0.0, 1.0], [1.0, 0.0]))
        self.rows = ((), *self.tableau.a)
        self.stages = len(self.rows)
        self.times, self.times_back = (  # of all stages, (steps, stages)
            torch.tensor([[t + c * (end - t) for c in (0.0, *self.tableau.c)] for t, end in pairwise(grid)],
                         dtype=like[0].dtype, device=like[0].device) for grid in (self.grid, self.grid_back))

    @torch.no_grad()
    def forward(self, field: nn.Module, y: State) -> State:
        """Return the state at the end."""
        y = self.operations.arrange(y)
        for times, (t, end) in zip(self.times, pairwise(self.grid), strict=True):
            ks: list[State] = []
            for i, row in enumerate(self.rows):
                ks.append(tuple(field(times[i], self._sum(y, end - t, row, ks))))
            y = self._sum(y, end - t, self.tableau.b, ks)
        return y

    @torch.no_grad()
    def backward(self, field: nn.Module, y: State, adjoint: State, sums: GradientSums) -> State:
        """Return the gradient of the initial state from that of the end state y."""
        ops = self.operations
        adjoint = ops.arrange(adjoint)
        for times, (t, end) in zip(self.times_back, pairwise(self.grid_back), strict=True):
            self.observe(self.stages)
            dt = end - t
            ks: list[State] = []
            adjoint_ks: list[State] = []
            for i, row in enumerate(self.rows):
                weight = -dt * self.tableau.b[i]
                stage = tuple(b.detach().requires_grad_() for b in self._sum(y, dt, row, ks))
                scaled = ops.combine(None, ops.one, (weight,), [self._sum(adjoint, dt, row, adjoint_ks)])
                with torch.enable_grad():
                    k = tuple(field(times[i], stage))
                found = sums.through(field, k, stage, scaled)
                ks.append(detached(k))
                adjoint_ks.append(ops.combine(None, ops.one, (-1 / weight,), [found]))
            y, adjoint = self._sum(y, dt, self.tableau.b, ks), self._sum(adjoint, dt, self.tableau.b, adjoint_ks)
            self.observe(0)
        return adjoint

    def _sum(self, y: State, dt: float, weights: Sequence[float], ks: Sequence[State]) -> State:
        """Return y + dt Σ w_i k_i."""
        ops = self.operations
        return ops.combine(y, ops.one, tuple(dt * w for w in weights), ks) if any(weights) else y

    def evaluations(self) -> Evaluations:
        """Return the cost of a solve and its backward pass."""
        sizes = [end - t for t, end in pairwise(self.grid)]
        return Evaluations(self.stages * len(sizes), self.stages * (len(self.grid_back) - 1), 0, sizes)
