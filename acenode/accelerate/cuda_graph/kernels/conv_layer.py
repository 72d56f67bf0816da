"""GroupNorm–ReLU–Conv3x3 with time, and the GroupNorm that may follow, as one kernel forward and one backward.

A program holds the whole map of one sample, pixels by channels, so that both norms are computed inside it. The
convolution is nine matrix products, one per tap, with the map shifted by that tap; a program writes the map to memory
and reads it back shifted, which stays in the cache. Maps are stored channels last.

The vectors of a layer are stored one after the other: scale and shift of its norm, its bias, scale and shift of the
norm that follows. The first layers of f and g run in one launch, half of the programs each, and compute their input,
the attended h φ(a), themselves.

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
def _shifted(maps, row, column, down, right, c, HEIGHT: tl.constexpr, SIDE: tl.constexpr, CHANNELS: tl.constexpr):
    """Return a map shifted by a tap, zero outside its edges."""
    r, s = row + down, column + right
    known = (row < HEIGHT) & (r >= 0) & (r < HEIGHT) & (s >= 0) & (s < SIDE)
    return tl.load(maps + (r * SIDE + s)[:, None] * CHANNELS + c[None, :],
                   mask=known[:, None] & (c < CHANNELS)[None, :], other=0.0)


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
def _forward(x_ptr, a_ptr, t_ptr, vectors_ptr, weight_ptr, share_ptr, u_ptr, y_ptr, z_ptr, eps, eps2,
             HEIGHT: tl.constexpr, SIDE: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
             REAL_IN: tl.constexpr, REAL_OUT: tl.constexpr, ROWS: tl.constexpr, WIDE_IN: tl.constexpr,
             WIDE_OUT: tl.constexpr, GROUP: tl.constexpr, SLOT: tl.constexpr, GROUP2: tl.constexpr,
             SLOT2: tl.constexpr, NORM: tl.constexpr, GATED: tl.constexpr, PRECISION: tl.constexpr):
    """Compute u = ReLU(GN(x)), y = conv(u) + bias + t·share and, where a norm follows, z = GN(y)."""
    PIXELS: tl.constexpr = HEIGHT * SIDE
    sample = tl.program_id(0).to(tl.int64)
    p, i, o = tl.arange(0, ROWS), tl.arange(0, WIDE_IN), tl.arange(0, WIDE_OUT)
    row, column = p // SIDE, p % SIDE
    inside = (p < PIXELS)[:, None] & _used(i, INPUTS, GROUP, SLOT)[None, :]
    here = p[:, None] * REAL_IN + _channel(i, GROUP, SLOT)[None, :]
    x = _input(x_ptr, a_ptr, sample * PIXELS * REAL_IN + here, inside, GATED)
    unit, _ = _normalise(x, inside, eps, PIXELS, ROWS, WIDE_IN, GROUP, SLOT)
    affine = unit * _vector(vectors_ptr, i, INPUTS) + _vector(vectors_ptr + INPUTS, i, INPUTS)
    u = tl.maximum(affine, 0.0, propagate_nan=tl.PropagateNan.ALL)  # NaN stays NaN, as in torch's ReLU
    maps = u_ptr + sample * PIXELS * INPUTS
    tl.store(maps + p[:, None] * INPUTS + i[None, :], u, mask=(p < PIXELS)[:, None] & (i < INPUTS)[None, :])
    tl.debug_barrier()  # every pixel is written before a shifted one is read
    y = tl.load(share_ptr + p[:, None] * OUTPUTS + o[None, :], mask=(p < PIXELS)[:, None] & (o < OUTPUTS)[None, :],
                other=0.0) * tl.load(t_ptr)
    y += _vector(vectors_ptr + 2 * INPUTS, o, OUTPUTS)
    for tap in range(9):
        a = _shifted(maps, row, column, tap // 3 - 1, tap % 3 - 1, i, HEIGHT, SIDE, INPUTS)
        w = tl.load(weight_ptr + tap * INPUTS * OUTPUTS + o[None, :] * INPUTS + i[:, None],
                    mask=(i < INPUTS)[:, None] & (o < OUTPUTS)[None, :], other=0.0)
        y = tl.dot(a, w, y, input_precision=PRECISION)
    within = (p < PIXELS)[:, None] & _used(o, OUTPUTS, GROUP2, SLOT2)[None, :]
    there = p[:, None] * REAL_OUT + _channel(o, GROUP2, SLOT2)[None, :]
    tl.store(y_ptr + sample * PIXELS * REAL_OUT + there, y, mask=within)
    if NORM:
        unit2, _ = _normalise(tl.where(within, y, 0.0), within, eps2, PIXELS, ROWS, WIDE_OUT, GROUP2, SLOT2)
        after = vectors_ptr + 2 * INPUTS + OUTPUTS
        z = unit2 * _vector(after, o, OUTPUTS) + _vector(after + OUTPUTS, o, OUTPUTS)
        tl.store(z_ptr + sample * PIXELS * REAL_OUT + there, z, mask=within)


@Serialised
@triton.jit
def layer_forward(x_ptr, a_ptr, t_ptr, vectors_ptr, weight_ptr, share_ptr, u_ptr, y_ptr, z_ptr, eps, eps2,
                  HEIGHT: tl.constexpr, SIDE: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
                  REAL_IN: tl.constexpr, REAL_OUT: tl.constexpr, ROWS: tl.constexpr, WIDE_IN: tl.constexpr,
                  WIDE_OUT: tl.constexpr, GROUP: tl.constexpr, SLOT: tl.constexpr, GROUP2: tl.constexpr,
                  SLOT2: tl.constexpr, PRECISION: tl.constexpr, NORM: tl.constexpr):
    """Compute one layer of f or g."""
    _forward(x_ptr, a_ptr, t_ptr, vectors_ptr, weight_ptr, share_ptr, u_ptr, y_ptr, z_ptr, eps, eps2, HEIGHT, SIDE,
             INPUTS, OUTPUTS, REAL_IN, REAL_OUT, ROWS, WIDE_IN, WIDE_OUT, GROUP, SLOT, GROUP2, SLOT2, NORM, False,
             PRECISION)


@Serialised
@triton.jit
def pair_forward(h_ptr, a_ptr, t_ptr, vectors_f, weight_f, share_f, u_f, y_f, z_f, vectors_g, weight_g, share_g, u_g,
                 y_g, z_g, eps, eps2, HEIGHT: tl.constexpr, SIDE: tl.constexpr, INPUTS: tl.constexpr,
                 OUTPUTS: tl.constexpr, REAL_IN: tl.constexpr, REAL_OUT: tl.constexpr, ROWS: tl.constexpr,
                 WIDE_IN: tl.constexpr, WIDE_OUT: tl.constexpr, GROUP: tl.constexpr, SLOT: tl.constexpr,
                 GROUP2: tl.constexpr, SLOT2: tl.constexpr, PRECISION: tl.constexpr, NORM_F: tl.constexpr,
                 NORM_G: tl.constexpr):
    """Compute the first layers of f and g on the attended h."""
    if tl.program_id(1) == 0:
        _forward(h_ptr, a_ptr, t_ptr, vectors_f, weight_f, share_f, u_f, y_f, z_f, eps, eps2, HEIGHT, SIDE, INPUTS,
                 OUTPUTS, REAL_IN, REAL_OUT, ROWS, WIDE_IN, WIDE_OUT, GROUP, SLOT, GROUP2, SLOT2, NORM_F, True,
                 PRECISION)
    else:
        _forward(h_ptr, a_ptr, t_ptr, vectors_g, weight_g, share_g, u_g, y_g, z_g, eps, eps2, HEIGHT, SIDE, INPUTS,
                 OUTPUTS, REAL_IN, REAL_OUT, ROWS, WIDE_IN, WIDE_OUT, GROUP, SLOT, GROUP2, SLOT2, NORM_G, True,
                 PRECISION)


@triton.jit
def _add_at(at, value, known):
    tl.store(at, tl.load(at, mask=known, other=0.0) + value, mask=known)


@triton.jit
def _backward(dz_ptr, x_ptr, a_ptr, t_ptr, y_ptr, vectors_ptr, weight_ptr, dy_ptr, dx_ptr, affine_ptr, when_ptr, eps,
              eps2, HEIGHT: tl.constexpr, SIDE: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
              REAL_IN: tl.constexpr, REAL_OUT: tl.constexpr, ROWS: tl.constexpr, WIDE_IN: tl.constexpr,
              WIDE_OUT: tl.constexpr, GROUP: tl.constexpr, SLOT: tl.constexpr, GROUP2: tl.constexpr,
              SLOT2: tl.constexpr, NORM: tl.constexpr, TRAINS: tl.constexpr, GATED: tl.constexpr,
              PRECISION: tl.constexpr):
    """Compute ∂x from ∂z, and store ∂y and its time for the weight gradient; add the sample's norm gradients."""
    PIXELS: tl.constexpr = HEIGHT * SIDE
    sample = tl.program_id(0).to(tl.int64)
    p, i, o = tl.arange(0, ROWS), tl.arange(0, WIDE_IN), tl.arange(0, WIDE_OUT)
    row, column = p // SIDE, p % SIDE
    affine = affine_ptr + sample * (2 * INPUTS + 2 * OUTPUTS)
    maps = dz_ptr + sample * PIXELS * OUTPUTS
    if (NORM or TRAINS) or GROUP2 != SLOT2:
        within = (p < PIXELS)[:, None] & _used(o, OUTPUTS, GROUP2, SLOT2)[None, :]
        there = sample * PIXELS * REAL_OUT + p[:, None] * REAL_OUT + _channel(o, GROUP2, SLOT2)[None, :]
        dy = tl.load(dz_ptr + there, mask=within, other=0.0)
        if NORM:
            y = tl.load(y_ptr + there, mask=within, other=0.0)
            unit2, factor2 = _normalise(y, within, eps2, PIXELS, ROWS, WIDE_OUT, GROUP2, SLOT2)
            if TRAINS:
                _add_at(affine + 2 * INPUTS + o, tl.sum(dy * unit2, axis=0), o < OUTPUTS)
                _add_at(affine + 2 * INPUTS + OUTPUTS + o, tl.sum(dy, axis=0), o < OUTPUTS)
            scale2 = _vector(vectors_ptr + 2 * INPUTS + OUTPUTS, o, OUTPUTS)
            dy = _norm_gradient(dy * scale2, unit2, factor2, PIXELS, ROWS, WIDE_OUT, GROUP2, SLOT2)
            if GROUP2 != SLOT2:
                dy = tl.where(within, dy, 0.0)
        maps = dy_ptr + sample * PIXELS * OUTPUTS
        tl.store(maps + p[:, None] * OUTPUTS + o[None, :], dy, mask=(p < PIXELS)[:, None] & (o < OUTPUTS)[None, :])
        tl.debug_barrier()  # every pixel is written before a shifted one is read
    du = tl.zeros((ROWS, WIDE_IN), dtype=tl.float32)
    for tap in range(9):
        a = _shifted(maps, row, column, 1 - tap // 3, 1 - tap % 3, o, HEIGHT, SIDE, OUTPUTS)
        w = tl.load(weight_ptr + tap * INPUTS * OUTPUTS + i[None, :] * OUTPUTS + o[:, None],
                    mask=(o < OUTPUTS)[:, None] & (i < INPUTS)[None, :], other=0.0)
        du = tl.dot(a, w, du, input_precision=PRECISION)
    inside = (p < PIXELS)[:, None] & _used(i, INPUTS, GROUP, SLOT)[None, :]
    here = sample * PIXELS * REAL_IN + p[:, None] * REAL_IN + _channel(i, GROUP, SLOT)[None, :]
    x = _input(x_ptr, a_ptr, here, inside, GATED)
    unit, factor = _normalise(x, inside, eps, PIXELS, ROWS, WIDE_IN, GROUP, SLOT)
    scale = _vector(vectors_ptr, i, INPUTS)
    du = tl.where(inside & (unit * scale + _vector(vectors_ptr + INPUTS, i, INPUTS) > 0), du, 0.0)
    if TRAINS:
        _add_at(affine + i, tl.sum(du * unit, axis=0), i < INPUTS)
        _add_at(affine + INPUTS + i, tl.sum(du, axis=0), i < INPUTS)
        tl.store(when_ptr, tl.load(t_ptr))
    tl.store(dx_ptr + here, _norm_gradient(du * scale, unit, factor, PIXELS, ROWS, WIDE_IN, GROUP, SLOT), mask=inside)


@Serialised
@triton.jit
def layer_backward(dz_ptr, x_ptr, a_ptr, t_ptr, y_ptr, vectors_ptr, weight_ptr, dy_ptr, dx_ptr, affine_ptr, when_ptr,
                   eps, eps2, HEIGHT: tl.constexpr, SIDE: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
                   REAL_IN: tl.constexpr, REAL_OUT: tl.constexpr, ROWS: tl.constexpr, WIDE_IN: tl.constexpr,
                   WIDE_OUT: tl.constexpr, GROUP: tl.constexpr, SLOT: tl.constexpr, GROUP2: tl.constexpr,
                   SLOT2: tl.constexpr, PRECISION: tl.constexpr, NORM: tl.constexpr, TRAINS: tl.constexpr):
    """Differentiate one layer of f or g."""
    _backward(dz_ptr, x_ptr, a_ptr, t_ptr, y_ptr, vectors_ptr, weight_ptr, dy_ptr, dx_ptr, affine_ptr, when_ptr, eps,
              eps2, HEIGHT, SIDE, INPUTS, OUTPUTS, REAL_IN, REAL_OUT, ROWS, WIDE_IN, WIDE_OUT, GROUP, SLOT, GROUP2,
              SLOT2, NORM, TRAINS, False, PRECISION)


@Serialised
@triton.jit
def pair_backward(h_ptr, a_ptr, t_ptr, dz_f, y_f, vectors_f, weight_f, dy_f, dx_f, affine_f, when_f, dz_g, y_g,
                  vectors_g, weight_g, dy_g, dx_g, affine_g, when_g, eps, eps2, HEIGHT: tl.constexpr,
                  SIDE: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, REAL_IN: tl.constexpr,
                  REAL_OUT: tl.constexpr, ROWS: tl.constexpr, WIDE_IN: tl.constexpr, WIDE_OUT: tl.constexpr,
                  GROUP: tl.constexpr, SLOT: tl.constexpr, GROUP2: tl.constexpr, SLOT2: tl.constexpr,
                  PRECISION: tl.constexpr, NORM_F: tl.constexpr, NORM_G: tl.constexpr, TRAINS_F: tl.constexpr,
                  TRAINS_G: tl.constexpr):
    """Differentiate the first layers of f and g; each writes its own term of the gradient of the attended h."""
    if tl.program_id(1) == 0:
        _backward(dz_f, h_ptr, a_ptr, t_ptr, y_f, vectors_f, weight_f, dy_f, dx_f, affine_f, when_f, eps, eps2, HEIGHT,
                  SIDE, INPUTS, OUTPUTS, REAL_IN, REAL_OUT, ROWS, WIDE_IN, WIDE_OUT, GROUP, SLOT, GROUP2, SLOT2,
                  NORM_F, TRAINS_F, True, PRECISION)
    else:
        _backward(dz_g, h_ptr, a_ptr, t_ptr, y_g, vectors_g, weight_g, dy_g, dx_g, affine_g, when_g, eps, eps2, HEIGHT,
                  SIDE, INPUTS, OUTPUTS, REAL_IN, REAL_OUT, ROWS, WIDE_IN, WIDE_OUT, GROUP, SLOT, GROUP2, SLOT2,
                  NORM_G, TRAINS_G, True, PRECISION)


@Serialised
@triton.jit
def layer_weights(u_ptr, dy_ptr, when_ptr, sums_ptr, rows, each_stage, HEIGHT: tl.constexpr, SIDE: tl.constexpr,
                  INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, WIDE_IN: tl.constexpr, WIDE_OUT: tl.constexpr,
                  EACH: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr):
    """Add the gradients of one tap's weights, its time weight and the bias, over a part of all pixels, to `sums`.

    The pixels are those of several stages, each with its time. `sums` is (parts, 9, inputs + 2, outputs); its last two
    rows are for time and, at the middle tap, for the bias.
    """
    tap, part = tl.program_id(0), tl.program_id(1)
    down, right = tap // 3 - 1, tap % 3 - 1
    i, o = tl.arange(0, WIDE_IN), tl.arange(0, WIDE_OUT)
    total = tl.zeros((WIDE_IN, WIDE_OUT), dtype=tl.float32)
    timed = tl.zeros((WIDE_OUT,), dtype=tl.float32)
    plain = tl.zeros((WIDE_OUT,), dtype=tl.float32)
    for step in range(EACH // BLOCK):
        n = part * EACH + step * BLOCK + tl.arange(0, BLOCK)
        r, s = (n % (HEIGHT * SIDE)) // SIDE + down, n % SIDE + right
        known = (n < rows) & (r >= 0) & (r < HEIGHT) & (s >= 0) & (s < SIDE)
        u = tl.load(u_ptr + (n + down * SIDE + right)[None, :] * INPUTS + i[:, None],
                    mask=known[None, :] & (i < INPUTS)[:, None], other=0.0)
        dy = tl.load(dy_ptr + n[:, None] * OUTPUTS + o[None, :], mask=known[:, None] & (o < OUTPUTS)[None, :],
                     other=0.0)
        total = tl.dot(u, dy, total, input_precision=PRECISION)
        plain += tl.sum(dy, axis=0)
        timed += tl.sum(dy * tl.load(when_ptr + n // each_stage, mask=known, other=0.0)[:, None], axis=0)
    sums = sums_ptr + (part * 9 + tap) * (INPUTS + 2) * OUTPUTS
    _add_at(sums + i[:, None] * OUTPUTS + o[None, :], total, (i < INPUTS)[:, None] & (o < OUTPUTS)[None, :])
    _add_at(sums + INPUTS * OUTPUTS + o, timed, o < OUTPUTS)
    _add_at(sums + (INPUTS + 1) * OUTPUTS + o, plain, o < OUTPUTS)
