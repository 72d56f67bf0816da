"""Layers of the image models: group norms and 3×3 convolutions, one of which also reads t."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.accelerate.dispatch import convolution, time_convolution
from acenode.backend import ACCELERATED, Backend


def groups(channels: int) -> int:
    """Return the number of groups of a GroupNorm: a divisor of `channels`, at most 32, of two or more channels each."""
    most = max(1, min(32, channels // 2))
    return max(n for n in range(1, most + 1) if channels % n == 0)


def group_norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(groups(channels), channels)


class Conv3x3(nn.Module):
    """A 3×3 convolution with padding 1."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.backend = backend
        self.weight = nn.Parameter(torch.empty(outputs, inputs, 3, 3))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None

    def initialise(self, generator: torch.Generator) -> None:
        bound = 1 / math.sqrt(self.weight[0].numel())
        for p in self.parameters():
            p.data.uniform_(-bound, bound, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        y = convolution(self.backend, x, self.weight, self.bias)
        return F.conv2d(x, self.weight, self.bias, padding=1) if y is None else y


class TimeConv(nn.Module):
    """A 3×3 convolution with padding 1 of h (B, C, H, W) and one more channel that is t everywhere.

    `time` holds the weights of that channel, `weight` those of h. t is a scalar, or one time a sample, (B, 1, 1, 1).
    """

    def __init__(self, inputs: int, outputs: int, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.backend = backend
        self.weight = nn.Parameter(torch.empty(outputs, inputs, 3, 3))
        self.time = nn.Parameter(torch.empty(outputs, 1, 3, 3))
        self.bias = nn.Parameter(torch.empty(outputs))
        self.inside: Tensor | None = None  # (9, H·W), which weights lie inside the image, for the accelerated version

    def initialise(self, generator: torch.Generator) -> None:
        bound = 1 / math.sqrt(9 * (self.weight.shape[1] + 1))  # the fan-in counts the time channel
        for p in self.parameters():
            p.data.uniform_(-bound, bound, generator=generator)

    def forward(self, h: Tensor, t: Tensor) -> Tensor:
        H, W = h.shape[-2:]
        inside = self.inside
        if inside is None or inside.shape[1] != H * W or inside.dtype != h.dtype or inside.device != h.device:
            ones = torch.ones(1, 1, H, W, dtype=h.dtype, device=h.device)  # of no batch, also inside vmap
            inside = self.inside = F.unfold(ones, 3, padding=1)[0]
        y = time_convolution(self.backend, h, t, self.weight, self.time, self.bias, inside)
        if y is not None:
            return y
        everywhere = t.expand(len(h), 1, H, W)
        return F.conv2d(torch.cat((h, everywhere), 1), torch.cat((self.weight, self.time), 1), self.bias, padding=1)
