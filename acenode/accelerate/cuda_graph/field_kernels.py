"""The fields of the image models by Triton kernels, with few autograd nodes and few kernel launches.

GroupNorm–ReLU–Conv3x3 with time, and the GroupNorm that may follow, are one kernel forward and one backward. A program
holds the whole map of one sample, pixels by channels, so that both norms are computed inside it. The convolution is
nine matrix products, one per tap, with the map shifted by that tap, each summed over DEPTH channels at a time. A
program writes the map to memory and reads it back shifted, which stays in the cache. Maps are stored channels last.

The vectors of a layer are stored one after the other: scale and shift of its norm, its bias, scale and shift of the
norm that follows. The first layers of f and g run in one launch, half of the programs each, and compute their input,
the attended h φ(a), themselves. The two halves differ only in the pointers that they select: with a branch for each, a
program would reserve the shared memory of both. Other layers run alone, with their own tensors in both places.

A mean over a group is a sum over an axis of fixed length, a power of two. Groups of another size are padded to it: the
kernels then number slots instead of channels (`ChannelSlots`). Parameters, u, ∂y and the parameter gradients are stored
by slots, INPUTS and OUTPUTS of them, with zeros in those that are not used. The maps that other code reads or writes,
x, y, z and their gradients, are stored by channels, REAL_IN and REAL_OUT of them. Names in capitals are constants of
a kernel.

The parameters stay in the modules. The classes hold what the kernels read, loaded once a pass because parameters do not
change within a pass, and the parameter gradients that the kernels add up. The weight gradients are computed for all
stages of a step at once, from stacks that the stages' forward and backward passes have filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor, nn

from acenode.accelerate.dispatch import TimeConvField, TimeConvolution
from acenode.accelerate.triton_support import Serialised, block_size

CHANNELS_LAST = torch.channels_last
MAX_MAP_SIZE = 64 * 128  # values of a padded feature map that a program can hold


@triton.jit
def _channel(slot, GROUP, SLOT):
    """Return the channel in a slot."""
    channel = slot
    if GROUP != SLOT:
        channel = (slot // SLOT) * GROUP + slot % SLOT
    return channel


@triton.jit
def _used(slot, COUNT, GROUP, SLOT):
    """Return whether a slot has a channel."""
    used = slot < COUNT
    if GROUP != SLOT:
        used = used & (slot % SLOT < GROUP)
    return used


@triton.jit
def _group_mean(x, PIXELS, ROWS, WIDE, GROUP, SLOT):
    """Return the mean of x over all pixels and each channel's group, broadcast to the shape of x.

    x must be 0 in slots that are not used.
    """
    groups = tl.sum(tl.sum(tl.reshape(x, (ROWS, WIDE // SLOT, SLOT)), axis=2), axis=0)
    spread = tl.broadcast_to(groups[None, :, None], (ROWS, WIDE // SLOT, SLOT))
    return tl.reshape(spread, (ROWS, WIDE)) / (PIXELS * GROUP)


@triton.jit
def _normalise(x, inside, eps, PIXELS, ROWS, WIDE, GROUP, SLOT):
    """Return x with every group at mean 0 and variance 1, and the factor 1/σ."""
    centred = tl.where(inside, x - _group_mean(x, PIXELS, ROWS, WIDE, GROUP, SLOT), 0.0)
    factor = 1.0 / tl.sqrt(_group_mean(centred * centred, PIXELS, ROWS, WIDE, GROUP, SLOT) + eps)
    return centred * factor, factor


@triton.jit
def _norm_gradient(grad, unit, factor, PIXELS, ROWS, WIDE, GROUP, SLOT):
    """Return the gradient of x from that of its normalised value, `unit`."""
    mean = _group_mean(grad, PIXELS, ROWS, WIDE, GROUP, SLOT)
    along = _group_mean(grad * unit, PIXELS, ROWS, WIDE, GROUP, SLOT)
    return (grad - mean - unit * along) * factor


@triton.jit
def _convolve(total, maps, weight_ptr, SIGN, HEIGHT, SIDE, FROM, TO, WIDE_TO, ROWS, DEPTH, PRECISION):
    """Add to `total` the map shifted by every tap, zero outside its edges, times the matrix of that tap.

    SIGN is 1 for a convolution and -1 for its transpose; the matrices, (9, TO, FROM), are those of either.
    """
    p, o = tl.arange(0, ROWS), tl.arange(0, WIDE_TO)
    row, column = p // SIDE, p % SIDE
    PARTS: tl.constexpr = (FROM + DEPTH - 1) // DEPTH
    for part in range(9 * PARTS):
        tap = part // PARTS
        c = part % PARTS * DEPTH + tl.arange(0, DEPTH)
        down, right = SIGN * (tap // 3 - 1), SIGN * (tap % 3 - 1)
        r, s = row + down, column + right
        known = (row < HEIGHT) & (r >= 0) & (r < HEIGHT) & (s >= 0) & (s < SIDE)
        shifted = tl.load(maps + (r * SIDE + s)[:, None] * FROM + c[None, :],
                          mask=known[:, None] & (c < FROM)[None, :], other=0.0)
        matrix = tl.load(weight_ptr + tap * FROM * TO + o[None, :] * FROM + c[:, None],
                         mask=(c < FROM)[:, None] & (o < TO)[None, :], other=0.0)
        total = tl.dot(shifted, matrix, total, input_precision=PRECISION)
    return total


@triton.jit
def _input(x_ptr, a_ptr, at, inside, GATED):
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    if GATED:
        x = x / (1.0 + tl.exp(-tl.load(a_ptr + at, mask=inside, other=0.0)))
    return x


@triton.jit
def _vector(ptr, c, CHANNELS):
    return tl.load(ptr + c, mask=c < CHANNELS, other=0.0)[None, :]


@Serialised
@triton.jit
def layer_forward(x_ptr, a_ptr, t_ptr, vectors_f, weight_f, share_f, u_f, y_f, z_f, vectors_g, weight_g, share_g, u_g,
                  y_g, z_g, eps, eps2, HEIGHT: tl.constexpr, SIDE: tl.constexpr, INPUTS: tl.constexpr,
                  OUTPUTS: tl.constexpr, REAL_IN: tl.constexpr, REAL_OUT: tl.constexpr, ROWS: tl.constexpr,
                  WIDE_IN: tl.constexpr, WIDE_OUT: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr,
                  SLOT: tl.constexpr, GROUP2: tl.constexpr, SLOT2: tl.constexpr, PRECISION: tl.constexpr,
                  NORM_F: tl.constexpr, NORM_G: tl.constexpr, GATED: tl.constexpr):
    """Compute u = ReLU(GN(x)), y = conv(u) + bias + t·share and, where a norm follows, z = GN(y)."""
    is_f = tl.program_id(1) == 0
    vectors_ptr, weight_ptr = tl.where(is_f, vectors_f, vectors_g), tl.where(is_f, weight_f, weight_g)
    share_ptr, u_ptr = tl.where(is_f, share_f, share_g), tl.where(is_f, u_f, u_g)
    y_ptr, z_ptr, norm = tl.where(is_f, y_f, y_g), tl.where(is_f, z_f, z_g), tl.where(is_f, NORM_F, NORM_G)
    PIXELS: tl.constexpr = HEIGHT * SIDE
    first = tl.program_id(0).to(tl.int64) * PIXELS
    p, i, o = tl.arange(0, ROWS), tl.arange(0, WIDE_IN), tl.arange(0, WIDE_OUT)
    known = (p < PIXELS)[:, None]
    inside = known & _used(i, INPUTS, GROUP, SLOT)[None, :]
    x = _input(x_ptr, a_ptr, (first + p[:, None]) * REAL_IN + _channel(i, GROUP, SLOT)[None, :], inside, GATED)
    scale, shift = _vector(vectors_ptr, i, INPUTS), _vector(vectors_ptr + INPUTS, i, INPUTS)
    after = vectors_ptr + 2 * INPUTS
    bias, scale2, shift2 = (_vector(after, o, OUTPUTS), _vector(after + OUTPUTS, o, OUTPUTS),
                            _vector(after + 2 * OUTPUTS, o, OUTPUTS))
    y = tl.load(share_ptr + p[:, None] * OUTPUTS + o[None, :], mask=known & (o < OUTPUTS)[None, :],
                other=0.0) * tl.load(t_ptr) + bias
    unit, _ = _normalise(x, inside, eps, PIXELS, ROWS, WIDE_IN, GROUP, SLOT)
    u = tl.maximum(unit * scale + shift, 0.0, propagate_nan=tl.PropagateNan.ALL)  # NaN stays NaN, as in torch's ReLU
    maps = u_ptr + first * INPUTS
    tl.store(maps + p[:, None] * INPUTS + i[None, :], u, mask=known & (i < INPUTS)[None, :])
    tl.debug_barrier()  # every pixel is written before a shifted one is read
    y = _convolve(y, maps, weight_ptr, 1, HEIGHT, SIDE, INPUTS, OUTPUTS, WIDE_OUT, ROWS, DEPTH, PRECISION)
    within = known & _used(o, OUTPUTS, GROUP2, SLOT2)[None, :]
    there = (first + p[:, None]) * REAL_OUT + _channel(o, GROUP2, SLOT2)[None, :]
    tl.store(y_ptr + there, y, mask=within)
    if norm:
        y = tl.where(within, y, 0.0)
        unit2, _ = _normalise(y, within, eps2, PIXELS, ROWS, WIDE_OUT, GROUP2, SLOT2)
        tl.store(z_ptr + there, unit2 * scale2 + shift2, mask=within)


@triton.jit
def _add_at(at, value, known):
    tl.store(at, tl.load(at, mask=known, other=0.0) + value, mask=known)


@Serialised
@triton.jit
def layer_backward(x_ptr, a_ptr, t_ptr, dz_f, y_f, vectors_f, weight_f, dy_f, dx_f, affine_f, when_f, dz_g, y_g,
                   vectors_g, weight_g, dy_g, dx_g, affine_g, when_g, eps, eps2, HEIGHT: tl.constexpr,
                   SIDE: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, REAL_IN: tl.constexpr,
                   REAL_OUT: tl.constexpr, ROWS: tl.constexpr, WIDE_IN: tl.constexpr, WIDE_OUT: tl.constexpr,
                   DEPTH: tl.constexpr, GROUP: tl.constexpr, SLOT: tl.constexpr, GROUP2: tl.constexpr,
                   SLOT2: tl.constexpr, PRECISION: tl.constexpr, NORM_F: tl.constexpr, NORM_G: tl.constexpr,
                   TRAINS_F: tl.constexpr, TRAINS_G: tl.constexpr, GATED: tl.constexpr):
    """Compute ∂x from ∂z, and store ∂y and its time for the weight gradient; add the sample's norm gradients.

    Of a gated x, f and g write a term each of the gradient of the attended h.
    """
    is_f = tl.program_id(1) == 0
    dz_ptr, y_ptr = tl.where(is_f, dz_f, dz_g), tl.where(is_f, y_f, y_g)
    vectors_ptr, weight_ptr = tl.where(is_f, vectors_f, vectors_g), tl.where(is_f, weight_f, weight_g)
    dy_ptr, dx_ptr = tl.where(is_f, dy_f, dy_g), tl.where(is_f, dx_f, dx_g)
    affine_ptr, when_ptr = tl.where(is_f, affine_f, affine_g), tl.where(is_f, when_f, when_g)
    norm, trains = tl.where(is_f, NORM_F, NORM_G), tl.where(is_f, TRAINS_F, TRAINS_G)
    PIXELS: tl.constexpr = HEIGHT * SIDE
    sample = tl.program_id(0).to(tl.int64)
    p, i, o = tl.arange(0, ROWS), tl.arange(0, WIDE_IN), tl.arange(0, WIDE_OUT)
    row, known = sample * PIXELS + p[:, None], (p < PIXELS)[:, None]
    within = known & _used(o, OUTPUTS, GROUP2, SLOT2)[None, :]
    there = row * REAL_OUT + _channel(o, GROUP2, SLOT2)[None, :]
    inside = known & _used(i, INPUTS, GROUP, SLOT)[None, :]
    here = row * REAL_IN + _channel(i, GROUP, SLOT)[None, :]
    dy = tl.load(dz_ptr + there, mask=within, other=0.0)
    affine = affine_ptr + sample * (2 * INPUTS + 2 * OUTPUTS)
    if norm:
        y = tl.load(y_ptr + there, mask=within, other=0.0)
        scale2 = _vector(vectors_ptr + 2 * INPUTS + OUTPUTS, o, OUTPUTS)
        unit2, factor2 = _normalise(y, within, eps2, PIXELS, ROWS, WIDE_OUT, GROUP2, SLOT2)
        if trains:
            _add_at(affine + 2 * INPUTS + o, tl.sum(dy * unit2, axis=0), o < OUTPUTS)
            _add_at(affine + 2 * INPUTS + OUTPUTS + o, tl.sum(dy, axis=0), o < OUTPUTS)
        dy = _norm_gradient(dy * scale2, unit2, factor2, PIXELS, ROWS, WIDE_OUT, GROUP2, SLOT2)
        if GROUP2 != SLOT2:
            dy = tl.where(within, dy, 0.0)
    maps = dy_ptr + sample * PIXELS * OUTPUTS
    tl.store(maps + p[:, None] * OUTPUTS + o[None, :], dy, mask=known & (o < OUTPUTS)[None, :])
    tl.debug_barrier()  # every pixel is written before a shifted one is read
    du = _convolve(tl.zeros((ROWS, WIDE_IN), dtype=tl.float32), maps, weight_ptr, -1, HEIGHT, SIDE, OUTPUTS, INPUTS,
                   WIDE_IN, ROWS, DEPTH, PRECISION)
    x = _input(x_ptr, a_ptr, here, inside, GATED)
    unit, factor = _normalise(x, inside, eps, PIXELS, ROWS, WIDE_IN, GROUP, SLOT)
    scale, shift = _vector(vectors_ptr, i, INPUTS), _vector(vectors_ptr + INPUTS, i, INPUTS)
    du = tl.where(inside & (unit * scale + shift > 0), du, 0.0)
    if trains:
        _add_at(affine + i, tl.sum(du * unit, axis=0), i < INPUTS)
        _add_at(affine + INPUTS + i, tl.sum(du, axis=0), i < INPUTS)
        tl.store(when_ptr, tl.load(t_ptr))
    dx = _norm_gradient(du * scale, unit, factor, PIXELS, ROWS, WIDE_IN, GROUP, SLOT)
    tl.store(dx_ptr + here, dx, mask=inside)


@Serialised
@triton.jit
def layer_weights(u_ptr, dy_ptr, when_ptr, sums_ptr, samples, batch, HEIGHT: tl.constexpr, SIDE: tl.constexpr,
                  INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, TILE_IN: tl.constexpr, TILE_OUT: tl.constexpr,
                  EACH: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr):
    """Add the gradients of one tap's weights, its time weight and the bias, over EACH of the samples, to `sums`.

    A program computes a tile of the tap's matrix. The samples are those of several stages, each with its time. `sums`
    is (parts, 9, inputs + 2, outputs); its last two rows are for time and, at the middle tap, for the bias.
    """
    PIXELS: tl.constexpr = HEIGHT * SIDE
    TILES: tl.constexpr = (OUTPUTS + TILE_OUT - 1) // TILE_OUT
    tap, part = tl.program_id(0), tl.program_id(1)
    down, right = tap // 3 - 1, tap % 3 - 1
    first = tl.program_id(2) // TILES * TILE_IN
    i, o = first + tl.arange(0, TILE_IN), tl.program_id(2) % TILES * TILE_OUT + tl.arange(0, TILE_OUT)
    total = tl.zeros((TILE_IN, TILE_OUT), dtype=tl.float32)
    timed = tl.zeros((BLOCK, TILE_OUT), dtype=tl.float32)
    plain = tl.zeros((BLOCK, TILE_OUT), dtype=tl.float32)
    for sample in range(part * EACH, tl.minimum((part + 1) * EACH, samples)):
        t = tl.load(when_ptr + sample // batch)
        u_at, dy_at = u_ptr + sample * PIXELS * INPUTS, dy_ptr + sample * PIXELS * OUTPUTS
        for block in tl.static_range((PIXELS + BLOCK - 1) // BLOCK):
            p = block * BLOCK + tl.arange(0, BLOCK)
            r, s = p // SIDE + down, p % SIDE + right
            known = (p < PIXELS) & (r >= 0) & (r < HEIGHT) & (s >= 0) & (s < SIDE)
            u = tl.load(u_at + (p + down * SIDE + right)[None, :] * INPUTS + i[:, None],
                        mask=known[None, :] & (i < INPUTS)[:, None], other=0.0)
            dy = tl.load(dy_at + p[:, None] * OUTPUTS + o[None, :], mask=known[:, None] & (o < OUTPUTS)[None, :],
                         other=0.0)
            total = tl.dot(u, dy, total, input_precision=PRECISION)
            plain += dy
            timed += dy * t
    sums = sums_ptr + (part * 9 + tap) * (INPUTS + 2) * OUTPUTS
    _add_at(sums + i[:, None] * OUTPUTS + o[None, :], total, (i < INPUTS)[:, None] & (o < OUTPUTS)[None, :])
    if first == 0:
        _add_at(sums + INPUTS * OUTPUTS + o, tl.sum(timed, axis=0), o < OUTPUTS)
        _add_at(sums + (INPUTS + 1) * OUTPUTS + o, tl.sum(plain, axis=0), o < OUTPUTS)


@Serialised
@triton.jit
def gate_backward(first_ptr, second_ptr, h_ptr, a_ptr, dh_ptr, da_ptr, size, BLOCK: tl.constexpr):
    """Compute the gradients of h and a from the two gradients of h φ(a) (elementwise attention)."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    grad = tl.load(first_ptr + at, mask=mask) + tl.load(second_ptr + at, mask=mask)
    h, passes = tl.load(h_ptr + at, mask=mask), 1.0 / (1.0 + tl.exp(-tl.load(a_ptr + at, mask=mask)))
    tl.store(dh_ptr + at, grad * passes, mask=mask)
    tl.store(da_ptr + at, grad * h * passes * (1.0 - passes), mask=mask)


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


