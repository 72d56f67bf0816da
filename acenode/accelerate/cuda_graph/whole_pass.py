"""Passes of which every operation is known beforehand, recorded as one CUDA graph.

    StackPass    residual blocks instead of an ODE layer, differentiated by autograd
    AdjointPass  an ODE layer with fixed steps and the adjoint equation, such as RKNet's one step of rk4
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from acenode.accelerate.cuda_graph.adjoint_steps import AdjointSteps
from acenode.accelerate.cuda_graph.layer_kernels import LayerKernels, step_operations
from acenode.accelerate.cuda_graph.recorder import Replay
from acenode.accelerate.cuda_graph.recording import Recording
from acenode.ode.runge_kutta import Evaluations
from acenode.training.passes import PassResult


class WholePass(Recording):
    """A pass in one recording. A kind of it defines `differentiate`."""

    def differentiate(self) -> None:
        """Compute the loss of the batch, and add up the gradients."""
        raise NotImplementedError

    def evaluations(self) -> Evaluations:
        return Evaluations()

    def warm_up(self) -> None:
        self._pass()

    def record(self) -> list[Replay]:
        self.replay = self.recorder.record(self._pass)
        return [self.replay]

    def _pass(self) -> None:
        self.clear_gradients()
        self.differentiate()
        self.update_parameters()

    def begin(self, batch: tuple[Tensor, ...]) -> None:
        self.load(batch)
        self.replay()

    def end(self) -> PassResult:
        return self.result(self.evaluations())


class StackPass(WholePass):
    """A pass of a model without an ODE."""

    summary = "as one graph, layers by torch"

    def differentiate(self) -> None:
        loss = self.task.loss(self.batch, detach_attention=self.spec.detach_attention)
        total = self.set_loss(loss.task, loss.metrics)
        self.add(self.spec.trained, torch.autograd.grad(total, self.spec.trained, allow_unused=True))


class AdjointPass(WholePass):
    """A pass of an ODE layer with fixed steps and adjoint gradients."""

    @property
    def summary(self) -> str:
        return f"as one graph, steps by {self.steps.operations.name}, fields by {self.layer_kernels.fields_by}"

    def allocate(self) -> None:
        layer: Any = self.task.layer
        _, state = layer.system(self.task.encode(self.batch), self.spec.detach_attention)
        operations = step_operations(state, self.kernels, self.backend)
        like = operations.arrange(tuple(b.detach() for b in state))
        stages = AdjointSteps(like, (0.0, 1.0), layer.solver, operations).stages
        self.layer_kernels = LayerKernels(layer, like, stages, self.kernels, self.compiles, self.backend)
        self.steps = AdjointSteps(like, (0.0, 1.0), layer.solver, operations, self.layer_kernels)

    def differentiate(self) -> None:
        layer: Any = self.task.layer
        self.layer_kernels.load_parameters()
        field, state = layer.system(self.task.encode(self.batch), self.spec.detach_attention)
        field = self.layer_kernels.substitute(field)
        of_field = [p for p in field.parameters() if p in self.grads]
        end = tuple(b.requires_grad_() for b in self.steps.forward(field, tuple(b.detach() for b in state)))
        total = self.set_loss(*self.task.read_out(end[0], self.batch))
        found = torch.autograd.grad(total, (*end, *self.spec.trained), allow_unused=True)
        self.add(self.spec.trained, found[len(end):])
        adjoint = tuple(torch.zeros_like(b) if g is None else g for b, g in zip(end, found, strict=False))
        start = self.steps.backward(field, tuple(b.detach() for b in end), adjoint, of_field,
                                    lambda gradients: self.add(of_field, gradients))
        self.add_from_start(state, start)
        self.add_of_kernels(self.layer_kernels)

    def evaluations(self) -> Evaluations:
        return self.steps.evaluations()
