"""The fields of the image models computed by kernels, with few autograd nodes and few kernel launches.

The parameters stay in the modules. The classes here hold what the kernels read, loaded once a pass because parameters
do not change within a pass, and the parameter gradients that the kernels add up. The weight gradients are computed for
all stages of a step at once, from stacks that the stages' forward and backward passes have filled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import triton
from torch import Tensor, nn

from acenode.accelerate.cuda_graph.kernels.conv_layer import (
    layer_backward,
    layer_forward,
    layer_weights,
    pair_backward,
    pair_forward,
)
from acenode.accelerate.cuda_graph.kernels.pointwise import gate_backward
from acenode.accelerate.triton_support import block_size
from acenode.models.image.layers import TimeConv

CHANNELS_LAST = torch.channels_last
MAX_MAP_SIZE = 64 * 128  # values of a padded feature map that a program can hold


@dataclass(frozen=True)
class Tiling:
    """How the kernels of a layer divide its work: those of the layer first, then that of the weight gradient."""

    depth: int  # channels that a product of the convolution is summed over at a time
    warps: int
    stages: int  # products whose operands are loaded ahead, where there is room for them
    weight_tile: tuple[int, int]  # inputs and outputs of a program
    weight_rows: int  # pixels that a product is summed over
    weight_parts: int  # of the samples, each with programs of its own
    weight_warps: int
    weight_stages: int

    @classmethod
    def of(cls, wide: int, precision: str) -> Tiling:
        """Return the fastest of those that were tried on an H200, for so many channels."""
        small = wide <= 64
        weights = ((wide, wide), 16, 56, 2, 3) if small and precision == "tf32" else ((32, 32), 16, 14, 1, 3)
        return cls(wide if small else 32, 4, 3 if small else 4, *weights)


def pipeline_stages(rows: int, wide: int, tiling: Tiling, device: torch.device) -> int:
    """Return how many products, a shifted map and a matrix each, are loaded ahead into shared memory."""
    room = 1 << 20
    if device.type == "cuda":
        room = triton.runtime.driver.active.utils.get_device_properties(device.index or 0)["max_shared_mem"]
    return min(tiling.stages, room // (4 * tiling.depth * (rows + wide)))


@dataclass(frozen=True)
class ChannelSlots:
    """How kernels number channels: every group of a norm begins at a multiple of `slot`, a power of two.

    Where groups are powers of two, as in most models, slots and channels are the same. Augmented-ODE-Net's 69 channels
    in 23 groups of 3 have 92 slots; the fourth of each group is not used.
    """

    channels: int
    group: int  # channels of a group
    slot: int  # slots of a group

    @classmethod
    def of(cls, norm: nn.GroupNorm) -> ChannelSlots:
        group = norm.num_channels // norm.num_groups
        slot = 1 << (group - 1).bit_length()
        while norm.num_groups * slot % 4:  # kernels load four values at a time
            slot *= 2
        return cls(norm.num_channels, group, slot)

    @property
    def count(self) -> int:
        return self.channels // self.group * self.slot

    @property
    def padded(self) -> bool:
        return self.group != self.slot

    def index(self, device: torch.device) -> Tensor | None:
        """Return the slot of every channel, (channels,); None where slots and channels are the same."""
        if not self.padded:
            return None
        c = torch.arange(self.channels, device=device)
        return c // self.group * self.slot + c % self.group


def to_slots(x: Tensor, index: Tensor | None, count: int, dim: int = 0) -> Tensor:
    """Move the channels of an axis to their slots, with zeros in the others."""
    if index is None:
        return x
    shape = list(x.shape)
    shape[dim] = count
    return x.new_zeros(shape).index_copy_(dim, index, x)


def to_channels(x: Tensor, index: Tensor | None, dim: int = 0) -> Tensor:
    """Select the slots of an axis that have channels."""
    return x if index is None else x.index_select(dim, index)


@dataclass(frozen=True)
class SavedForward:
    """What a layer's forward pass saves for its backward pass: input x, output y, and the index of u in the stack."""

    x: Tensor
    y: Tensor
    stack: Tensor | None
    index: int