class ChannelSlots:
    """How kernels number channels: every group of a norm begins at a multiple of `slot`, a power of two.

    Where groups are powers of two, as in most models, slots and channels are the same. Augmented-ODE-Net's 69 channels
    in 23 groups of 3 have 92 slots; the fourth of each group is not used.
    """

    def __init__(self, norm: nn.GroupNorm, device: torch.device) -> None:
        self.channels, self.group = norm.num_channels, norm.num_channels // norm.num_groups
        self.slot = 1 << (self.group - 1).bit_length()
        while norm.num_groups * self.slot % 4:  # kernels load four values at a time
            self.slot *= 2
        self.count, c = norm.num_groups * self.slot, torch.arange(norm.num_channels, device=device)
        self.index = None if self.group == self.slot else c // self.group * self.slot + c % self.group  # by channel

    def spread(self, x: Tensor, dim: int = 0) -> Tensor:
        """Move the channels of an axis to their slots, with zeros in the others."""
        if self.index is None:
            return x
        shape = [*x.shape[:dim], self.count, *x.shape[dim + 1:]]
        return x.new_zeros(shape).index_copy_(dim, self.index, x)

    def select(self, x: Tensor, dim: int = 0) -> Tensor:
        """Select the slots of an axis that have channels."""
        return x if self.index is None else x.index_select(dim, self.index)


