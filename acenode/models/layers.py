"""Convolutional pieces of the image models: group norm by the papers' rule, and the 3×3 convolution that knows t."""

from __future__ import annotations

import math
import platform
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def groups(channels: int) -> int:
    """Groups of a GroupNorm: 32 at most, at least two channels each, and a divisor (69 channels: 23 groups)."""
    most = max(1, min(32, channels // 2))
    return max(n for n in range(1, most + 1) if channels % n == 0)


def group_norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(groups(channels), channels)


class _Conv3x3(torch.autograd.Function):
    """A 3×3 convolution with padding 1, no bias, whose two gradients are convolutions as well.

    ∂x is the convolution of the output's gradient with the flipped kernel; ∂W is the convolution of x with the
    output's gradient, the batch taken as channels. Both are exact, and where a CPU library has a fast forward
    convolution and slow gradients (ARM) they are three times faster.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return F.conv2d(x, weight, padding=1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        dx = F.conv2d(grad, weight.transpose(0, 1).flip(2, 3), padding=1) if ctx.needs_input_grad[0] else None
        dw = (F.conv2d(x.transpose(0, 1), grad.transpose(0, 1), padding=1).transpose(0, 1)
              if ctx.needs_input_grad[1] else None)
        return dx, dw


SLOW_GRADIENTS = platform.machine().lower() in ("aarch64", "arm64")


def conv3x3(x: Tensor, weight: Tensor) -> Tensor:
    """The 3×3 convolution with padding 1, by whichever way is fast on x's device."""
    if SLOW_GRADIENTS and x.device.type == "cpu":
        return _Conv3x3.apply(x, weight)
    return F.conv2d(x, weight, padding=1)


class Conv3x3(nn.Module):
    """Conv3x3 with padding 1 and, if asked, a bias."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, 3, 3))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None

    def initialise(self, generator: torch.Generator) -> None:
        bound = 1 / math.sqrt(self.weight[0].numel())
        for p in self.parameters():
            p.data.uniform_(-bound, bound, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        y = conv3x3(x, self.weight)
        return y if self.bias is None else y.add_(self.bias.view(-1, 1, 1))


class TimeConv(nn.Module):
    """Conv3x3 of h with one more channel that is everywhere t.

    The time channel's share is linear in t, so it is a map that is added: conv([h, t]) = W * h + (b + t M) with
    M = W_t * 1. No channel is appended and no wider convolution is done; the parameters are the same. M is the sum
    of those of W_t's nine weights that lie inside the image: one small matrix product.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, 3, 3))
        self.time = nn.Parameter(torch.empty(outputs, 1, 3, 3))
        self.bias = nn.Parameter(torch.empty(outputs))
        self.inside: Tensor | None = None  # (9, H·W), kept from call to call

    def initialise(self, generator: torch.Generator) -> None:
        bound = 1 / math.sqrt(9 * (self.weight.shape[1] + 1))  # the fan-in counts the time channel
        for p in self.parameters():
            p.data.uniform_(-bound, bound, generator=generator)

    def forward(self, h: Tensor, t: Tensor) -> Tensor:
        H, W = h.shape[-2:]
        inside = self.inside
        if inside is None or inside.shape[1] != H * W or inside.dtype != h.dtype or inside.device != h.device:
            inside = self.inside = F.unfold(h.new_ones(1, 1, H, W), 3, padding=1)[0]
        M = self.time.view(-1, 9) @ inside
        return conv3x3(h, self.weight).add_(torch.addcmul(self.bias.view(-1, 1), M, t).view(-1, H, W))
