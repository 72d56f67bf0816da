"""The field of an image model compiled by torch.compile, for shapes that our own kernels do not support.

Norms, ReLUs and the time terms become a few kernels around the library's convolutions. The parameters are arguments of
the compiled function, so that a process compiles once for all runs of the same shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from acenode.device import torch_private

VARIANTS = 64  # combinations of shapes, layouts and trained parameters that torch compiles at most


class CompiledField:
    """f or g for feature maps of the shape of `like`."""

    def __init__(self, field: Any, like: Tensor) -> None:
        self.norms = [(norm.weight, norm.bias) for norm in field.norms]
        self.shapes = [(norm.num_groups, norm.eps) for norm in field.norms]
        self.convs = [(conv.weight, conv.time, conv.bias) for conv in field.convs]
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
