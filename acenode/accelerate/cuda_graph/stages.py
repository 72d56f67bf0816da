"""The stages of a Runge–Kutta step on the device, and their gradients, one stage after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from acenode.accelerate.cuda_graph.step_operations import StepOperations
from acenode.ode.runge_kutta import State
from acenode.ode.tableaus import Tableau

AddGradients = Callable[[Sequence[Tensor | None]], None]  # takes a stage's gradients of the parameters


@dataclass(frozen=True)
class StageGraphs:
    """The states and slopes of a step's stages, from the second stage on, each with its autograd graph."""

    inputs: list[State]
    slopes: list[State]

    @property
    def end(self) -> State:
        """The state at the end of a step whose last stage is there."""
        return detached(self.inputs[-1])


@dataclass(frozen=True)
class StageEvaluator:
    """Evaluates and differentiates the stages of steps; the last stage is at the end of the step.

    `dt` and `one`, which is 1, are scalars in double precision on the device.
    """

    tableau: Tableau
    operations: StepOperations
    dt: Tensor
    one: Tensor

    def evaluate(self, field: nn.Module, times: Tensor, y: State, k1: State, keep_graphs: bool) -> StageGraphs:
        """Evaluate the stages after the first; with `keep_graphs` each has its own graph, from state to slope."""
        graphs, ks = StageGraphs([], []), [k1]
        for i, row in enumerate(self.tableau.a, 1):
            yi = self.operations.combine(y, self.dt, row, ks)
            if keep_graphs:
                yi = tuple(b.requires_grad_() for b in yi)
            with torch.set_grad_enabled(keep_graphs):
                k = tuple(field(times[i], yi))
            graphs.inputs.append(yi)
            graphs.slopes.append(k)
            ks.append(detached(k))
        return graphs

    def differentiate(self, graphs: StageGraphs, grad_end: State, grad_ks: Sequence[State | None],
                      parameters: Sequence[Tensor], add: AddGradients, out: tuple[State, State]) -> None:
        """Write the gradients of the step's first state and slope to `out`, and pass the parameters' to `add`.

        Args:
            graphs: the stages, with their graphs.
            grad_end: of the state at the end.
            grad_ks: of the slopes after the first; None for zero, except for the last.
            parameters: those that are trained.
            add: called once for each stage that has a gradient.
            out: may be the tensors of `grad_end` and of the last of `grad_ks`.
        """
        ops, rows = self.operations, self.tableau.a
        stage_grads: list[State] = []  # gradients of the stages' states, the last stage first
        for i in range(len(rows), 0, -1):
            y, k, slope_grad = graphs.inputs[i - 1], graphs.slopes[i - 1], grad_ks[i - 1]
            if i == len(rows):
                assert slope_grad is not None
                found = state_gradient(k, y, slope_grad, parameters, add)
                stage_grads.append(ops.combine(grad_end, self.one, (1.0,), [found]))
                continue
            column = [row[i] for row in rows[:i - 1:-1]]  # weights of stage i in the later stages
            if any(column):
                slope_grad = ops.combine(slope_grad, self.dt, column, stage_grads)
            if slope_grad is None:
                stage_grads.append(tuple(torch.zeros_like(b) for b in y))
            else:
                stage_grads.append(state_gradient(k, y, slope_grad, parameters, add))
        ops.combine(None, self.dt, [row[0] for row in reversed(rows)], stage_grads, out=out[1])
        ops.combine(None, self.one, [1.0] * len(stage_grads), stage_grads, out=out[0])


def detached(y: State) -> State:
    """Return the blocks without their graphs."""
    return tuple(b.detach() for b in y)


def state_gradient(k: State, y: State, slope_grad: State, parameters: Sequence[Tensor], add: AddGradients) -> State:
    """Return the gradient of y from that of the slope k; pass the parameters' gradients to `add`."""
    found = torch.autograd.grad(k, (*y, *parameters), slope_grad, allow_unused=True)
    add(found[len(y):])
    return tuple(torch.zeros_like(b) if g is None else g for b, g in zip(y, found[:len(y)], strict=True))
