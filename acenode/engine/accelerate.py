"""Which operations a recorded step is made of: kernels where there is a compiler for them, torch's own elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from acenode.attention import Elementwise
from acenode.engine.operations import Operations
from acenode.runge_kutta import State


def compiler(device: torch.device) -> bool:
    """Whether there is a compiler of kernels for a device."""
    with contextlib.suppress(Exception):
        import triton

        return device.type == "cuda" and bool(triton.__version__)
    return False


def operations_for(like: State) -> Operations:
    """Kernels for what they were written for: single precision, and two blocks at most."""
    if compiler(like[0].device) and len(like) <= 2 and all(b.dtype == torch.float32 for b in like):
        from acenode.engine.kernels.operations import KernelOperations

        return KernelOperations(like[0].device)
    return Operations(like[0].device)


class Accelerated:
    """The parts of an ODE layer that have kernels, ready for states like `like`."""

    def __init__(self, layer: nn.Module, like: State) -> None:
        self.layer: Any = layer
        self.fields: dict[Any, Any] = {}
        self.gate: Elementwise | None = None
        if not compiler(like[0].device) or like[0].dim() != 4 or like[0].dtype != torch.float32:
            return
        from acenode.engine.kernels.fused import FusedElementwise, FusedField

        precision = "tf32" if torch.backends.cudnn.allow_tf32 else "tf32x3"  # as torch's own convolutions
        self.fields = {m: FusedField(m, like[0], precision) for m in layer.modules()
                       if hasattr(m, "fused") and FusedField.fits(m, like[0])}
        if type(getattr(layer, "attend", None)) is Elementwise:
            self.gate = FusedElementwise()

    @contextmanager
    def used(self) -> Iterator[None]:
        """The layer by its kernels, while work is recorded."""
        before = getattr(self.layer, "attend", None)
        for module, fused in self.fields.items():
            module.fused = fused
        if self.gate is not None:
            self.layer.attend = self.gate
        try:
            yield
        finally:
            for module in self.fields:
                module.fused = None
            if self.gate is not None:
                self.layer.attend = before

    def refresh(self) -> None:
        """At the beginning of a pass: read the parameters, forget the gradients."""
        for field in self.fields.values():
            for layer in field.layers:
                layer.refresh()

    def gradients(self) -> dict[nn.Parameter, Tensor]:
        """At its end: the gradients of the parameters that the kernels have for themselves."""
        return {p: grad for field in self.fields.values() for layer in field.layers if layer.trains
                for p, grad in layer.gradients().items()}
