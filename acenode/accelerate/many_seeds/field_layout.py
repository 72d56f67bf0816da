"""The parameters of the convolutional fields f and g of several seeds, as the C kernel reads and returns them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.models.image.fields import ConvField

MAX_CONVS = 4


class CField(ctypes.Structure):
    """The struct `Field` of `kernel/field.h`."""

    _fields_ = [("convs", ctypes.c_int64), ("trains", ctypes.c_int64), ("width", ctypes.c_int64 * (MAX_CONVS + 1)),
                ("groups", ctypes.c_int64 * (MAX_CONVS + 1)), ("eps", ctypes.c_double * (MAX_CONVS + 1))]


class FieldLayout:
    """One field of every seed: sizes, and how its parameters and their gradients are packed into rows.

    Args:
        fields: of one architecture, one a seed.
        height: of the feature map.
        side: width of the feature map.
    """

    def __init__(self, fields: Sequence[Any], height: int, side: int) -> None:
        self.fields, self.P = list(fields), height * side
        self.norms, self.convs = len(fields[0].norms), len(fields[0].convs)
        self.width = [norm.num_channels for norm in fields[0].norms]
        self.inside = F.unfold(torch.ones(1, 1, height, side), 3, padding=1)[0]  # (9, P), the taps inside the image
        self.kept = sum(2 * w for w in self.width) + sum(self.P * w for w in self.width[1:])
        self.gradient_sizes = [n for i, w in enumerate(self.width) for n in
                               ((w, w) if i == self.convs else
                                (w, w, 9 * w * self.width[i + 1], self.P * self.width[i + 1],
                                 self.P * self.width[i + 1]))]

    @staticmethod
    def supports(field: Any, lanes: int) -> bool:
        """Return True for a field in single precision whose maps have equal widths, a whole number of vectors."""
        if not isinstance(field, ConvField) or len(field.convs) > MAX_CONVS:
            return False
        widths = {len(p) for norm in field.norms for p in norm.parameters()}
        return (len(widths) == 1 and all(width % lanes == 0 for width in widths)
                and all(p.dtype == torch.float32 and p.device.type == "cpu" for p in field.parameters()))

    @property
    def trains(self) -> bool:
        return any(p.requires_grad for p in self.fields[0].parameters())

    @property
    def gradient_size(self) -> int:
        return sum(self.gradient_sizes)

    def to_c(self) -> CField:
        c = CField(convs=self.convs, trains=int(self.trains))
        for i, norm in enumerate(self.fields[0].norms):
            c.width[i], c.groups[i], c.eps[i] = norm.num_channels, norm.num_groups, norm.eps
        return c

    def parameters(self) -> list[list[nn.Parameter]]:
        """Return the parameters of every seed, layer by layer."""
        return [[p for i, norm in enumerate(field.norms) for p in
                 (norm.weight, norm.bias, *((field.convs[i].weight, field.convs[i].time, field.convs[i].bias)
                                            if i < self.convs else ()))] for field in self.fields]

    @torch.no_grad()
    def pack(self) -> list[Tensor]:
        """Return the parameters in the order of `walk_parameters` of the kernel, each (S, numbers)."""
        rows = iter([torch.stack(each) for each in zip(*self.parameters(), strict=True)])
        packed: list[Tensor] = []
        for i in range(self.norms):
            packed += [next(rows), next(rows)]
            if i < self.convs:
                weight, time, bias = next(rows), next(rows), next(rows)
                share = (time.flatten(2) @ self.inside).transpose(1, 2)  # (S, P, outputs)
                packed += [weight.permute(0, 3, 4, 2, 1).flatten(1),
                           weight.flip(3, 4).permute(0, 3, 4, 1, 2).flatten(1), bias, share.flatten(1)]
        return packed

    def unpack(self, gradients: Tensor) -> list[Tensor]:
        """Return the gradients of the parameters, (S, ...) each, from rows in the order of `walk_gradients`."""
        rows, found = iter(gradients.split(self.gradient_sizes, dim=1)), list[Tensor]()
        for i in range(self.norms):
            found += [next(rows), next(rows)]
            if i < self.convs:
                inputs, outputs = self.width[i], self.width[i + 1]
                weight = next(rows).unflatten(1, (3, 3, inputs, outputs)).permute(0, 4, 3, 1, 2)
                total, timed = (next(rows).unflatten(1, (self.P, outputs)) for _ in range(2))
                time = (timed.transpose(1, 2) @ self.inside.T).unflatten(2, (1, 3, 3))
                found += [weight, time, total.sum(1)]
        return found
