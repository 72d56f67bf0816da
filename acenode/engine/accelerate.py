"""Which operations a recorded step is made of: kernels where there is a compiler for them, torch's own elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from acenode.attention import Elementwise
from acenode.engine.operations import Operations
from acenode.models.scan_cuda import ready
from acenode.runge_kutta import State


def compiler(device: torch.device) -> bool:
    """Whether there is a compiler of kernels for a device."""
    return device.type == "cuda" and ready(torch.cuda.current_device() if device.index is None else device.index)


def operations_for(like: State) -> Operations:
    """Kernels for what they were written for: single precision, and two blocks at most."""
    if compiler(like[0].device) and len(like) <= 2 and all(b.dtype == torch.float32 for b in like):
        from acenode.engine.kernels.operations import KernelOperations

        return KernelOperations(like[0].device)
    return Operations(like[0].device)


class Accelerated:
    """The parts of an ODE layer that have kernels, ready for states like `like`.

    A module that can be done by kernels has an attribute `fused`, None but while work is recorded.
    """

    def __init__(self, layer: nn.Module, like: State, stages: int) -> None:
        self.modules: dict[Any, Any] = {}
        self.layers: list[Any] = []
        if not compiler(like[0].device) or like[0].dim() != 4 or like[0].dtype != torch.float32:
            return
        from acenode.engine.kernels.fused import FusedField, FusedPair

        precision = "tf32" if torch.backends.cudnn.allow_tf32 else "tf32x3"  # as torch's own convolutions
        self.modules = {m: FusedField(m, like[0], precision) for m in layer.modules()
                        if hasattr(m, "norms") and hasattr(m, "fused") and FusedField.fits(m, like[0])}
        self.layers = [x for field in self.modules.values() for x in field.layers]
        for x in self.layers:
            x.reserve(stages)
        f, g = (self.modules.get(getattr(layer, name, None)) for name in ("f", "g"))
        elementwise = type(getattr(layer, "attend", None)) is Elementwise
        if f and g and elementwise and not layer.g_reads_attention and FusedPair.fits(f, g):
            self.modules[layer] = FusedPair(f, g)

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
