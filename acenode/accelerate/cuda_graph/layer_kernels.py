"""Choose what a recorded step is made of: our Triton kernels, fields compiled by torch, or torch's own operations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from acenode.accelerate.cuda_graph.compiled_field import CompiledField
from acenode.accelerate.cuda_graph.step_operations import StepOperations
from acenode.accelerate.triton_support import kernel_works, kernels_available
from acenode.attention import Elementwise
from acenode.backend import ACCELERATED, Backend
from acenode.models.image.layers import ConvField
from acenode.node import CoEvolving
from acenode.ode.runge_kutta import State


def triton_runs(device: torch.device, backend: Backend = ACCELERATED) -> bool:
    """Return True if Triton kernels compile and run on the device."""
    return kernels_available(backend, device)


def step_operations(like: State, kernels: bool, backend: Backend = ACCELERATED) -> StepOperations:
    """Return kernels where they are wanted and support the state: float32, at most two blocks."""
    if (kernels and triton_runs(like[0].device, backend) and len(like) <= 2
            and all(b.dtype == torch.float32 for b in like)):
        from acenode.accelerate.cuda_graph.kernels.step_operations import KernelStepOperations

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
    """Other implementations of the fields f and g of an ODE layer, for states of the shapes of `like`."""

    def __init__(self, layer: nn.Module, like: State, stages: int, kernels: bool, compiles: bool,
                 backend: Backend = ACCELERATED) -> None:
        self.implementations: dict[nn.Module, Any] = {}  # by field
        self.pair: Any = None  # f and g together
        self.layers: list[Any] = []
        f, g = getattr(layer, "f", None), getattr(layer, "g", None)
        self.fields = [field for field in (f, g) if isinstance(field, ConvField)]
        if (not (kernels and triton_runs(like[0].device, backend)) or like[0].dim() != 4
                or like[0].dtype != torch.float32):
            return
        from acenode.accelerate.cuda_graph.kernels.fused_field import FusedField, FusedPair

        precision = "tf32" if torch.backends.cudnn.allow_tf32 else "tf32x3"  # as torch's own convolutions
        fused: dict[Any, FusedField] = {field: FusedField(field, like[0], precision) for field in self.fields
                                        if FusedField.supports(field, like[0])}
        self.layers = [x for field in fused.values() for x in field.layers]
        for x in self.layers:
            x.reserve(stages)
        self.implementations |= fused
        if compiles:
            self.implementations |= _compiled([field for field in self.fields if field not in fused], like[0], backend)
        fused_f, fused_g = fused.get(f), fused.get(g)
        elementwise = type(getattr(layer, "attend", None)) is Elementwise
        if (fused_f and fused_g and elementwise and not layer.g_reads_attention
                and FusedPair.supports(fused_f, fused_g)):
            self.pair = FusedPair(fused_f, fused_g)

    @property
    def fields_by(self) -> str:
        """The name of what computes the fields."""
        if not self.fields or any(field not in self.implementations for field in self.fields):
            return "torch"
        compiled = any(isinstance(x, CompiledField) for x in self.implementations.values())
        return "torch.compile" if compiled else "Triton"

    def substitute(self, field: nn.Module) -> nn.Module:
        """Return the layer's joint field, as `system` made it, computed by these implementations."""
        if self.pair is not None and isinstance(field, CoEvolving):
            return KernelModule(field, lambda t, state: self.pair(t, *state, field.detach_attention))
        for name in ("f", "g"):
            module = getattr(field, name, None)
            if module in self.implementations:
                setattr(field, name, KernelModule(module, self.implementations[module]))
        return field

    def load_parameters(self) -> None:
        """Read the parameters and clear the gradients, at the beginning of a pass."""
        for layer in self.layers:
            layer.load_parameters()

    def begin_step(self, stages: int) -> None:
        """Prepare for `stages` evaluations that are differentiated together."""
        for layer in self.layers:
            layer.begin_step(stages)

    def end_step(self) -> None:
        """Add up the weight gradients of the evaluations that were differentiated."""
        for layer in self.layers:
            layer.end_step()

    def gradients(self) -> dict[nn.Parameter, Tensor]:
        """Return the parameter gradients that the kernels added up, at the end of a pass."""
        return {p: grad for layer in self.layers if layer.trains for p, grad in layer.gradients().items()}


def _compiled(fields: list[Any], like: Tensor, backend: Backend) -> dict[Any, CompiledField]:
    """Return those of the fields that torch can compile."""
    made = {field: CompiledField(field, like) for field in fields}
    return {field: compiled for field, compiled in made.items()
            if kernel_works(backend, ("torch.compile", like.device.index, like.shape), partial(compiled.attempt, like),
                            "fields compiled by torch")}
