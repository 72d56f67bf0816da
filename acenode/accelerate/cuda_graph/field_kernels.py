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
by slots, SLOTS of them, with zeros in those that are not used. The maps that other code reads or writes, x, y, z and
their gradients, are stored by channels, CHANNELS of them. Every GroupNorm and convolution of a field has as many
channels. Names in capitals are constants of a kernel.

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
def _channel(slot, GROUP, PADDED):
    """Return the channel in a slot."""
    channel = slot
    if GROUP != PADDED:
        channel = (slot // PADDED) * GROUP + slot % PADDED
    return channel


@triton.jit
def _used(slot, SLOTS, GROUP, PADDED):
    """Return whether a slot has a channel."""
    used = slot < SLOTS
    if GROUP != PADDED:
        used = used & (slot % PADDED < GROUP)
    return used


@triton.jit
def _group_mean(x, PIXELS, ROWS, WIDE, GROUP, PADDED):
    """Return the mean of x over all pixels and each channel's group, broadcast to the shape of x.

    x must be 0 in slots that are not used.
    """
    groups = tl.sum(tl.sum(tl.reshape(x, (ROWS, WIDE // PADDED, PADDED)), axis=2), axis=0)
    spread = tl.broadcast_to(groups[None, :, None], (ROWS, WIDE // PADDED, PADDED))
    return tl.reshape(spread, (ROWS, WIDE)) / (PIXELS * GROUP)


@triton.jit
def _normalise(x, inside, eps, PIXELS, ROWS, WIDE, GROUP, PADDED):
    """Return x with every group at mean 0 and variance 1, and the factor 1/σ."""
    centred = tl.where(inside, x - _group_mean(x, PIXELS, ROWS, WIDE, GROUP, PADDED), 0.0)
    factor = 1.0 / tl.sqrt(_group_mean(centred * centred, PIXELS, ROWS, WIDE, GROUP, PADDED) + eps)
    return centred * factor, factor


@triton.jit
def _norm_gradient(grad, unit, factor, PIXELS, ROWS, WIDE, GROUP, PADDED):
    """Return the gradient of x from that of its normalised value, `unit`."""
    mean = _group_mean(grad, PIXELS, ROWS, WIDE, GROUP, PADDED)
    along = _group_mean(grad * unit, PIXELS, ROWS, WIDE, GROUP, PADDED)
    return (grad - mean - unit * along) * factor


@triton.jit
def _convolve(total, maps, weight_ptr, SIGN, HEIGHT, SIDE, SLOTS, WIDE, ROWS, DEPTH, PRECISION):
    """Add to `total` the map shifted by every tap, zero outside its edges, times the matrix of that tap.

    SIGN is 1 for a convolution and -1 for its transpose; the matrices, (9, outputs, inputs), are those of either.
    """
    p, o = tl.arange(0, ROWS), tl.arange(0, WIDE)
    row, column = p // SIDE, p % SIDE
    PARTS: tl.constexpr = (SLOTS + DEPTH - 1) // DEPTH
    for part in range(9 * PARTS):
        tap = part // PARTS
        c = part % PARTS * DEPTH + tl.arange(0, DEPTH)
        down, right = SIGN * (tap // 3 - 1), SIGN * (tap % 3 - 1)
        r, s = row + down, column + right
        known = (row < HEIGHT) & (r >= 0) & (r < HEIGHT) & (s >= 0) & (s < SIDE)
        shifted = tl.load(maps + (r * SIDE + s)[:, None] * SLOTS + c[None, :],
                          mask=known[:, None] & (c < SLOTS)[None, :], other=0.0)
        matrix = tl.load(weight_ptr + tap * SLOTS * SLOTS + o[None, :] * SLOTS + c[:, None],
                         mask=(c < SLOTS)[:, None] & (o < SLOTS)[None, :], other=0.0)
        total = tl.dot(shifted, matrix, total, input_precision=PRECISION)
    return total


@triton.jit
def _input(x_ptr, a_ptr, at, inside, GATED):
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    if GATED:
        x = x / (1.0 + tl.exp(-tl.load(a_ptr + at, mask=inside, other=0.0)))
    return x


@triton.jit
def _vector(ptr, number, c, SLOTS):
    """Return one of the vectors that are stored one after the other."""
    return tl.load(ptr + number * SLOTS + c, mask=c < SLOTS, other=0.0)[None, :]


@Serialised
@triton.jit
def layer_forward(x_ptr, a_ptr, t_ptr, vectors_f, weight_f, share_f, u_f, y_f, z_f, vectors_g, weight_g, share_g, u_g,
                  y_g, z_g, eps, HEIGHT: tl.constexpr, SIDE: tl.constexpr, SLOTS: tl.constexpr, CHANNELS: tl.constexpr,
                  ROWS: tl.constexpr, WIDE: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr,
                  PADDED: tl.constexpr, PRECISION: tl.constexpr, NORM_F: tl.constexpr, NORM_G: tl.constexpr,
                  GATED: tl.constexpr):
    """Compute u = ReLU(GN(x)), y = conv(u) + bias + t·share and, where a norm follows, z = GN(y)."""
    is_f = tl.program_id(1) == 0
    vectors_ptr, weight_ptr = tl.where(is_f, vectors_f, vectors_g), tl.where(is_f, weight_f, weight_g)
    share_ptr, u_ptr = tl.where(is_f, share_f, share_g), tl.where(is_f, u_f, u_g)
    y_ptr, z_ptr, norm = tl.where(is_f, y_f, y_g), tl.where(is_f, z_f, z_g), tl.where(is_f, NORM_F, NORM_G)
    PIXELS: tl.constexpr = HEIGHT * SIDE
    first = tl.program_id(0).to(tl.int64) * PIXELS
    p, c = tl.arange(0, ROWS), tl.arange(0, WIDE)
    known = (p < PIXELS)[:, None]
    stored, inside = known & (c < SLOTS)[None, :], known & _used(c, SLOTS, GROUP, PADDED)[None, :]
    here = (first + p[:, None]) * CHANNELS + _channel(c, GROUP, PADDED)[None, :]
    x = _input(x_ptr, a_ptr, here, inside, GATED)
    scale, shift, bias = (_vector(vectors_ptr, 0, c, SLOTS), _vector(vectors_ptr, 1, c, SLOTS),
                          _vector(vectors_ptr, 2, c, SLOTS))
    y = tl.load(share_ptr + p[:, None] * SLOTS + c[None, :], mask=stored, other=0.0) * tl.load(t_ptr) + bias
    unit, _ = _normalise(x, inside, eps, PIXELS, ROWS, WIDE, GROUP, PADDED)
    u = tl.maximum(unit * scale + shift, 0.0, propagate_nan=tl.PropagateNan.ALL)  # NaN stays NaN, as in torch's ReLU
    maps = u_ptr + first * SLOTS
    tl.store(maps + p[:, None] * SLOTS + c[None, :], u, mask=stored)
    tl.debug_barrier()  # every pixel is written before a shifted one is read
    y = _convolve(y, maps, weight_ptr, 1, HEIGHT, SIDE, SLOTS, WIDE, ROWS, DEPTH, PRECISION)
    tl.store(y_ptr + here, y, mask=inside)
    if norm:
        y = tl.where(inside, y, 0.0)
        unit2, _ = _normalise(y, inside, eps, PIXELS, ROWS, WIDE, GROUP, PADDED)
        z = unit2 * _vector(vectors_ptr, 3, c, SLOTS) + _vector(vectors_ptr, 4, c, SLOTS)
        tl.store(z_ptr + here, z, mask=inside)


@triton.jit
def _add_at(at, value, known):
    tl.store(at, tl.load(at, mask=known, other=0.0) + value, mask=known)


@Serialised
@triton.jit
def layer_backward(x_ptr, a_ptr, t_ptr, dz_f, y_f, vectors_f, weight_f, dy_f, dx_f, affine_f, when_f, dz_g, y_g,
                   vectors_g, weight_g, dy_g, dx_g, affine_g, when_g, eps, HEIGHT: tl.constexpr, SIDE: tl.constexpr,
                   SLOTS: tl.constexpr, CHANNELS: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr,
                   DEPTH: tl.constexpr, GROUP: tl.constexpr, PADDED: tl.constexpr, PRECISION: tl.constexpr,
                   NORM_F: tl.constexpr, NORM_G: tl.constexpr, TRAINS_F: tl.constexpr, TRAINS_G: tl.constexpr,
                   GATED: tl.constexpr):
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
    p, c = tl.arange(0, ROWS), tl.arange(0, WIDE)
    known = (p < PIXELS)[:, None]
    inside = known & _used(c, SLOTS, GROUP, PADDED)[None, :]
    here = (sample * PIXELS + p[:, None]) * CHANNELS + _channel(c, GROUP, PADDED)[None, :]
    dy = tl.load(dz_ptr + here, mask=inside, other=0.0)
    affine = affine_ptr + sample * 4 * SLOTS + c
    if norm:
        y = tl.load(y_ptr + here, mask=inside, other=0.0)
        unit2, factor2 = _normalise(y, inside, eps, PIXELS, ROWS, WIDE, GROUP, PADDED)
        if trains:
            _add_at(affine + 2 * SLOTS, tl.sum(dy * unit2, axis=0), c < SLOTS)
            _add_at(affine + 3 * SLOTS, tl.sum(dy, axis=0), c < SLOTS)
        dy = _norm_gradient(dy * _vector(vectors_ptr, 3, c, SLOTS), unit2, factor2, PIXELS, ROWS, WIDE, GROUP, PADDED)
        if GROUP != PADDED:
            dy = tl.where(inside, dy, 0.0)
    maps = dy_ptr + sample * PIXELS * SLOTS
    tl.store(maps + p[:, None] * SLOTS + c[None, :], dy, mask=known & (c < SLOTS)[None, :])
    tl.debug_barrier()  # every pixel is written before a shifted one is read
    du = _convolve(tl.zeros((ROWS, WIDE), dtype=tl.float32), maps, weight_ptr, -1, HEIGHT, SIDE, SLOTS, WIDE, ROWS,
                   DEPTH, PRECISION)
    x = _input(x_ptr, a_ptr, here, inside, GATED)
    unit, factor = _normalise(x, inside, eps, PIXELS, ROWS, WIDE, GROUP, PADDED)
    scale, shift = _vector(vectors_ptr, 0, c, SLOTS), _vector(vectors_ptr, 1, c, SLOTS)
    du = tl.where(inside & (unit * scale + shift > 0), du, 0.0)
    if trains:
        _add_at(affine, tl.sum(du * unit, axis=0), c < SLOTS)
        _add_at(affine + SLOTS, tl.sum(du, axis=0), c < SLOTS)
        tl.store(when_ptr, tl.load(t_ptr))
    dx = _norm_gradient(du * scale, unit, factor, PIXELS, ROWS, WIDE, GROUP, PADDED)
    tl.store(dx_ptr + here, dx, mask=inside)


@Serialised
@triton.jit
def layer_weights(u_ptr, dy_ptr, when_ptr, sums_ptr, samples, batch, HEIGHT: tl.constexpr, SIDE: tl.constexpr,
                  SLOTS: tl.constexpr, TILE: tl.constexpr, EACH: tl.constexpr, BLOCK: tl.constexpr,
                  PRECISION: tl.constexpr):
    """Add the gradients of one tap's weights, its time weight and the bias, over EACH of the samples, to `sums`.

    A program computes a tile of the tap's matrix. The samples are those of several stages, each with its time. `sums`
    is (parts, 9, inputs + 2, outputs); its last two rows are for time and, at the middle tap, for the bias.
    """
    PIXELS: tl.constexpr = HEIGHT * SIDE
    TILES: tl.constexpr = (SLOTS + TILE - 1) // TILE
    tap, part = tl.program_id(0), tl.program_id(1)
    down, right = tap // 3 - 1, tap % 3 - 1
    first = tl.program_id(2) // TILES * TILE
    i, o = first + tl.arange(0, TILE), tl.program_id(2) % TILES * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    timed = tl.zeros((BLOCK, TILE), dtype=tl.float32)
    plain = tl.zeros((BLOCK, TILE), dtype=tl.float32)
    for sample in range(part * EACH, tl.minimum((part + 1) * EACH, samples)):
        t = tl.load(when_ptr + sample // batch)
        u_at, dy_at = u_ptr + sample * PIXELS * SLOTS, dy_ptr + sample * PIXELS * SLOTS
        for block in tl.static_range((PIXELS + BLOCK - 1) // BLOCK):
            p = block * BLOCK + tl.arange(0, BLOCK)
            r, s = p // SIDE + down, p % SIDE + right
            known = (p < PIXELS) & (r >= 0) & (r < HEIGHT) & (s >= 0) & (s < SIDE)
            u = tl.load(u_at + (p + down * SIDE + right)[None, :] * SLOTS + i[:, None],
                        mask=known[None, :] & (i < SLOTS)[:, None], other=0.0)
            dy = tl.load(dy_at + p[:, None] * SLOTS + o[None, :], mask=known[:, None] & (o < SLOTS)[None, :],
                         other=0.0)
            total = tl.dot(u, dy, total, input_precision=PRECISION)
            plain += dy
            timed += dy * t
    sums = sums_ptr + (part * 9 + tap) * (SLOTS + 2) * SLOTS
    _add_at(sums + i[:, None] * SLOTS + o[None, :], total, (i < SLOTS)[:, None] & (o < SLOTS)[None, :])
    if first == 0:
        _add_at(sums + SLOTS * SLOTS + o, tl.sum(timed, axis=0), o < SLOTS)
        _add_at(sums + (SLOTS + 1) * SLOTS + o, tl.sum(plain, axis=0), o < SLOTS)


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
    weight_tile: int  # inputs, and outputs, of a program
    weight_rows: int  # pixels that a product is summed over
    weight_parts: int  # of the samples, each with programs of its own
    weight_warps: int
    weight_stages: int

    @classmethod
    def of(cls, wide: int, precision: str) -> Tiling:
        """Return the fastest of those that were tried on an H200, for so many channels."""
        small = wide <= 64
        weights = (wide, 16, 56, 2, 3) if small and precision == "tf32" else (32, 16, 14, 1, 3)
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

    def __init__(self, norm: nn.GroupNorm, conv: TimeConvolution, after: nn.GroupNorm | None, like: Tensor,
                 precision: str, stages: int) -> None:
        self.norm, self.conv, self.after, self.eps = norm, conv, after, norm.eps
        slots = self.slots = ChannelSlots(norm, like.device)
        self.batch, channels, height, side = like.shape
        self.map, count = (height, side), slots.count
        rows, wide = block_size(height * side), block_size(count)
        self.tiling = Tiling.of(wide, precision)
        self.sizes = {"HEIGHT": height, "SIDE": side, "SLOTS": count, "PRECISION": precision}
        self.shape = self.sizes | {
            "CHANNELS": channels, "ROWS": rows, "WIDE": wide, "DEPTH": self.tiling.depth, "GROUP": slots.group,
            "PADDED": slots.slot, "num_warps": self.tiling.warps,
            "num_stages": pipeline_stages(rows, wide, self.tiling, like.device)}
        self.vectors = like.new_empty(5 * count)
        self.forward_weight, self.backward_weight = like.new_empty(2, 9, count, count)
        self.share = like.new_empty(height * side, count)
        self.inside = F.unfold(like.new_ones(1, 1, height, side), 3, padding=1)[0]  # (9, pixels)
        self.trains = conv.weight.requires_grad
        self.affine = like.new_zeros(self.batch, 4 * count)
        self.sums = like.new_zeros(self.tiling.weight_parts if self.trains else 1, 9, count + 2, count)
        self.stack: Tensor | None = None  # of u, for the stages of the current step
        self.grads = self._maps(stages if self.trains else 1, count)  # of y, for the same stages
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
        norm, conv, spread, after = self.norm, self.conv, self.slots.spread, self.after or self.norm
        torch.cat([spread(x) for x in (norm.weight, norm.bias, conv.bias, after.weight, after.bias)], out=self.vectors)
        weight = spread(spread(conv.weight.flatten(2)), dim=1)  # (outputs, inputs, 9)
        self.forward_weight.copy_(weight.permute(2, 0, 1))
        self.backward_weight.copy_(weight.permute(2, 1, 0))
        self.share.copy_(spread(conv.time.flatten(1)).matmul(self.inside).T)
        if self.trains:
            self.affine.zero_()
            self.sums.zero_()

    @torch.no_grad()
    def gradients(self) -> dict[nn.Parameter, Tensor]:
        """Return the gradients that were added up since the parameters were loaded."""
        conv, select = self.conv, self.slots.select
        sums = select(self.sums.sum(0), dim=2)
        scale, shift, scale2, shift2 = map(select, self.affine.sum(0).chunk(4))
        found = {conv.weight: select(sums[:, :-2], dim=1).permute(2, 1, 0).reshape(conv.weight.shape),
                 conv.time: sums[:, -2].T.reshape(conv.time.shape), conv.bias: sums[4, -1],
                 self.norm.weight: scale, self.norm.bias: shift}
        return found if self.after is None else found | {self.after.weight: scale2, self.after.bias: shift2}

    # Once a step --------------------------------------------------------------------------------------------------

    def begin_step(self, stages: int) -> None:
        """Prepare for `stages` evaluations that are differentiated together."""
        self.calls = 0
        if self.trains:
            self.stack = self._maps(stages, self.slots.count)

    def end_step(self) -> None:
        """Add up the weight gradients of all evaluations of the step that was differentiated."""
        stack, self.differentiated = self.differentiated, None
        if stack is None:
            return
        tiling = self.tiling
        each = triton.cdiv(len(stack), tiling.weight_parts)
        tiles = triton.cdiv(self.slots.count, tiling.weight_tile) ** 2
        layer_weights[(9, triton.cdiv(len(stack), each), tiles)](
            stack, self.grads, self.stage_times, self.sums, len(stack), self.batch, **self.sizes,
            TILE=tiling.weight_tile, EACH=each, BLOCK=tiling.weight_rows, num_warps=tiling.weight_warps,
            num_stages=tiling.weight_stages)

    def _of(self, stack: Tensor, index: int) -> Tensor:
        return stack[index * self.batch:(index + 1) * self.batch]

    # Once an evaluation -------------------------------------------------------------------------------------------

    def written_forward(self, read: tuple[Tensor, Tensor, Tensor], keep: bool) -> tuple[SavedForward, Tensor, Tensor]:
        """Allocate what the forward pass writes: what it saves, u, and the layer's output."""
        y = self._maps(1, self.slots.channels)
        z = torch.empty_like(y) if self.after is not None else y
        if not (keep and self.trains):
            return SavedForward(read, y, None, 0), self._maps(1, self.slots.count), z
        assert self.stack is not None
        saved = SavedForward(read, y, self.stack, self.calls)
        self.calls += 1
        return saved, self._of(self.stack, saved.number), z

    def written_backward(self, saved: SavedForward) -> tuple[Tensor, ...]:
        """Return what the backward pass writes: ∂y, ∂x, the norms' gradients and the time."""
        dy = self._of(self.grads, saved.number) if self.trains else self._maps(1, self.slots.count)
        self.differentiated = saved.stack
        return dy, self._maps(1, self.slots.channels), self.affine, self.stage_times[saved.number:saved.number + 1]


def run_layers(layers: Sequence[FusedLayer], read: tuple[Tensor, Tensor, Tensor],
               keep: bool) -> list[tuple[SavedForward, Tensor]]:
    """Run a layer, or the first ones of f and g in one launch; return what each saves and its output."""
    f, g = layers[0], layers[-1]
    made = [layer.written_forward(read, keep) for layer in layers]
    given = [(layer.vectors, layer.forward_weight, layer.share, u, saved.y, z)
             for layer, (saved, u, z) in zip(layers, made, strict=True)]
    layer_forward[(f.batch, len(layers))](
        *read, *given[0], *given[-1], f.eps, **f.shape, NORM_F=f.after is not None, NORM_G=g.after is not None,
        GATED=len(layers) == 2)
    return [(saved, z) for saved, _, z in made]


def differentiate_layers(layers: Sequence[FusedLayer], saved: Sequence[SavedForward],
                         grads: Sequence[Tensor]) -> list[Tensor]:
    """Differentiate what `run_layers` ran; return the gradients of x."""
    f, g = layers[0], layers[-1]
    made = [layer.written_backward(kept) for layer, kept in zip(layers, saved, strict=True)]
    given = [(grad, kept.y, layer.vectors, layer.backward_weight, *written)
             for layer, kept, grad, written in zip(layers, saved, grads, made, strict=True)]
    layer_backward[(f.batch, len(layers))](
        *saved[0].read, *given[0], *given[-1], f.eps, **f.shape, NORM_F=f.after is not None,
        NORM_G=g.after is not None, TRAINS_F=f.trains, TRAINS_G=g.trains, GATED=len(layers) == 2)
    return [dx for _, dx, *_ in made]


class FusedField:
    """f or g of an image model, or both on the attended h, layer by layer."""

    def __init__(self, networks: list[list[FusedLayer]]) -> None:
        self.networks = networks

    @classmethod
    def of(cls, field: TimeConvField, like: Tensor, precision: str, stages: int) -> FusedField:
        """Return a field by kernels, of which up to `stages` evaluations are differentiated together."""
        norms, convs = field.time_conv_layers()
        return cls([[FusedLayer(norm, conv, norms[-1] if conv is convs[-1] else None, like, precision, stages)
                     for norm, conv in zip(norms, convs, strict=False)]])

    @staticmethod
    def supports(field: TimeConvField, like: Tensor) -> bool:
        """Return True if its norms are alike and a map fits a program."""
        norms, _ = field.time_conv_layers()
        if len({(norm.num_channels, norm.num_groups, norm.eps) for norm in norms}) > 1:
            return False
        wide = block_size(ChannelSlots(norms[0], like.device).count)
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
