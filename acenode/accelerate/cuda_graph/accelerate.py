"""Which operations a recorded step is made of: kernels of ours where there is a compiler and they are made for it, else
what torch compiles, else torch's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from acenode.accelerate.cuda_graph.compiled import CompiledField
from acenode.accelerate.cuda_graph.operations import Operations
from acenode.accelerate.kernel_check import kernels_available, runs
from acenode.attention import Elementwise
from acenode.backend import ACCELERATED, Backend
from acenode.ode.runge_kutta import State


def compiler(device: torch.device, backend: Backend = ACCELERATED) -> bool:
    """Whether there is a compiler of kernels for a device."""
    return device.type == "cuda" and kernels_available(
        backend, torch.cuda.current_device() if device.index is None else device.index)


def operations_for(like: State, kernels: bool, backend: Backend = ACCELERATED) -> Operations:
    """Kernels, where they are wanted, for what they were written for: single precision, and two blocks at most."""
    if (kernels and compiler(like[0].device, backend) and len(like) <= 2
            and all(b.dtype == torch.float32 for b in like)):
        from acenode.accelerate.cuda_graph.kernels.operations import KernelOperations

        return KernelOperations(like[0].device)
    return Operations(like[0].device)


def _compiled(fields: list[Any], like: Tensor, backend: Backend) -> dict[Any, CompiledField]:
    """Those of them that torch compiles."""
    made = {m: CompiledField(m, like) for m in fields}
    return {m: field for m, field in made.items()
            if runs(backend, ("torch.compile", like.device.index, like.shape), partial(field.attempt, like),
                    "fields compiled by torch")}


class Accelerated:
    """The parts of an ODE layer that have kernels, ready for states like `like`.

    A module that can be done by kernels has an attribute `fused`, None but while work is recorded.
    """

    def __init__(self, layer: nn.Module, like: State, stages: int, kernels: bool, compiles: bool,
                 backend: Backend = ACCELERATED) -> None:
        self.modules: dict[Any, Any] = {}
        self.layers: list[Any] = []
        self.fields = [m for m in layer.modules() if hasattr(m, "norms") and hasattr(m, "fused")]
        if not (kernels and compiler(like[0].device, backend)) or like[0].dim() != 4 or like[0].dtype != torch.float32:
            return
        from acenode.accelerate.cuda_graph.kernels.fused import FusedField, FusedPair

        precision = "tf32" if torch.backends.cudnn.allow_tf32 else "tf32x3"  # as torch's own convolutions
        fused: dict[Any, FusedField] = {m: FusedField(m, like[0], precision) for m in self.fields
                                        if FusedField.fits(m, like[0])}
        self.layers = [x for field in fused.values() for x in field.layers]
        for x in self.layers:
            x.reserve(stages)
        self.modules |= fused
        if compiles:
            self.modules |= _compiled([m for m in self.fields if m not in fused], like[0], backend)
        f, g = (fused.get(getattr(layer, name, None)) for name in ("f", "g"))
        elementwise = type(getattr(layer, "attend", None)) is Elementwise
        if f and g and elementwise and not layer.g_reads_attention and FusedPair.fits(f, g):
            self.modules[layer] = FusedPair(f, g)

    @property
    def fields_by(self) -> str:
        """What the fields are made of, in words."""
        if not self.fields or any(m not in self.modules for m in self.fields):
            return "torch"
        return "torch.compile" if any(isinstance(x, CompiledField) for x in self.modules.values()) else "Triton"

    @contextmanager
    def used(self) -> Iterator[None]:
        """The modules by their kernels, while work is recorded."""
        for module, fused in self.modules.items():
            module.fused = fused
        try:
            yield
        finally:
            for module in self.modules:
                module.fused = None

    def refresh(self) -> None:
        """At the beginning of a pass: read the parameters, forget the gradients."""
        for layer in self.layers:
            layer.refresh()

    def begin(self, stages: int) -> None:
        """So many evaluations are remembered together."""
        for layer in self.layers:
            layer.begin(stages)

    def end(self) -> None:
        """They have been gone back over."""
        for layer in self.layers:
            layer.end()

    def gradients(self) -> dict[nn.Parameter, Tensor]:
        """At the end of a pass: the gradients of the parameters that the kernels have for themselves."""
        return {p: grad for layer in self.layers if layer.trains for p, grad in layer.gradients().items()}
