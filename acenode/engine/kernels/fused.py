"""The layers of an image field as single nodes of the autograd graph, made of one kernel a direction.

The parameters stay where they are, in the modules; here are what the kernels read, refreshed once a pass since the
parameters do not change within one, and what they add up, the parameters' gradients.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
from torch import Tensor, nn

from acenode.attention import Elementwise
from acenode.engine.kernels.layer import layer_backward, layer_forward, layer_weights
from acenode.engine.kernels.pointwise import gate_backward, gate_forward
from acenode.models.layers import TimeConv

LAST = torch.channels_last
LARGEST = 64 * 128  # numbers of a padded map that a program can hold
PARTS = 14  # of the pixels, in the weights' gradient: with nine taps about one program a multiprocessor
PIXELS = 64  # of them at a time


class FusedLayer:
    """GroupNorm, ReLU, a convolution with time and, last in its field, another GroupNorm."""

    def __init__(self, norm: nn.GroupNorm, conv: TimeConv, after: nn.GroupNorm | None, like: Tensor,
                 precision: str) -> None:
        self.norm, self.conv, self.after = norm, conv, after
        B, self.inputs, self.height, self.side = like.shape[0], norm.num_channels, *like.shape[-2:]
        self.outputs, pixels = conv.weight.shape[0], like.shape[-2] * like.shape[-1]
        last = after or norm
        self.shape: dict[str, Any] = {
            "HEIGHT": self.height, "SIDE": self.side, "INPUTS": self.inputs, "OUTPUTS": self.outputs,
            "WIDE_IN": padded(self.inputs), "WIDE_OUT": padded(self.outputs), "PRECISION": precision}
        self.rows: dict[str, Any] = {"ROWS": padded(pixels), "GROUP": self.inputs // norm.num_groups,
                                     "GROUP2": last.num_channels // last.num_groups, "NORM": after is not None}
        self.eps = (norm.eps, last.eps)
        self.warps = 4 if padded(pixels) * max(padded(self.inputs), padded(self.outputs)) <= 4096 else 8
        self.forward_weight = like.new_empty(9, self.outputs, self.inputs)
        self.backward_weight = like.new_empty(9, self.inputs, self.outputs)
        self.share = like.new_empty(pixels, self.outputs)
        self.inside = F.unfold(like.new_ones(1, 1, self.height, self.side), 3, padding=1)[0]  # (9, pixels)
        self.affine = like.new_zeros(B, 2 * self.inputs + 2 * self.outputs)
        self.each = triton.cdiv(triton.cdiv(B * pixels, PARTS), PIXELS) * PIXELS
        self.sums = like.new_zeros(triton.cdiv(B * pixels, self.each), 9, self.inputs + 2, self.outputs)

    @property
    def trains(self) -> bool:
        return self.conv.weight.requires_grad

    @torch.no_grad()
    def refresh(self) -> None:
        """Read the parameters."""
        weight = self.conv.weight.flatten(2)  # (outputs, inputs, 9)
        self.forward_weight.copy_(weight.permute(2, 0, 1))
        self.backward_weight.copy_(weight.permute(2, 1, 0))
        self.share.copy_((self.conv.time.flatten(1) @ self.inside).T)
        if self.trains:
            self.affine.zero_()
            self.sums.zero_()

    @torch.no_grad()
    def gradients(self) -> dict[nn.Parameter, Tensor]:
        """What has been added up since the last refresh."""
        sums, affine = self.sums.sum(0), self.affine.sum(0)
        scale, shift, scale2, shift2 = affine.split([self.inputs, self.inputs, self.outputs, self.outputs])
        found = {self.conv.weight: sums[:, :-2].permute(2, 1, 0).reshape(self.conv.weight.shape),
                 self.conv.time: sums[:, -2].T.reshape(self.conv.time.shape), self.conv.bias: sums[4, -1],
                 self.norm.weight: scale, self.norm.bias: shift}
        return found | ({self.after.weight: scale2, self.after.bias: shift2} if self.after is not None else {})

    def __call__(self, x: Tensor, t: Tensor) -> Tensor:
        return _Layer.apply(self, x, t)


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layer: FusedLayer, x: Tensor, t: Tensor) -> Tensor:
        x = x.contiguous(memory_format=LAST)
        B, after = x.shape[0], layer.after or layer.norm
        u = torch.empty_like(x)
        y = x.new_empty(B, layer.outputs, layer.height, layer.side).to(memory_format=LAST)
        z = torch.empty_like(y) if layer.after is not None else y
        layer_forward[(B,)](x, layer.norm.weight, layer.norm.bias, layer.forward_weight, layer.conv.bias, layer.share,
                            t, after.weight, after.bias, u, y, z, *layer.eps, **layer.shape, **layer.rows,
                            num_warps=layer.warps)
        ctx.save_for_backward(x, t, u, y)
        ctx.layer = layer
        return z

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        layer: FusedLayer = ctx.layer
        x, t, u, y = ctx.saved_tensors
        grad, after = grad.contiguous(memory_format=LAST), layer.after or layer.norm
        dx, dy = torch.empty_like(x), torch.empty_like(y) if layer.after is not None else grad
        layer_backward[(x.shape[0],)](grad, x, y, layer.norm.weight, layer.norm.bias, layer.backward_weight,
                                      after.weight, dy, dx, layer.affine, *layer.eps, **layer.shape, **layer.rows,
                                      TRAINS=layer.trains, num_warps=layer.warps)
        if layer.trains:
            rows = x.shape[0] * layer.height * layer.side
            layer_weights[(9, len(layer.sums))](u, dy, t, layer.sums, rows, **layer.shape, EACH=layer.each,
                                                BLOCK=PIXELS, num_warps=layer.warps)
        return None, dx, None


class FusedField:
    """f or g of an image model, layer after layer."""

    def __init__(self, field: Any, like: Tensor, precision: str) -> None:
        pairs = list(zip(field.norms, field.convs, strict=False))
        self.layers = [FusedLayer(norm, conv, field.norms[-1] if conv is field.convs[-1] else None, like, precision)
                       for norm, conv in pairs]

    @staticmethod
    def fits(field: Any, like: Tensor) -> bool:
        """Whether a program can hold a map of this field."""
        widths = [norm.num_channels for norm in field.norms]
        return (like.dtype == torch.float32 and like.dim() == 4
                and padded(like.shape[-2] * like.shape[-1]) * padded(max(widths)) <= LARGEST)

    def __call__(self, h: Tensor, t: Tensor) -> Tensor:
        for layer in self.layers:
            h = layer(h, t)
        return h


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, a: Tensor) -> Tensor:
        h, a = h.contiguous(memory_format=LAST), a.contiguous(memory_format=LAST)
        out = torch.empty_like(h)
        gate_forward[(triton.cdiv(h.numel(), 1024),)](h, a, out, h.numel(), BLOCK=1024)
        ctx.save_for_backward(h, a)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        h, a = ctx.saved_tensors
        dh, da = torch.empty_like(h), torch.empty_like(a)
        gate_backward[(triton.cdiv(h.numel(), 1024),)](grad.contiguous(memory_format=LAST), h, a, dh, da, h.numel(),
                                                       BLOCK=1024)
        return dh, da if ctx.needs_input_grad[1] else None


class FusedElementwise(Elementwise):
    """φ(a) on maps, in one kernel a direction."""

    def __call__(self, h: Tensor, a: Tensor) -> Tensor:
        return _Gate.apply(h, a)


def padded(n: int) -> int:
    return max(16, triton.next_power_of_2(n))