class SavedForward(NamedTuple):
    """What a layer's forward pass saves for its backward pass."""

    read: tuple[Tensor, Tensor, Tensor]  # x, a (or x again if it is not gated) and t
    y: Tensor
    stack: Tensor | None  # of u
    number: int  # of u in the stack


class FusedLayer:
    """GroupNorm, ReLU, a convolution with time and, in the last layer of a field, another GroupNorm."""

    def __init__(self, norm: nn.GroupNorm, conv: TimeConvolution, following: nn.GroupNorm, is_last: bool, like: Tensor,
                 precision: str, stages: int) -> None:
        self.norm, self.conv, self.after = norm, conv, following if is_last else None
        into, out = self.into, self.out = ChannelSlots(norm, like.device), ChannelSlots(following, like.device)
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
        self.vectors = like.new_empty(2 * self.inputs + 3 * self.outputs)
        self.forward_weight = like.new_empty(9, self.outputs, self.inputs)
        self.backward_weight = like.new_empty(9, self.inputs, self.outputs)
        self.share = like.new_empty(height * side, self.outputs)
        self.inside = F.unfold(like.new_ones(1, 1, height, side), 3, padding=1)[0]  # (9, pixels)
        self.trains = conv.weight.requires_grad
        self.affine = like.new_zeros(self.batch, 2 * self.inputs + 2 * self.outputs)
        self.sums = like.new_zeros(self.tiling.weight_parts if self.trains else 1, 9, self.inputs + 2, self.outputs)
        self.stack: Tensor | None = None  # of u, for the stages of the current step
        self.grads = self._maps(stages if self.trains else 1, self.outputs)  # of y, for the same stages
        self.stage_times = like.new_zeros(stages)
        self.calls = 0
        self.differentiated: Tensor | None = None  # the stack of the step that is differentiated

    def _maps(self, stages: int, channels: int) -> Tensor:
        return torch.empty(stages * self.batch, channels, *self.map, device=self.vectors.device,
                           memory_format=CHANNELS_LAST)

    # Once a pass --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def load_parameters(self) -> None:
        """Copy the parameters into the layout that the kernels read, and clear the gradients."""
        norm, conv, last = self.norm, self.conv, self.after
        of_outputs = (conv.bias, *((last.weight, last.bias) if last is not None else (conv.bias, conv.bias)))
        torch.cat([*map(self.into.spread, (norm.weight, norm.bias)), *map(self.out.spread, of_outputs)],
                  out=self.vectors)
        weight = self.into.spread(self.out.spread(conv.weight.flatten(2)), dim=1)  # (outputs, inputs, 9)
        self.forward_weight.copy_(weight.permute(2, 0, 1))
        self.backward_weight.copy_(weight.permute(2, 1, 0))
        self.share.copy_(self.out.spread(conv.time.flatten(1)).matmul(self.inside).T)
        if self.trains:
            self.affine.zero_()
            self.sums.zero_()

    @torch.no_grad()
    def gradients(self) -> dict[nn.Parameter, Tensor]:
        """Return the gradients that were added up since the parameters were loaded."""
        sums, affine = self.out.select(self.sums.sum(0), dim=2), self.affine.sum(0)
        scale, shift, scale2, shift2 = affine.split([self.inputs, self.inputs, self.outputs, self.outputs])
        weight = self.into.select(sums[:, :-2], dim=1)
        found = {self.conv.weight: weight.permute(2, 1, 0).reshape(self.conv.weight.shape),
                 self.conv.time: sums[:, -2].T.reshape(self.conv.time.shape), self.conv.bias: sums[4, -1],
                 self.norm.weight: self.into.select(scale), self.norm.bias: self.into.select(shift)}
        if self.after is not None:
            found |= {self.after.weight: self.out.select(scale2), self.after.bias: self.out.select(shift2)}
        return found

    # Once a step --------------------------------------------------------------------------------------------------

    def begin_step(self, stages: int) -> None:
        """Prepare for `stages` evaluations that are differentiated together."""
        self.calls = 0
        if self.trains:
            self.stack = self._maps(stages, self.inputs)

    def end_step(self) -> None:
        """Add up the weight gradients of the step that was differentiated, all its evaluations."""
        stack, self.differentiated = self.differentiated, None
        if stack is None:
            return
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

    def written_forward(self, read: tuple[Tensor, Tensor, Tensor], keep: bool) -> tuple[SavedForward, Tensor, Tensor]:
        """Allocate what the forward pass writes: what it saves, u, and the layer's output."""
        y = self._maps(1, self.out.channels)
        z = torch.empty_like(y) if self.after is not None else y
        if not (keep and self.trains):
            return SavedForward(read, y, None, 0), self._maps(1, self.inputs), z
        assert self.stack is not None
        saved = SavedForward(read, y, self.stack, self.calls)
        self.calls += 1
        return saved, self._of(self.stack, saved.number), z

    def written_backward(self, saved: SavedForward) -> tuple[Tensor, ...]:
        """Return what the backward pass writes: ∂y, ∂x, the norms' gradients and the time."""
        dy = self._of(self.grads, saved.number) if self.trains else self._maps(1, self.outputs)
        self.differentiated = saved.stack
        return dy, self._maps(1, self.into.channels), self.affine, self.stage_times[saved.number:saved.number + 1]


