"""Runge–Kutta steps whose size and time are on the device: begin, attempt a step, go back over a step.

Each is a fixed sequence of operations on tensors of fixed address, so it is recorded once and replayed for every step.
The backward pass differentiates a step stage by stage, which gives the exact gradient of the steps that were taken. The
autograd graphs of the stages are kept from the attempt, or rebuilt from the stored state, with the memory of one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from acenode.accelerate.cuda_graph.fixed_step_control import FixedStepControl
from acenode.accelerate.cuda_graph.stages import AddGradients, StageEvaluator, StageGraphs, detached, state_gradient
from acenode.accelerate.cuda_graph.step_control import SolveSpan, SolveStatus, StepControl
from acenode.accelerate.cuda_graph.step_operations import StepOperations
from acenode.device import torch_private
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import Evaluations, State
from acenode.ode.stepping import fixed_grid
from acenode.ode.tableaus import TABLEAUS, Tableau

CAPACITY = 32  # accepted steps that are stored


def first_same_as_last(tableau: Tableau) -> Tableau:
    """Return the method with the slope at the end of a step as its last stage, added where it is missing."""
    if tableau.fsal:
        return tableau
    error = None if tableau.error is None else (*tableau.error, 0.0)
    return Tableau(tableau.order, (*tableau.c, 1.0), (*tableau.a, tableau.b), (*tableau.b, 0.0), error)


class StageObserver(Protocol):
    """Notified before and after the stages of a step, whose evaluations are differentiated together."""

    def begin_step(self, stages: int) -> None: ...
    def end_step(self) -> None: ...


class DeviceSteps:
    """The steps of a solve of a field, for states of the shapes of `like`."""

    def __init__(self, like: State, span: tuple[float, float], solver: Solver, operations: StepOperations,
                 capacity: int = CAPACITY, observer: StageObserver | None = None) -> None:
        self.like, self.solver, self.operations, self.observer = like, solver, operations, observer
        self.tableau = first_same_as_last(TABLEAUS[solver.method])
        self.control = self._control(span, capacity)
        self.span = self.control.span
        self.evaluator = StageEvaluator(self.tableau, operations, self.control.dt, self.control.one)
        self.store = operations.state_store(like, self.span.capacity + 2)  # room for attempts after the last step
        self.forward_row, self.backward_row = self.control.counts[0], self.control.counts[1]
        self.before_first, self.first_row = self.control.counts.new_full((), -1), self.control.counts.new_zeros(())
        self.grad_y = tuple(torch.zeros_like(b) for b in like)
        self.grad_k = tuple(torch.zeros_like(b) for b in like)

    def _control(self, span: tuple[float, float], capacity: int) -> StepControl:
        """Return an adaptive control with room for `capacity` steps, or a control of the steps of a grid."""
        tableau, solver, like = self.tableau, self.solver, self.like
        if tableau.adaptive:
            limits = SolveSpan(*span, tableau.order, solver.max_steps, capacity)
            return self.operations.step_control(limits, tableau.c, like)
        return FixedStepControl(fixed_grid(list(span), solver.step_size, solver.max_steps), tableau.c,
                                tuple(b.numel() for b in like), like[0].dtype, like[0].device)

    @staticmethod
    def stages(solver: Solver) -> int:
        """Return the number of evaluations in a step."""
        return len(first_same_as_last(TABLEAUS[solver.method]).a)

    # Forward ------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def begin(self, field: nn.Module, y: State) -> None:
        """Start from y: evaluate the first slope and, for adaptive methods, choose the first step size."""
        ops, control, rtol, atol = self.operations, self.control, self.solver.rtol, self.solver.atol
        y = ops.arrange(y)
        control.start()
        k1 = tuple(field(control.times[0], y))
        self.store.write_after(self.before_first, y, k1)
        if not self.tableau.adaptive:
            return
        control.trial_step(ops.scaled_squares(control.one, (1.0,), [y], y, y, rtol, atol),
                           ops.scaled_squares(control.one, (1.0,), [k1], y, y, rtol, atol))
        k2 = tuple(field(control.times[0], ops.combine(y, control.dt, (1.0,), [k1])))
        control.first_step(ops.scaled_squares(control.one, (-1.0, 1.0), [k1, k2], y, y, rtol, atol))

    def attempt(self, field: nn.Module, keep_graphs: bool = False) -> StageGraphs | None:
        """Attempt the planned step; without effect if the solve has ended. Return its graphs if they are kept."""
        ops, control, error = self.operations, self.control, self.tableau.error
        rtol, atol = self.solver.rtol, self.solver.atol
        y, k1 = self.store.read(self.forward_row)
        graphs = self._stages(field, y, k1, keep_graphs)
        ks, y1 = [k1, *map(detached, graphs.slopes)], graphs.end
        self.store.write_after(self.forward_row, y1, ks[-1])
        control.accept_or_reject(ops.scaled_squares(control.one, (1.0,), [y1], y1, y1, 1.0, 1.0) if error is None else
                                 ops.scaled_squares(control.dt, error, ks, y, y1, rtol, atol))
        return graphs if keep_graphs else None

    def _stages(self, field: nn.Module, y: State, k1: State, keep_graphs: bool) -> StageGraphs:
        times = self.control.times
        if keep_graphs:
            self._observe(len(self.tableau.a))
            times = times.clone()
        return self.evaluator.evaluate(field, times, y, k1, keep_graphs)

    def end_state(self) -> State:
        """Return the state after the last accepted step."""
        return self.store.read(self.forward_row)[0]

    # Backward -----------------------------------------------------------------------------------------------------

    def begin_backward(self, grads: Sequence[Tensor | None]) -> None:
        """Start the backward pass from the gradients of the end state's blocks."""
        self.control.begin_backward()
        for total, grad in zip(self.grad_y, grads, strict=True):
            total.zero_() if grad is None else total.copy_(grad)
        torch_private.zero_all(self.grad_k)

    def step_back(self, field: nn.Module, parameters: Sequence[nn.Parameter], add: AddGradients,
                  graphs: StageGraphs | None = None) -> None:
        """Differentiate the previous step, evaluated again unless `graphs` are given.

        The parameters' gradients are passed to `add`.
        """
        self.control.previous_step()
        graphs = graphs or self._stages(field, *self.store.read(self.backward_row), keep_graphs=True)
        grad_ks = [*[None] * (len(graphs.slopes) - 1), self.grad_k]
        self.evaluator.differentiate(graphs, self.grad_y, grad_ks, parameters, add, (self.grad_y, self.grad_k))
        self._observe(0)

    def back_to_start(self, field: nn.Module, parameters: Sequence[nn.Parameter], add: AddGradients) -> State:
        """Differentiate the very first stage and return the gradient of the initial state."""
        self.control.rewind_times()
        self._observe(1)
        y = tuple(b.requires_grad_() for b in self.store.read(self.first_row)[0])
        with torch.enable_grad():
            k = tuple(field(self.control.times[0], y))
        found = state_gradient(k, y, self.grad_k, parameters, add)
        self._observe(0)
        return self.operations.combine(self.grad_y, self.control.one, (1.0,), [found])

    def _observe(self, stages: int) -> None:
        if self.observer is not None:
            self.observer.begin_step(stages) if stages else self.observer.end_step()

    # On the host --------------------------------------------------------------------------------------------------

    def evaluations(self, status: SolveStatus, kept: int) -> Evaluations:
        """Return the cost of a solve and its backward pass, where the first `kept` attempts kept their graphs."""
        stages, rebuilt = len(self.tableau.a), sum(i >= kept for i in status.accepted)
        first = 2 if self.tableau.adaptive else 1
        return Evaluations(first + stages * status.attempts, 1 + stages * rebuilt,
                           status.attempts - len(status.step_sizes), status.step_sizes)
