"""Convolutions and linear layers, computed in the way that is fast on the device.

The convolution is 3×3 with padding 1. On GPUs and most CPUs the gradients are torch's own. On ARM CPUs, whose library
is fast forward only, both gradients are computed as forward convolutions.
"""

from __future__ import annotations

import platform
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_input, conv2d_weight


def flipped(x: Tensor) -> bool:
    """Return True if the gradients are faster as forward convolutions."""
    return x.device.type == "cpu" and platform.machine().lower() in ("aarch64", "arm64")


def gradients(grad: Tensor, x: Tensor, weight: Tensor, need_x: bool,
              need_weight: bool) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of x and weight, None for one that is not needed."""
    if not flipped(x):
        return (conv2d_input(x.shape, weight, grad, padding=1) if need_x else None,
                conv2d_weight(x, weight.shape, grad, padding=1) if need_weight else None)
    dx = dw = None
    if need_x:  # the gradient convolved with the flipped kernel
        dx = F.conv2d(grad, weight.transpose(0, 1).flip(2, 3), padding=1)
    if need_weight:  # x convolved with the gradient, the batch taken as channels
        dw = F.conv2d(x.transpose(0, 1).contiguous(), grad.transpose(0, 1).contiguous(), padding=1).transpose(0, 1)
    return dx, dw


class Conv3x3Function(torch.autograd.Function):
    """The convolution conv(x, weight) + bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        y = F.conv2d(x, weight, padding=1)
        return y if bias is None else y.add_(bias.view(-1, 1, 1))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        need_x, need_weight, need_bias = ctx.needs_input_grad
        dx, dw = gradients(grad, x, weight, need_x, need_weight)
        return dx, dw, grad.sum((0, 2, 3)) if need_bias else None


class TimeConvFunction(torch.autograd.Function):
    """conv([x, t]) = conv(x, weight) + (bias + t M), where M = time · inside is the time channel's share.

    `inside` (9, H·W) says which of the nine weights lie inside the image for each pixel. t is a scalar, or one time a
    sample, (B, 1, 1, 1).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, t: Tensor, weight: Tensor, time: Tensor, bias: Tensor,
                inside: Tensor) -> Tensor:
        ctx.save_for_backward(x, t, weight, inside)
        share = time.view(-1, 9) @ inside
        if t.dim():
            return F.conv2d(x, weight, bias, padding=1).addcmul_(t, share.view(-1, *x.shape[-2:]))
        share = torch.addcmul(bias.view(-1, 1), share, t)
        return F.conv2d(x, weight, padding=1).add_(share.view(-1, *x.shape[-2:]))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, t, weight, inside = ctx.saved_tensors
        need_x, _, need_weight, need_time, need_bias, *_ = ctx.needs_input_grad
        dx, dw = gradients(grad, x, weight, need_x, need_weight)
        dtime = dbias = None
        if need_time or need_bias:
            timed = (grad * t).sum(0).flatten(1) if t.dim() else grad.sum(0).flatten(1) * t  # (C, H·W)
            dtime = (timed @ inside.T).view(-1, 1, 3, 3) if need_time else None
            dbias = grad.sum((0, 2, 3)) if need_bias else None
        return dx, None, dw, dtime, dbias, None


class SmallLinear(torch.autograd.Function):
    """x Wᵀ + b for few rows on ARM CPUs, where torch's library is slow with a transposed right-hand side."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.addmm(bias, x, weight.t().contiguous())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), (x, weight) = grads, ctx.saved_tensors
        need_x, need_weight, need_bias = ctx.needs_input_grad
        return (grad @ weight if need_x else None, grad.t() @ x if need_weight else None,
                grad.sum(0) if need_bias else None)