def run_layers(layers: Sequence[FusedLayer], read: tuple[Tensor, Tensor, Tensor],
               keep: bool) -> list[tuple[SavedForward, Tensor]]:
    """Run a layer, or the first ones of f and g in one launch; return what each saves and its output."""
    f, g = layers[0], layers[-1]
    made = [layer.written_forward(read, keep) for layer in layers]
    given = [(layer.vectors, layer.forward_weight, layer.share, u, saved.y, z)
             for layer, (saved, u, z) in zip(layers, made, strict=True)]
    layer_forward[(f.batch, len(layers))](
        *read, *given[0], *given[-1], *f.eps, **f.shape, NORM_F=f.after is not None, NORM_G=g.after is not None,
        GATED=len(layers) == 2, **f.warps)
    return [(saved, z) for saved, _, z in made]


def differentiate_layers(layers: Sequence[FusedLayer], saved: Sequence[SavedForward],
                         grads: Sequence[Tensor]) -> list[Tensor]:
    """Differentiate what `run_layers` ran; return the gradients of x."""
    f, g = layers[0], layers[-1]
    made = [layer.written_backward(kept) for layer, kept in zip(layers, saved, strict=True)]
    given = [(grad, kept.y, layer.vectors, layer.backward_weight, *written)
             for layer, kept, grad, written in zip(layers, saved, grads, made, strict=True)]
    layer_backward[(f.batch, len(layers))](
        *saved[0].read, *given[0], *given[-1], *f.eps, **f.shape, NORM_F=f.after is not None,
        NORM_G=g.after is not None, TRAINS_F=f.trains, TRAINS_G=g.trains, GATED=len(layers) == 2, **f.warps)
    return [dx for _, dx, *_ in made]