class FusedLayer:
    """GroupNorm, ReLU, a convolution with time and, in the last layer of a field, another GroupNorm."""

    def __init__(self, norm: nn.GroupNorm, conv: TimeConv, following: nn.GroupNorm, is_last: bool, like: Tensor,
                 precision: str) -> None:
        self.norm, self.conv, self.after = norm, conv, following if is_last else None
        into, out = ChannelSlots.of(norm), ChannelSlots.of(following)
        self.batch, self.inputs, self.outputs = like.shape[0], into.count, out.count  # slots
        height, side = like.shape[-2:]
        self.map = (height, side)
        rows, wide = block_size(height * side), block_size(into.count, out.count)
        self.tiling = Tiling.of(wide, precision)
        self.sizes = {"HEIGHT": height, "SIDE": side, "INPUTS": into.count, "OUTPUTS": out.count,
                      "PRECISION": precision}
        self.shape = self.sizes | {
            "ROWS": rows, "WIDE_IN": block_size(into.count), "WIDE_OUT": block_size(out.count),
            "DEPTH": self.tiling.depth, "REAL_IN": into.channels, "GROUP": into.group, "SLOT": into.slot,
            "REAL_OUT": out.channels, "GROUP2": out.group, "SLOT2": out.slot}
        self.eps = (norm.eps, following.eps)
        self.warps = {"num_warps": self.tiling.warps,
                      "num_stages": pipeline_stages(rows, wide, self.tiling, like.device)}
        self.into, self.out = into, out
        self.in_slots, self.out_slots = into.index(like.device), out.index(like.device)
        self.vectors = like.new_empty(2 * self.inputs + 3 * self.outputs)
        self.forward_weight = like.new_empty(9, self.outputs, self.inputs)
        self.backward_weight = like.new_empty(9, self.inputs, self.outputs)
        self.share = like.new_empty(height * side, self.outputs)
        self.inside = F.unfold(like.new_ones(1, 1, height, side), 3, padding=1)[0]  # (9, pixels)
        self.trains, self.stages = conv.weight.requires_grad, 0
        self.affine = like.new_zeros(self.batch, 2 * self.inputs + 2 * self.outputs)
        self.sums = like.new_zeros(self.tiling.weight_parts if self.trains else 1, 9, self.inputs + 2, self.outputs)
        self.stack: Tensor | None = None  # of u, for the stages of the current step
        self.grads = self._maps(1, self.outputs)  # of y, for the same stages
        self.stage_times = like.new_zeros(1)
        self.calls = 0
        self.differentiated: list[SavedForward] = []

    def _maps(self, stages: int, channels: int) -> Tensor:
        return torch.empty(stages * self.batch, channels, *self.map, device=self.vectors.device,
                           memory_format=CHANNELS_LAST)

    # Once a pass --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def load_parameters(self) -> None:
        """Copy the parameters into the layout that the kernels read, and clear the gradients."""
        norm, conv, last = self.norm, self.conv, self.after
        of_outputs = (conv.bias, *((last.weight, last.bias) if last is not None else (conv.bias, conv.bias)))
        torch.cat([*(to_slots(x, self.in_slots, self.inputs) for x in (norm.weight, norm.bias)),
                   *(to_slots(x, self.out_slots, self.outputs) for x in of_outputs)], out=self.vectors)
        weight = to_slots(conv.weight.flatten(2), self.out_slots, self.outputs)
        weight = to_slots(weight, self.in_slots, self.inputs, dim=1)  # (outputs, inputs, 9)
        self.forward_weight.copy_(weight.permute(2, 0, 1))
        self.backward_weight.copy_(weight.permute(2, 1, 0))
        self.share.copy_(to_slots(conv.time.flatten(1), self.out_slots, self.outputs).matmul(self.inside).T)
        if self.trains:
            self.affine.zero_()
            self.sums.zero_()

    @torch.no_grad()
    def gradients(self) -> dict[nn.Parameter, Tensor]:
        """Return the gradients that were added up since the parameters were loaded."""
        sums, affine = to_channels(self.sums.sum(0), self.out_slots, dim=2), self.affine.sum(0)
        scale, shift, scale2, shift2 = affine.split([self.inputs, self.inputs, self.outputs, self.outputs])
        weight = to_channels(sums[:, :-2], self.in_slots, dim=1)
        found = {self.conv.weight: weight.permute(2, 1, 0).reshape(self.conv.weight.shape),
                 self.conv.time: sums[:, -2].T.reshape(self.conv.time.shape), self.conv.bias: sums[4, -1],
                 self.norm.weight: to_channels(scale, self.in_slots), self.norm.bias: to_channels(shift, self.in_slots)}
        if self.after is None:
            return found
        return found | {self.after.weight: to_channels(scale2, self.out_slots),
                        self.after.bias: to_channels(shift2, self.out_slots)}

    # Once a step --------------------------------------------------------------------------------------------------

    def begin_step(self, stages: int) -> None:
        """Prepare for `stages` evaluations that are differentiated together."""
        self.calls = 0
        if self.trains:
            self.stack = self._maps(stages, self.inputs)

    def reserve(self, stages: int) -> None:
        """Allocate the gradients of `stages` evaluations, in memory that outlives a replay."""
        if self.trains and len(self.stage_times) < stages:
            self.grads, self.stage_times = self._maps(stages, self.outputs), self.stage_times.new_zeros(stages)

    def end_step(self) -> None:
        """Add up the weight gradients of the evaluations that were differentiated since the last call."""
        differentiated, self.differentiated = self.differentiated, []
        if not differentiated:
            return
        stack = differentiated[0].stack
        assert stack is not None
        missing = set(range(len(stack) // self.batch)) - {saved.index for saved in differentiated}
        for index in missing:  # evaluations that no gradient reached
            self._of(self.grads, index).zero_()
        tiling, (tile_in, tile_out) = self.tiling, self.tiling.weight_tile
        each = triton.cdiv(len(stack), tiling.weight_parts)
        tiles = triton.cdiv(self.inputs, tile_in) * triton.cdiv(self.outputs, tile_out)
        layer_weights[(9, triton.cdiv(len(stack), each), tiles)](
            stack, self.grads, self.stage_times, self.sums, len(stack), self.batch, **self.sizes, TILE_IN=tile_in,
            TILE_OUT=tile_out, EACH=each, BLOCK=tiling.weight_rows, num_warps=tiling.weight_warps,
            num_stages=tiling.weight_stages)

    def _of(self, stack: Tensor, index: int) -> Tensor:
        return stack[index * self.batch:(index + 1) * self.batch]

    # Once an evaluation -------------------------------------------------------------------------------------------

    def outputs_of(self, x: Tensor, keep: bool) -> tuple[SavedForward, Tensor, Tensor]:
        """Allocate what the forward pass of x writes: what it saves, u, and the layer's output."""
        y = self._maps(1, self.out.channels)
        z = torch.empty_like(y) if self.after is not None else y
        if not (keep and self.trains):
            return SavedForward(x, y, None, 0), self._maps(1, self.inputs), z
        assert self.stack is not None
        saved = SavedForward(x, y, self.stack, self.calls)
        self.calls += 1
        return saved, self._of(self.stack, saved.index), z

    def forward(self, x: Tensor, t: Tensor, keep: bool) -> tuple[SavedForward, Tensor]:
        saved, u, z = self.outputs_of(x, keep)
        layer_forward[(self.batch,)](x, t, *self.read, u, saved.y, z, *self.eps, **self.shape,
                                     NORM=self.after is not None, **self.warps)
        return saved, z

    @property
    def read(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.vectors, self.forward_weight, self.share

    def gradients_of(self, saved: SavedForward, grad: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors that the backward pass reads and writes."""
        if self.trains:
            self.differentiated.append(saved)
            dy = self._of(self.grads, saved.index)
        else:
            dy = self._maps(1, self.outputs)
        return (grad, saved.y, self.vectors, self.backward_weight, dy, self._maps(1, self.into.channels), self.affine,
                self.stage_times[saved.index:saved.index + 1])

    def backward(self, saved: SavedForward, t: Tensor, grad: Tensor) -> Tensor:
        tensors = self.gradients_of(saved, grad)
        layer_backward[(self.batch,)](saved.x, t, *tensors, *self.eps, **self.shape,
                                      NORM=self.after is not None, TRAINS=self.trains, **self.warps)
        return tensors[5]


class FusedField:
    """f or g of an image model, layer by layer."""

    def __init__(self, field: Any, like: Tensor, precision: str) -> None:
        self.layers = [FusedLayer(norm, conv, following, conv is field.convs[-1], like, precision)
                       for norm, conv, following in zip(field.norms, field.convs, field.norms[1:], strict=False)]

    @staticmethod
    def supports(field: Any, like: Tensor) -> bool:
        """Return True if a map fits a program."""
        wide = block_size(*(ChannelSlots.of(norm).count for norm in field.norms))
        rows = block_size(like.shape[-2] * like.shape[-1])
        return rows * wide <= MAX_MAP_SIZE and pipeline_stages(rows, wide, Tiling.of(wide, "tf32"), like.device) > 0

    def __call__(self, h: Tensor, t: Tensor) -> Tensor:
        return _Chain.apply(self, h, t)


class _Chain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, field: FusedField, h: Tensor, t: Tensor) -> Tensor:
        x, ctx.field, ctx.saved_layers = h.contiguous(memory_format=CHANNELS_LAST), field, []
        for layer in field.layers:
            saved, x = layer.forward(x, t, ctx.needs_input_grad[1])
            ctx.saved_layers.append(saved)
        ctx.save_for_backward(t)
        return x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (t,) = ctx.saved_tensors
        grad = grad.contiguous(memory_format=CHANNELS_LAST)
        for layer, saved in zip(reversed(ctx.field.layers), reversed(ctx.saved_layers), strict=True):
            grad = layer.backward(saved, t, grad)
        return None, grad, None


class FusedPair:
    """f and g on h φ(a): their first layers run in one kernel, which also computes the attended h."""

    def __init__(self, f: FusedField, g: FusedField) -> None:
        self.f, self.g = f, g

    @staticmethod
    def supports(f: FusedField, g: FusedField) -> bool:
        return f.layers[0].shape == g.layers[0].shape and f.layers[0].eps == g.layers[0].eps

    def __call__(self, t: Tensor, h: Tensor, a: Tensor, detach_attention: bool) -> tuple[Tensor, Tensor]:
        return _Pair.apply(self, t, h, a, detach_attention)


class _Pair(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pair: FusedPair, t: Tensor, h: Tensor, a: Tensor,
                detach_attention: bool) -> tuple[Tensor, Tensor]:
        h, a = h.contiguous(memory_format=CHANNELS_LAST), a.contiguous(memory_format=CHANNELS_LAST)
        keep = any(ctx.needs_input_grad)
        f, g = pair.f.layers, pair.g.layers
        (saved_f, u_f, k_f), (saved_g, u_g, k_g) = (first[0].outputs_of(h, keep) for first in (f, g))
        pair_forward[(len(h), 2)](h, a, t, *f[0].read, u_f, saved_f.y, k_f, *g[0].read, u_g, saved_g.y, k_g, *f[0].eps,
                                  **f[0].shape, NORM_F=f[0].after is not None, NORM_G=g[0].after is not None,
                                  **f[0].warps)
        ctx.saved_layers = ([saved_f], [saved_g])
        for layer in f[1:]:
            saved, k_f = layer.forward(k_f, t, keep)
            ctx.saved_layers[0].append(saved)
        for layer in g[1:]:
            saved, k_g = layer.forward(k_g, t, keep)
            ctx.saved_layers[1].append(saved)
        ctx.pair, ctx.detach_attention = pair, detach_attention
        ctx.save_for_backward(t, h, a)
        return k_f, k_g

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        t, h, a = ctx.saved_tensors
        f, g = ctx.pair.f.layers, ctx.pair.g.layers
        d_f, d_g = (grad.contiguous(memory_format=CHANNELS_LAST) for grad in grads)
        for layer, saved in zip(f[:0:-1], ctx.saved_layers[0][:0:-1], strict=True):
            d_f = layer.backward(saved, t, d_f)
        for layer, saved in zip(g[:0:-1], ctx.saved_layers[1][:0:-1], strict=True):
            d_g = layer.backward(saved, t, d_g)
        of_f, of_g = f[0].gradients_of(ctx.saved_layers[0][0], d_f), g[0].gradients_of(ctx.saved_layers[1][0], d_g)
        pair_backward[(len(h), 2)](h, a, t, *of_f, *of_g, *f[0].eps, **f[0].shape, NORM_F=f[0].after is not None,
                                   NORM_G=g[0].after is not None, TRAINS_F=f[0].trains, TRAINS_G=g[0].trains,
                                   **f[0].warps)
        dh, da = torch.empty_like(h), torch.empty_like(a)
        gate_backward[(triton.cdiv(h.numel(), 1024),)](of_f[5], of_g[5], h, a, dh, da, h.numel(), BLOCK=1024)
        return None, None, dh, None if ctx.detach_attention else da, None
