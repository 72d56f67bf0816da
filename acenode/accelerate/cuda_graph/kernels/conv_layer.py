"""GroupNorm–ReLU–Conv3x3 with time, and the GroupNorm that may follow, as one kernel forward and one backward.

A program holds the whole map of one sample, pixels by channels, so that both norms are computed inside it. The
convolution is nine matrix products, one per tap, with the map shifted by that tap, each summed over DEPTH channels at a
time; a program writes the map to memory and reads it back shifted, which stays in the cache. Maps are stored channels
last.

The vectors of a layer are stored one after the other: scale and shift of its norm, its bias, scale and shift of the
norm that follows. The first layers of f and g run in one launch, half of the programs each, and compute their input,
the attended h φ(a), themselves. The two halves differ only in the pointers that they select: with a branch for each, a
program would reserve the shared memory of both.

A mean over a group is a sum over an axis of fixed length, a power of two. Groups of another size are padded to it: the
kernels then number slots instead of channels (`fused_field.ChannelSlots`). Parameters, u, ∂y and the parameter
gradients are stored by slots, INPUTS and OUTPUTS of them, with zeros in those that are not used. The maps that other
code reads or writes, x, y, z and their gradients, are stored by channels, REAL_IN and REAL_OUT of them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from acenode.accelerate.triton_support import Serialised


@triton.jit
def _channel(slot, GROUP: tl.constexpr, SLOT: tl.constexpr):
    """Return the channel in a slot."""
    channel = slot
    if GROUP != SLOT:
        channel = (slot // SLOT) * GROUP + slot % SLOT
    return channel


@triton.jit
def _used(slot, COUNT: tl.constexpr, GROUP: tl.constexpr, SLOT: tl.constexpr):
    """Return whether a slot has a channel."""
    used = slot < COUNT
    if GROUP != SLOT:
        used = used & (slot % SLOT < GROUP)
    return used


@triton.jit
def _group_mean(x, PIXELS: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr, GROUP: tl.constexpr,
                SLOT: tl.constexpr):
    """Return the mean of x over all pixels and each channel's group, broadcast to the shape of x.

    x must be 0 in slots that are not used.
    """
    groups = tl.sum(tl.sum(tl.reshape(x, (ROWS, WIDE // SLOT, SLOT)), axis=2), axis=0)
    spread = tl.broadcast_to(groups[None, :, None], (ROWS, WIDE // SLOT, SLOT))
    return tl.reshape(spread, (ROWS, WIDE)) / (PIXELS * GROUP)


@triton.jit
def _normalise(x, inside, eps, PIXELS: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr, GROUP: tl.constexpr,
               SLOT: tl.constexpr):
    """Return x with every group at mean 0 and variance 1, and the factor 1/σ."""
    centred = tl.where(inside, x - _group_mean(x, PIXELS, ROWS, WIDE, GROUP, SLOT), 0.0)
    factor = 1.0 / tl.sqrt(_group_mean(centred * centred, PIXELS, ROWS, WIDE, GROUP, SLOT) + eps)
    return centred * factor, factor


@triton.jit
def _norm_gradient(grad, unit, factor, PIXELS: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr,
                   GROUP: tl.constexpr, SLOT: tl.constexpr):
    """Return the gradient of x from that of its normalised value, `unit`."""
    mean = _group_mean(grad, PIXELS, ROWS, WIDE, GROUP, SLOT)
    along = _group_mean(grad * unit, PIXELS, ROWS, WIDE, GROUP, SLOT)
    return (grad - mean - unit * along) * factor


@triton.jit
def _convolve(total, maps, weight_ptr, SIGN: tl.constexpr, HEIGHT: tl.constexpr, SIDE: tl.constexpr,
              FROM: tl.constexpr, TO: tl.constexpr, WIDE_TO: tl.constexpr, ROWS: tl.constexpr, DEPTH: tl.constexpr,
              PRECISION: tl.constexpr):
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
def _input(x_ptr, a_ptr, at, inside, GATED: tl.constexpr):
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    if GATED:
        x = x / (1.0 + tl.exp(-tl.load(a_ptr + at, mask=inside, other=0.0)))
    return x


@triton.jit
def _vector(ptr, c, CHANNELS: tl.constexpr):
    return tl.load(ptr + c, mask=c < CHANNELS, other=0.0)[None, :]


@triton.jit
def _forward(x_ptr, a_ptr, t_ptr, vectors_ptr, weight_ptr, share_ptr, u_ptr, y_ptr, z_ptr, eps, eps2, norm,
             HEIGHT: tl.constexpr, SIDE: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
             REAL_IN: tl.constexpr, REAL_OUT: tl.constexpr, ROWS: tl.constexpr, WIDE_IN: tl.constexpr,
             WIDE_OUT: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr, SLOT: tl.constexpr,
             GROUP2: tl.constexpr, SLOT2: tl.constexpr, GATED: tl.constexpr, PRECISION: tl.constexpr):
    """Compute u = ReLU(GN(x)), y = conv(u) + bias + t·share and, where a norm follows, z = GN(y)."""
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


@Serialised
@triton.jit
def layer_forward(x_ptr, t_ptr, vectors_ptr, weight_ptr, share_ptr, u_ptr, y_ptr, z_ptr, eps, eps2,
                  HEIGHT: tl.constexpr, SIDE: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
                  REAL_IN: tl.constexpr, REAL_OUT: tl.constexpr, ROWS: tl.constexpr, WIDE_IN: tl.constexpr,
                  WIDE_OUT: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr, SLOT: tl.constexpr,
                  GROUP2: tl.constexpr, SLOT2: tl.constexpr, PRECISION: tl.constexpr, NORM: tl.constexpr):
    """Compute one layer of f or g."""
    _forward(x_ptr, x_ptr, t_ptr, vectors_ptr, weight_ptr, share_ptr, u_ptr, y_ptr, z_ptr, eps, eps2, NORM, HEIGHT,
             SIDE, INPUTS, OUTPUTS, REAL_IN, REAL_OUT, ROWS, WIDE_IN, WIDE_OUT, DEPTH, GROUP, SLOT, GROUP2, SLOT2,
             False, PRECISION)


@Serialised
@triton.jit
def pair_forward(h_ptr, a_ptr, t_ptr, vectors_f, weight_f, share_f, u_f, y_f, z_f, vectors_g, weight_g, share_g, u_g,
                 y_g, z_g, eps, eps2, HEIGHT: tl.constexpr, SIDE: tl.constexpr, INPUTS: tl.constexpr,
                 OUTPUTS: tl.constexpr, REAL_IN: tl.constexpr, REAL_OUT: tl.constexpr, ROWS: tl.constexpr,
                 WIDE_IN: tl.constexpr, WIDE_OUT: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr,
                 SLOT: tl.constexpr, GROUP2: tl.constexpr, SLOT2: tl.constexpr, PRECISION: tl.constexpr,
                 NORM_F: tl.constexpr, NORM_G: tl.constexpr):
    """Compute the first layers of f and g on the attended h."""
    is_f = tl.program_id(1) == 0
    _forward(h_ptr, a_ptr, t_ptr, tl.where(is_f, vectors_f, vectors_g), tl.where(is_f, weight_f, weight_g),
             tl.where(is_f, share_f, share_g), tl.where(is_f, u_f, u_g), tl.where(is_f, y_f, y_g),
             tl.where(is_f, z_f, z_g), eps, eps2, tl.where(is_f, NORM_F, NORM_G), HEIGHT, SIDE, INPUTS, OUTPUTS,
             REAL_IN, REAL_OUT, ROWS, WIDE_IN, WIDE_OUT, DEPTH, GROUP, SLOT, GROUP2, SLOT2, True, PRECISION)


@triton.jit
def _add_at(at, value, known):
    tl.store(at, tl.load(at, mask=known, other=0.0) + value, mask=known)


@triton.jit
def _backward(dz_ptr, x_ptr, a_ptr, t_ptr, y_ptr, vectors_ptr, weight_ptr, dy_ptr, dx_ptr, affine_ptr, when_ptr, eps,
              eps2, norm, trains, HEIGHT: tl.constexpr, SIDE: tl.constexpr, INPUTS: tl.constexpr,
              OUTPUTS: tl.constexpr, REAL_IN: tl.constexpr, REAL_OUT: tl.constexpr, ROWS: tl.constexpr,
              WIDE_IN: tl.constexpr, WIDE_OUT: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr,
              SLOT: tl.constexpr, GROUP2: tl.constexpr, SLOT2: tl.constexpr, GATED: tl.constexpr,
              PRECISION: tl.constexpr):
    """Compute ∂x from ∂z, and store ∂y and its time for the weight gradient; add the sample's norm gradients."""
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
def layer_backward(x_ptr, t_ptr, dz_ptr, y_ptr, vectors_ptr, weight_ptr, dy_ptr, dx_ptr, affine_ptr, when_ptr, eps,
                   eps2, HEIGHT: tl.constexpr, SIDE: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
                   REAL_IN: tl.constexpr, REAL_OUT: tl.constexpr, ROWS: tl.constexpr, WIDE_IN: tl.constexpr,
                   WIDE_OUT: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr, SLOT: tl.constexpr,
                   GROUP2: tl.constexpr, SLOT2: tl.constexpr, PRECISION: tl.constexpr, NORM: tl.constexpr,
                   TRAINS: tl.constexpr):
    """Differentiate one layer of f or g."""
    _backward(dz_ptr, x_ptr, x_ptr, t_ptr, y_ptr, vectors_ptr, weight_ptr, dy_ptr, dx_ptr, affine_ptr, when_ptr, eps,
              eps2, NORM, TRAINS, HEIGHT, SIDE, INPUTS, OUTPUTS, REAL_IN, REAL_OUT, ROWS, WIDE_IN, WIDE_OUT, DEPTH,
              GROUP, SLOT, GROUP2, SLOT2, False, PRECISION)


