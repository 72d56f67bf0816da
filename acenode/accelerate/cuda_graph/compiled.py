"""The field of an image model by torch.compile, for those that our kernels are not made for.

Norms, ReLUs and the shares of time become a few kernels around the library's convolutions. The parameters are
arguments, not a module's, so that a process compiles once for all runs of the same shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from acenode.accelerate import torch_private

VARIANTS = 64  # of shapes, layouts and sets of trained parameters, before torch would stop to compile


class CompiledField:
    """f or g for maps like `like`."""

    def __init__(self, field: Any, like: Tensor) -> None:
        self.norms = [(norm.weight, norm.bias) for norm in field.norms]
        self.shapes = [(norm.num_groups, norm.eps) for norm in field.norms]
        self.convs = [(conv.weight, conv.time, conv.bias) for conv in field.convs]
        self.inside = F.unfold(like.new_ones(1, 1, *like.shape[-2:]), 3, padding=1)[0]  # (9, H·W)

    def __call__(self, h: Tensor, t: Tensor) -> Tensor:
        with torch_private.recompile_limit(VARIANTS):
            return _compiled()(h, t, self.inside, self.norms, self.shapes, self.convs)

    def attempt(self, like: Tensor) -> None:
        """There and back once."""
        with torch.enable_grad():
            h = torch.zeros_like(like).requires_grad_()
            torch.autograd.grad(self(h, h.new_zeros(())).sum(), h)


@cache
def _compiled() -> Callable[..., Tensor]:
    return torch.compile(whole, dynamic=False)


def whole(h: Tensor, t: Tensor, inside: Tensor, norms: list[tuple[Tensor, Tensor]], shapes: list[tuple[int, float]],
          convs: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """`models.image.ConvField` as a function of its parameters."""
    for (scale, shift), (groups, eps), (weight, time, bias) in zip(norms, shapes, convs, strict=False):
        share = bias.view(-1, 1) + t * (time.view(-1, 9) @ inside)
        u = F.relu(F.group_norm(h, groups, scale, shift, eps))
        h = F.conv2d(u, weight, padding=1) + share.view(-1, *h.shape[-2:])
    return F.group_norm(h, shapes[-1][0], *norms[-1], shapes[-1][1])
