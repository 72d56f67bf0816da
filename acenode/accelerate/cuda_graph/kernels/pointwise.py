"""Kernels over whole states: combinations of stages, error norms, stored states, and the gradient of attention.

Most take two blocks, h and a, and the second program index chooses between them; a state of one block is passed twice
and launched once. Values that depend on the step are read from the device.
"""

from __future__ import annotations

import triton
import triton.language as tl

from acenode.accelerate.triton_support import Serialised


@triton.jit
def _combine(base_ptr, k0, k1, k2, k3, k4, k5, k6, k7, dt, weights_ptr, at, mask, BASE: tl.constexpr,
             TERMS: tl.constexpr):
    """Return base + Σ dt w_i k_i at the given indices."""
    y = tl.load(base_ptr + at, mask=mask, other=0.0) if BASE else tl.zeros_like(at).to(tl.float32)
    y += (dt * tl.load(weights_ptr)).to(tl.float32) * tl.load(k0 + at, mask=mask, other=0.0)
    if TERMS > 1:
        y += (dt * tl.load(weights_ptr + 1)).to(tl.float32) * tl.load(k1 + at, mask=mask, other=0.0)
    if TERMS > 2:
        y += (dt * tl.load(weights_ptr + 2)).to(tl.float32) * tl.load(k2 + at, mask=mask, other=0.0)
    if TERMS > 3:
        y += (dt * tl.load(weights_ptr + 3)).to(tl.float32) * tl.load(k3 + at, mask=mask, other=0.0)
    if TERMS > 4:
        y += (dt * tl.load(weights_ptr + 4)).to(tl.float32) * tl.load(k4 + at, mask=mask, other=0.0)
    if TERMS > 5:
        y += (dt * tl.load(weights_ptr + 5)).to(tl.float32) * tl.load(k5 + at, mask=mask, other=0.0)
    if TERMS > 6:
        y += (dt * tl.load(weights_ptr + 6)).to(tl.float32) * tl.load(k6 + at, mask=mask, other=0.0)
    if TERMS > 7:
        y += (dt * tl.load(weights_ptr + 7)).to(tl.float32) * tl.load(k7 + at, mask=mask, other=0.0)
    return y


@Serialised
@triton.jit
def combine(dt_ptr, weights_ptr, base_h, base_a, out_h, out_a, h0, h1, h2, h3, h4, h5, h6, h7, a0, a1, a2, a3, a4, a5,
            a6, a7, size_h, size_a, BASE: tl.constexpr, TERMS: tl.constexpr, BLOCK: tl.constexpr):
    """Write base + Σ dt w_i k_i to `out`, for both blocks."""
    dt, at = tl.load(dt_ptr), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if tl.program_id(1) == 0:
        mask = at < size_h
        tl.store(out_h + at, _combine(base_h, h0, h1, h2, h3, h4, h5, h6, h7, dt, weights_ptr, at, mask, BASE, TERMS),
                 mask=mask)
    else:
        mask = at < size_a
        tl.store(out_a + at, _combine(base_a, a0, a1, a2, a3, a4, a5, a6, a7, dt, weights_ptr, at, mask, BASE, TERMS),
                 mask=mask)


@triton.jit
def _scaled_square(error, y0_ptr, y1_ptr, rtol, atol, at, mask):
    u, v = tl.load(y0_ptr + at, mask=mask, other=0.0), tl.load(y1_ptr + at, mask=mask, other=0.0)
    x = error / (tl.maximum(tl.abs(u), tl.abs(v), propagate_nan=tl.PropagateNan.ALL) * rtol + atol)
    return tl.sum(tl.where(mask, x * x, 0.0))


@Serialised
@triton.jit
def error_squares(dt_ptr, weights_ptr, y0_h, y0_a, y1_h, y1_a, out_ptr, h0, h1, h2, h3, h4, h5, h6, h7, a0, a1, a2, a3,
                  a4, a5, a6, a7, size_h, size_a, rtol, atol, TERMS: tl.constexpr, BLOCK: tl.constexpr):
    """Write sums of squares of Σ dt w_i k_i in units of the tolerance, one per program, (2, programs)."""
    dt, at = tl.load(dt_ptr), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if tl.program_id(1) == 0:
        mask = at < size_h
        error = _combine(y0_h, h0, h1, h2, h3, h4, h5, h6, h7, dt, weights_ptr, at, mask, False, TERMS)
        tl.store(out_ptr + tl.program_id(0), _scaled_square(error, y0_h, y1_h, rtol, atol, at, mask))
    else:
        mask = at < size_a
        error = _combine(y0_a, a0, a1, a2, a3, a4, a5, a6, a7, dt, weights_ptr, at, mask, False, TERMS)
        tl.store(out_ptr + tl.num_programs(0) + tl.program_id(0),
                 _scaled_square(error, y0_a, y1_a, rtol, atol, at, mask))


@Serialised
@triton.jit
def copy_row(row_ptr, offset, store_ptr, first, second, third, fourth, size_h, size_a, WRITE: tl.constexpr,
             BLOCK: tl.constexpr):
    """Copy between (h, a, k_h, k_a) and row `row + offset` of the store, (rows, 2 size_h + 2 size_a)."""
    at, which = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1)
    stored = store_ptr + (tl.load(row_ptr) + offset).to(tl.int64) * 2 * (size_h + size_a) + at
    if which == 0:
        _copy(stored, first + at, at < size_h, WRITE)
    elif which == 1:
        _copy(stored + size_h, second + at, at < size_a, WRITE)
    elif which == 2:
        _copy(stored + size_h + size_a, third + at, at < size_h, WRITE)
    else:
        _copy(stored + 2 * size_h + size_a, fourth + at, at < size_a, WRITE)


@triton.jit
def _copy(stored, mine, mask, WRITE: tl.constexpr):
    if WRITE:
        tl.store(stored, tl.load(mine, mask=mask), mask=mask)
    else:
        tl.store(mine, tl.load(stored, mask=mask), mask=mask)


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
