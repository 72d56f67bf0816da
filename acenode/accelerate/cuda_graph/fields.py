"""Choose what a recorded step is made of: our Triton kernels, or torch's own operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from acenode.accelerate.cuda_graph.step_control import StepOperations
from acenode.accelerate.dispatch import TimeConvField
from acenode.accelerate.triton_support import kernels_available
from acenode.attention import Elementwise
from acenode.backend import Backend
from acenode.node import CoEvolving
from acenode.ode.runge_kutta import State


def step_operations(like: State, kernels: bool, backend: Backend) -> StepOperations:
    """Return kernels where they are wanted and support the state: float32, at most two blocks."""
    if (kernels and len(like) <= 2 and all(b.dtype == torch.float32 for b in like)
            and kernels_available(backend, like[0].device)):
        from acenode.accelerate.cuda_graph.step_kernels import KernelStepOperations

        return KernelStepOperations(like[0].device)
    return StepOperations(like[0].device)


class KernelModule(nn.Module):
    """A module computed by another implementation; it still has the module's parameters."""

    def __init__(self, module: nn.Module, implementation: Callable[..., Any]) -> None:
        super().__init__()
        self.module, self.implementation = module, implementation

    def forward(self, *args: Any) -> Any:
        return self.implementation(*args)


class LayerKernels:
    """The fields f and g of an ODE layer by kernels, where they support states of the shapes of `like`.

    Up to `stages` evaluations are differentiated together.
    """

    def __init__(self, layer: nn.Module, like: State, stages: int, kernels: bool, backend: Backend) -> None:
        self.fused: dict[str, Any] = {}  # by name, f or g
        self.modules = {name: field for name, field in layer.named_children()
                        if name in ("f", "g") and isinstance(field, TimeConvField)}
        self.pair: Any = None  # f and g together
        self.layers: list[Any] = []
        self.fields_by = "torch"  # what computes the fields
        h = like[0]
        if not kernels or h.dim() != 4 or h.dtype != torch.float32 or not kernels_available(backend, h.device):
            return
        from acenode.accelerate.cuda_graph.field_kernels import FusedField

        precision = "tf32" if torch.backends.cudnn.allow_tf32 else "tf32x3"  # as torch's own convolutions
        self.fused = {name: FusedField.of(field, h, precision, stages) for name, field in self.modules.items()
                      if FusedField.supports(field, h)}
        self.layers = [x for field in self.fused.values() for layers in field.networks for x in layers]
        first = {(layers[0].shape, layers[0].eps) for fused in self.fused.values() for layers in fused.networks}
        if (len(self.fused) == 2 and type(getattr(layer, "attend", None)) is Elementwise and not layer.g_reads_attention
                and len(first) == 1):  # one kernel for both
            self.pair = FusedField([layers for field in self.fused.values() for layers in field.networks])
        if self.modules and len(self.fused) == len(self.modules):
            self.fields_by = "Triton"

    def substitute(self, field: nn.Module) -> nn.Module:
        """Return the layer's joint field, as `system` made it, computed by kernels."""
        if self.pair is not None and isinstance(field, CoEvolving):
            return KernelModule(field, lambda t, state: self.pair.of_attended(t, *state, field.detach_attention))
        for name, fused in self.fused.items():
            if getattr(field, name, None) is self.modules[name]:  # not wrapped in something else
                setattr(field, name, KernelModule(self.modules[name], fused))
        return field

    def load_parameters(self) -> None:
        """Read the parameters and clear the gradients, at the beginning of a pass."""
        for layer in self.layers:
            layer.load_parameters()

    def observe(self, stages: int) -> None:
        """Prepare for `stages` evaluations that are differentiated together; with 0 add up their weight gradients."""
        for layer in self.layers:
            layer.begin_step(stages) if stages else layer.end_step()

    def gradients(self) -> dict[nn.Parameter, Tensor]:
        """Return the parameter gradients that the kernels added up, at the end of a pass."""
        return {p: grad for layer in self.layers if layer.trains for p, grad in layer.gradients().items()}