class FusedField:
    """f or g of an image model, or both on the attended h, layer by layer."""

    def __init__(self, networks: list[list[FusedLayer]]) -> None:
        self.networks = networks

    @classmethod
    def of(cls, field: TimeConvField, like: Tensor, precision: str, stages: int) -> FusedField:
        """Return a field by kernels, of which up to `stages` evaluations are differentiated together."""
        norms, convs = field.time_conv_layers()
        return cls([[FusedLayer(norm, conv, following, conv is convs[-1], like, precision, stages)
                     for norm, conv, following in zip(norms, convs, norms[1:], strict=False)]])

    @staticmethod
    def supports(field: TimeConvField, like: Tensor) -> bool:
        """Return True if a map fits a program."""
        wide = block_size(*(ChannelSlots(norm, like.device).count for norm in field.time_conv_layers()[0]))
        rows = block_size(like.shape[-2] * like.shape[-1])
        return rows * wide <= MAX_MAP_SIZE and pipeline_stages(rows, wide, Tiling.of(wide, "tf32"), like.device) > 0

    def __call__(self, h: Tensor, t: Tensor) -> Tensor:
        return _Layers.apply(self.networks, False, t, h)

    def of_attended(self, t: Tensor, h: Tensor, a: Tensor, detach_attention: bool) -> tuple[Tensor, Tensor]:
        """Return f and g of h φ(a); their first layers run in one kernel, which also computes the attended h."""
        return _Layers.apply(self.networks, detach_attention, t, h, a)