@Serialised
@triton.jit
def pair_backward(h_ptr, a_ptr, t_ptr, dz_f, y_f, vectors_f, weight_f, dy_f, dx_f, affine_f, when_f, dz_g, y_g,
                  vectors_g, weight_g, dy_g, dx_g, affine_g, when_g, eps, eps2, HEIGHT: tl.constexpr,
                  SIDE: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, REAL_IN: tl.constexpr,
                  REAL_OUT: tl.constexpr, ROWS: tl.constexpr, WIDE_IN: tl.constexpr, WIDE_OUT: tl.constexpr,
                  DEPTH: tl.constexpr, GROUP: tl.constexpr, SLOT: tl.constexpr, GROUP2: tl.constexpr,
                  SLOT2: tl.constexpr, PRECISION: tl.constexpr, NORM_F: tl.constexpr, NORM_G: tl.constexpr,
                  TRAINS_F: tl.constexpr, TRAINS_G: tl.constexpr):
    """Differentiate the first layers of f and g; each writes its own term of the gradient of the attended h."""
    is_f = tl.program_id(1) == 0
    _backward(tl.where(is_f, dz_f, dz_g), h_ptr, a_ptr, t_ptr, tl.where(is_f, y_f, y_g),
              tl.where(is_f, vectors_f, vectors_g), tl.where(is_f, weight_f, weight_g), tl.where(is_f, dy_f, dy_g),
              tl.where(is_f, dx_f, dx_g), tl.where(is_f, affine_f, affine_g), tl.where(is_f, when_f, when_g), eps, eps2,
              tl.where(is_f, NORM_F, NORM_G), tl.where(is_f, TRAINS_F, TRAINS_G), HEIGHT, SIDE, INPUTS, OUTPUTS,
              REAL_IN, REAL_OUT, ROWS, WIDE_IN, WIDE_OUT, DEPTH, GROUP, SLOT, GROUP2, SLOT2, True, PRECISION)


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
