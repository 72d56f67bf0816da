"""GroupNorm–ReLU–Conv3x3 with time, and the GroupNorm that may follow, as one kernel a direction.

A program holds one sample's whole map, pixels down and channels across, so that both norms stay inside it. The
convolution is nine products, one a tap, with the map moved by that tap; a program writes the map down and reads it
back moved, which stays in the cache. Maps lie channels last.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _over_group(v, WIDTH: tl.constexpr, GROUP: tl.constexpr):
    """The sum of v over each channel's group, at every channel."""
    c = tl.arange(0, WIDTH)
    same = (c[:, None] // GROUP) == (c[None, :] // GROUP)
    return tl.sum(tl.where(same, v[None, :], 0.0), axis=1)


@triton.jit
def _normalise(x, inside, eps, PIXELS: tl.constexpr, WIDTH: tl.constexpr, GROUP: tl.constexpr):
    """x with every group at mean 0 and variance 1, and the factor that did it."""
    mean = _over_group(tl.sum(x, axis=0), WIDTH, GROUP) / (PIXELS * GROUP)
    centred = tl.where(inside, x - mean[None, :], 0.0)
    variance = _over_group(tl.sum(centred * centred, axis=0), WIDTH, GROUP) / (PIXELS * GROUP)
    factor = 1.0 / tl.sqrt(variance + eps)
    return centred * factor[None, :], factor


@triton.jit
def _norm_gradient(grad, unit, factor, PIXELS: tl.constexpr, WIDTH: tl.constexpr, GROUP: tl.constexpr):
    """The gradient of x from that of its normalised self, `unit`."""
    mean = _over_group(tl.sum(grad, axis=0), WIDTH, GROUP) / (PIXELS * GROUP)
    along = _over_group(tl.sum(grad * unit, axis=0), WIDTH, GROUP) / (PIXELS * GROUP)
    return (grad - mean[None, :] - unit * along[None, :]) * factor[None, :]


@triton.jit
def _moved(maps, row, column, down, right, c, HEIGHT: tl.constexpr, SIDE: tl.constexpr, CHANNELS: tl.constexpr):
    """A map moved by a tap, zero where it comes from outside."""
    r, s = row + down, column + right
    known = (row < HEIGHT) & (r >= 0) & (r < HEIGHT) & (s >= 0) & (s < SIDE)
    return tl.load(maps + (r * SIDE + s)[:, None] * CHANNELS + c[None, :],
                   mask=known[:, None] & (c < CHANNELS)[None, :], other=0.0)


@triton.jit
def layer_forward(x_ptr, scale_ptr, shift_ptr, weight_ptr, bias_ptr, share_ptr, t_ptr, scale2_ptr, shift2_ptr, u_ptr,
                  y_ptr, z_ptr, eps, eps2, HEIGHT: tl.constexpr, SIDE: tl.constexpr, INPUTS: tl.constexpr,
                  OUTPUTS: tl.constexpr, ROWS: tl.constexpr, WIDE_IN: tl.constexpr, WIDE_OUT: tl.constexpr,
                  GROUP: tl.constexpr, GROUP2: tl.constexpr, NORM: tl.constexpr, PRECISION: tl.constexpr):
    """u = ReLU(GN(x)), y = conv(u) + bias + t share, z = GN(y) where a norm follows."""
    PIXELS: tl.constexpr = HEIGHT * SIDE
    sample = tl.program_id(0).to(tl.int64)
    p, i, o = tl.arange(0, ROWS), tl.arange(0, WIDE_IN), tl.arange(0, WIDE_OUT)
    row, column = p // SIDE, p % SIDE
    inside = (p < PIXELS)[:, None] & (i < INPUTS)[None, :]
    here = p[:, None] * INPUTS + i[None, :]
    x = tl.load(x_ptr + sample * PIXELS * INPUTS + here, mask=inside, other=0.0)
    unit, _ = _normalise(x, inside, eps, PIXELS, WIDE_IN, GROUP)
    scale = tl.load(scale_ptr + i, mask=i < INPUTS, other=0.0)
    shift = tl.load(shift_ptr + i, mask=i < INPUTS, other=0.0)
    u = tl.maximum(unit * scale[None, :] + shift[None, :], 0.0)
    maps = u_ptr + sample * PIXELS * INPUTS
    tl.store(maps + here, u, mask=inside)
    tl.debug_barrier()  # every pixel is written before a moved one is read
    within = (p < PIXELS)[:, None] & (o < OUTPUTS)[None, :]
    there = p[:, None] * OUTPUTS + o[None, :]
    bias = tl.load(bias_ptr + o, mask=o < OUTPUTS, other=0.0)
    y = tl.load(share_ptr + there, mask=within, other=0.0) * tl.load(t_ptr) + bias[None, :]
    for tap in range(9):
        a = _moved(maps, row, column, tap // 3 - 1, tap % 3 - 1, i, HEIGHT, SIDE, INPUTS)
        w = tl.load(weight_ptr + tap * INPUTS * OUTPUTS + o[None, :] * INPUTS + i[:, None],
                    mask=(i < INPUTS)[:, None] & (o < OUTPUTS)[None, :], other=0.0)
        y = tl.dot(a, w, y, input_precision=PRECISION)
    tl.store(y_ptr + sample * PIXELS * OUTPUTS + there, y, mask=within)
    if NORM:
        unit2, _ = _normalise(tl.where(within, y, 0.0), within, eps2, PIXELS, WIDE_OUT, GROUP2)
        scale2 = tl.load(scale2_ptr + o, mask=o < OUTPUTS, other=0.0)
        shift2 = tl.load(shift2_ptr + o, mask=o < OUTPUTS, other=0.0)
        tl.store(z_ptr + sample * PIXELS * OUTPUTS + there, unit2 * scale2[None, :] + shift2[None, :], mask=within)


@triton.jit
def layer_backward(dz_ptr, x_ptr, y_ptr, scale_ptr, shift_ptr, weight_ptr, scale2_ptr, dy_ptr, dx_ptr, affine_ptr, eps,
                   eps2, HEIGHT: tl.constexpr, SIDE: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
                   ROWS: tl.constexpr, WIDE_IN: tl.constexpr, WIDE_OUT: tl.constexpr, GROUP: tl.constexpr,
                   GROUP2: tl.constexpr, NORM: tl.constexpr, TRAINS: tl.constexpr, PRECISION: tl.constexpr):
    """∂x from ∂z, and ∂y, which the weights' gradient needs; a sample's share of the norms' gradients is added up."""
    PIXELS: tl.constexpr = HEIGHT * SIDE
    sample = tl.program_id(0).to(tl.int64)
    p, i, o = tl.arange(0, ROWS), tl.arange(0, WIDE_IN), tl.arange(0, WIDE_OUT)
    row, column = p // SIDE, p % SIDE
    affine = affine_ptr + sample * (2 * INPUTS + 2 * OUTPUTS)
    maps = dy_ptr + sample * PIXELS * OUTPUTS
    if NORM:
        within = (p < PIXELS)[:, None] & (o < OUTPUTS)[None, :]
        there = sample * PIXELS * OUTPUTS + p[:, None] * OUTPUTS + o[None, :]
        y = tl.load(y_ptr + there, mask=within, other=0.0)
        dz = tl.load(dz_ptr + there, mask=within, other=0.0)
        unit2, factor2 = _normalise(y, within, eps2, PIXELS, WIDE_OUT, GROUP2)
        scale2 = tl.load(scale2_ptr + o, mask=o < OUTPUTS, other=0.0)
        if TRAINS:
            at = affine + 2 * INPUTS + o
            tl.store(at, tl.load(at, mask=o < OUTPUTS, other=0.0) + tl.sum(dz * unit2, axis=0), mask=o < OUTPUTS)
            at += OUTPUTS
            tl.store(at, tl.load(at, mask=o < OUTPUTS, other=0.0) + tl.sum(dz, axis=0), mask=o < OUTPUTS)
        dy = _norm_gradient(dz * scale2[None, :], unit2, factor2, PIXELS, WIDE_OUT, GROUP2)
        tl.store(dy_ptr + there, dy, mask=within)
        tl.debug_barrier()  # every pixel is written before a moved one is read
    du = tl.zeros((ROWS, WIDE_IN), dtype=tl.float32)
    for tap in range(9):
        a = _moved(maps, row, column, 1 - tap // 3, 1 - tap % 3, o, HEIGHT, SIDE, OUTPUTS)
        w = tl.load(weight_ptr + tap * INPUTS * OUTPUTS + i[None, :] * OUTPUTS + o[:, None],
                    mask=(o < OUTPUTS)[:, None] & (i < INPUTS)[None, :], other=0.0)
        du = tl.dot(a, w, du, input_precision=PRECISION)
    inside = (p < PIXELS)[:, None] & (i < INPUTS)[None, :]
    here = sample * PIXELS * INPUTS + p[:, None] * INPUTS + i[None, :]
    x = tl.load(x_ptr + here, mask=inside, other=0.0)
    unit, factor = _normalise(x, inside, eps, PIXELS, WIDE_IN, GROUP)
    scale = tl.load(scale_ptr + i, mask=i < INPUTS, other=0.0)
    shift = tl.load(shift_ptr + i, mask=i < INPUTS, other=0.0)
    du = tl.where(inside & (unit * scale[None, :] + shift[None, :] > 0), du, 0.0)
    if TRAINS:
        at = affine + i
        tl.store(at, tl.load(at, mask=i < INPUTS, other=0.0) + tl.sum(du * unit, axis=0), mask=i < INPUTS)
        at += INPUTS
        tl.store(at, tl.load(at, mask=i < INPUTS, other=0.0) + tl.sum(du, axis=0), mask=i < INPUTS)
    tl.store(dx_ptr + here, _norm_gradient(du * scale[None, :], unit, factor, PIXELS, WIDE_IN, GROUP), mask=inside)


@triton.jit
def layer_weights(u_ptr, dy_ptr, t_ptr, sums_ptr, rows, HEIGHT: tl.constexpr, SIDE: tl.constexpr,
                  INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, WIDE_IN: tl.constexpr, WIDE_OUT: tl.constexpr,
                  EACH: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr):
    """Adds the gradients of one tap's weights, its time weight and the bias, over a part of all pixels, to `sums`.

    `sums` is (parts, 9, inputs + 2, outputs); the last two rows are of time and, at the middle tap, of the bias.
    """
    tap, part = tl.program_id(0), tl.program_id(1)
    down, right = tap // 3 - 1, tap % 3 - 1
    i, o = tl.arange(0, WIDE_IN), tl.arange(0, WIDE_OUT)
    total = tl.zeros((WIDE_IN, WIDE_OUT), dtype=tl.float32)
    column_sum = tl.zeros((WIDE_OUT,), dtype=tl.float32)
    for step in range(EACH // BLOCK):
        n = part * EACH + step * BLOCK + tl.arange(0, BLOCK)
        r, s = (n % (HEIGHT * SIDE)) // SIDE + down, n % SIDE + right
        known = (n < rows) & (r >= 0) & (r < HEIGHT) & (s >= 0) & (s < SIDE)
        u = tl.load(u_ptr + (n + down * SIDE + right)[None, :] * INPUTS + i[:, None],
                    mask=known[None, :] & (i < INPUTS)[:, None], other=0.0)
        dy = tl.load(dy_ptr + n[:, None] * OUTPUTS + o[None, :], mask=known[:, None] & (o < OUTPUTS)[None, :],
                     other=0.0)
        total = tl.dot(u, dy, total, input_precision=PRECISION)
        column_sum += tl.sum(dy, axis=0)
    sums = sums_ptr + (part * 9 + tap) * (INPUTS + 2) * OUTPUTS
    at = sums + i[:, None] * OUTPUTS + o[None, :]
    ours = (i < INPUTS)[:, None] & (o < OUTPUTS)[None, :]
    tl.store(at, tl.load(at, mask=ours, other=0.0) + total, mask=ours)
    last = sums + INPUTS * OUTPUTS + o
    tl.store(last, tl.load(last, mask=o < OUTPUTS, other=0.0) + column_sum * tl.load(t_ptr), mask=o < OUTPUTS)
    last += OUTPUTS
    tl.store(last, tl.load(last, mask=o < OUTPUTS, other=0.0) + column_sum, mask=o < OUTPUTS)