class _Layers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, networks: list[list[FusedLayer]], detach_attention: bool, t: Tensor,
                *state: Tensor) -> Tensor | tuple[Tensor, ...]:
        state = tuple(x.contiguous(memory_format=CHANNELS_LAST) for x in state)
        keep = any(ctx.needs_input_grad)
        outputs, ctx.saved = [], []
        first = run_layers([layers[0] for layers in networks], (state[0], state[-1], t), keep)
        for layers, (saved, z) in zip(networks, first, strict=True):
            of_layers = [saved]
            for layer in layers[1:]:
                ((saved, z),) = run_layers([layer], (z, z, t), keep)
                of_layers.append(saved)
            outputs.append(z)
            ctx.saved.append(of_layers)
        ctx.networks, ctx.detach_attention = networks, detach_attention
        return tuple(outputs) if len(outputs) == 2 else outputs[0]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        of_outputs = []
        for layers, saved, grad in zip(ctx.networks, ctx.saved, grads, strict=True):
            grad = grad.contiguous(memory_format=CHANNELS_LAST)
            for layer, kept in zip(layers[:0:-1], saved[:0:-1], strict=True):
                (grad,) = differentiate_layers([layer], [kept], [grad])
            of_outputs.append(grad)
        first = [saved[0] for saved in ctx.saved]
        found = differentiate_layers([layers[0] for layers in ctx.networks], first, of_outputs)
        if len(found) == 1:
            return None, None, None, found[0]
        h, a, _ = first[0].read
        dh, da = torch.empty_like(h), torch.empty_like(a)
        gate_backward[(triton.cdiv(h.numel(), 1024),)](*found, h, a, dh, da, h.numel(), BLOCK=1024)
        return None, None, None, dh, None if ctx.detach_attention else da
