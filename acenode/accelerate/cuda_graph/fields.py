"""Choose what a recorded step is made of: our Triton kernels, fields compiled by torch, or torch's own operations."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.accelerate.cuda_graph.step_control import StepOperations
from acenode.accelerate.dispatch import TimeConvField
from acenode.accelerate.triton_support import kernel_works, kernels_available
from acenode.attention import Elementwise
from acenode.backend import Backend
from acenode.device import torch_private
from acenode.node import CoEvolving
from acenode.ode.runge_kutta import State

VARIANTS = 64  # combinations of shapes, layouts and trained parameters that torch compiles at most


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
    """Other implementations of the fields f and g of an ODE layer, for states of the shapes of `like`."""

    def __init__(self, layer: nn.Module, like: State, stages: int, kernels: bool, compiles: bool,
                 backend: Backend) -> None:
        self.implementations: dict[nn.Module, Any] = {}  # by field
        self.pair: Any = None  # f and g together
        self.layers: list[Any] = []
        self.fields_by = "torch"  # what computes the fields
        h, f, g = like[0], getattr(layer, "f", None), getattr(layer, "g", None)
        fields: list[Any] = [field for field in (f, g) if isinstance(field, TimeConvField)]
        if not kernels or h.dim() != 4 or h.dtype != torch.float32 or not kernels_available(backend, h.device):
            return
        from acenode.accelerate.cuda_graph.field_kernels import FusedField

        precision = "tf32" if torch.backends.cudnn.allow_tf32 else "tf32x3"  # as torch's own convolutions
        fused: dict[Any, FusedField] = {field: FusedField.of(field, h, precision) for field in fields
                                        if FusedField.supports(field, h)}
        self.layers = [x for field in fused.values() for layers in field.networks for x in layers]
        for x in self.layers:
            x.reserve(stages)
        self.implementations |= fused
        for field in fields if compiles else ():
            compiled = CompiledField(field, h)
            if field not in fused and kernel_works(backend, ("torch.compile", h.device.index, h.shape),
                                                   partial(compiled.attempt, h), "fields compiled by torch"):
                self.implementations[field] = compiled
        fused_f, fused_g = fused.get(f), fused.get(g)
        if (fused_f and fused_g and type(getattr(layer, "attend", None)) is Elementwise
                and not layer.g_reads_attention and FusedField.can_pair(fused_f, fused_g)):
            self.pair = FusedField(fused_f.networks + fused_g.networks)
        if fields and all(field in self.implementations for field in fields):
            self.fields_by = "Triton" if len(fused) == len(fields) else "torch.compile"

    def substitute(self, field: nn.Module) -> nn.Module:
        """Return the layer's joint field, as `system` made it, computed by these implementations."""
        if self.pair is not None and isinstance(field, CoEvolving):
            return KernelModule(field, lambda t, state: self.pair.of_attended(t, *state, field.detach_attention))
        for name in ("f", "g"):
            module = getattr(field, name, None)
            if module in self.implementations:
                setattr(field, name, KernelModule(module, self.implementations[module]))
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


class CompiledField:
    """f or g compiled by torch.compile for maps of the shape of `like`, where our own kernels do not support them.

    Norms, ReLUs and the time terms become a few kernels around the library's convolutions. The parameters are arguments
    of the compiled function, so that a process compiles once for all runs of the same shapes.
    """

    def __init__(self, field: TimeConvField, like: Tensor) -> None:
        norms, convs = field.time_conv_layers()
        self.norms = [(norm.weight, norm.bias) for norm in norms]
        self.shapes = [(norm.num_groups, norm.eps) for norm in norms]
        self.convs = [(conv.weight, conv.time, conv.bias) for conv in convs]
        self.inside = F.unfold(like.new_ones(1, 1, *like.shape[-2:]), 3, padding=1)[0]  # (9, H·W)

    def __call__(self, h: Tensor, t: Tensor) -> Tensor:
        with torch_private.recompile_limit(VARIANTS):
            return _compiled()(h, t, self.inside, self.norms, self.shapes, self.convs)

    def attempt(self, like: Tensor) -> None:
        """Compile and run the forward and the backward pass once."""
        with torch.enable_grad():
            h = torch.zeros_like(like).requires_grad_()
            torch.autograd.grad(self(h, h.new_zeros(())).sum(), h)


@cache
def _compiled() -> Callable[..., Tensor]:
    return torch.compile(field_function, dynamic=False)


def field_function(h: Tensor, t: Tensor, inside: Tensor, norms: list[tuple[Tensor, Tensor]],
                   shapes: list[tuple[int, float]], convs: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """Compute `ConvField` of `models.image` as a function of its parameters."""
    for (scale, shift), (groups, eps), (weight, time, bias) in zip(norms, shapes, convs, strict=False):
        time_term = bias.view(-1, 1) + t * (time.view(-1, 9) @ inside)
        u = F.relu(F.group_norm(h, groups, scale, shift, eps))
        h = F.conv2d(u, weight, padding=1) + time_term.view(-1, *h.shape[-2:])
    return F.group_norm(h, shapes[-1][0], *norms[-1], shapes[-1][1])
