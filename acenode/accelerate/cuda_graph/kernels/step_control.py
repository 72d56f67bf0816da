"""Step-size control with one small kernel per step; `cuda_graph.step_control` is the same in plain tensor operations.

`limits` holds, in double precision, the fields of `SolveSpan` and the sizes of the blocks.
"""

from __future__ import annotations

import triton
import triton.language as tl

from acenode.accelerate.cuda_graph import step_control as c
from acenode.accelerate.triton_support import Serialised
from acenode.ode.step_size import GROW, SAFETY, SHRINK

T, SIZE, DT, RATIO, LAST = (tl.constexpr(i) for i in (c.T, c.SIZE, c.DT, c.RATIO, c.LAST))
STATUS, ATTEMPTS, D1, H0, TABLES = (tl.constexpr(i) for i in (c.STATUS, c.ATTEMPTS, c.D1, c.H0, c.TABLES))
RUNNING, FINISHED, UNDERFLOW = (tl.constexpr(float(i)) for i in (c.RUNNING, c.FINISHED, c.UNDERFLOW))
STEP_LIMIT, STORE_FULL, BAD_START = (tl.constexpr(float(i)) for i in (c.STEP_LIMIT, c.STORE_FULL, c.BAD_START))
START, END, SIGN, INVERSE_ORDER, MAX_STEPS, CAPACITY, NUMEL_H, NUMEL_A = (tl.constexpr(i) for i in range(8))
SAFETY_, GROW_, SHRINK_ = tl.constexpr(SAFETY), tl.constexpr(GROW), tl.constexpr(SHRINK)


@triton.jit
def _finite(x):
    return tl.abs(x) < float("inf")  # False for NaN


@triton.jit
def _norm(squares_ptr, limits_ptr, parts, MANY: tl.constexpr):
    """Return the larger of the blocks' root mean squares."""
    i = tl.arange(0, MANY)
    h = tl.sum(tl.load(squares_ptr + i, mask=i < parts, other=0.0))
    a = tl.sum(tl.load(squares_ptr + parts + i, mask=i < parts, other=0.0))
    h = tl.sqrt(h.to(tl.float64) / tl.load(limits_ptr + NUMEL_H))
    a = tl.sqrt(a.to(tl.float64) / tl.load(limits_ptr + NUMEL_A))
    return tl.maximum(h, a, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _set_times(times_ptr, c_ptr, t, dt, STAGES: tl.constexpr, WIDE: tl.constexpr):
    i = tl.arange(0, WIDE)
    shares = tl.load(c_ptr + i, mask=i < STAGES, other=0.0)
    tl.store(times_ptr + i, (t + shares * dt).to(tl.float32), mask=i < STAGES)


@triton.jit
def _plan(values_ptr, times_ptr, limits_ptr, c_ptr, running, status, t, size, dt, last, STAGES: tl.constexpr,
          WIDE: tl.constexpr):
    rest = tl.abs(tl.load(limits_ptr + END) - t)
    final = (size < rest) == 0
    planned = tl.load(limits_ptr + SIGN) * tl.where(final, rest, size)
    underflow = (_finite(size) == 0) | (t + planned == t)
    dt = tl.where(running, planned, dt)
    tl.store(values_ptr + STATUS, tl.where(running & underflow, UNDERFLOW, status))
    tl.store(values_ptr + LAST, tl.where(running, tl.where(final, 1.0, 0.0), last))
    tl.store(values_ptr + DT, dt)
    _set_times(times_ptr, c_ptr, t, dt, STAGES, WIDE)


@Serialised
@triton.jit
def start(values_ptr, counts_ptr, times_ptr, limits_ptr, STAGES: tl.constexpr, WIDE: tl.constexpr, MANY: tl.constexpr):
    i = tl.arange(0, MANY)
    t = tl.load(limits_ptr + START)
    tl.store(values_ptr + i, tl.where(i == T, t, 0.0), mask=i < TABLES)
    tl.store(counts_ptr + tl.arange(0, 2), tl.zeros((2,), dtype=tl.int64))
    j = tl.arange(0, WIDE)
    tl.store(times_ptr + j, tl.zeros((WIDE,), dtype=tl.float32) + t.to(tl.float32), mask=j < STAGES)


@Serialised
@triton.jit
def trial_step(values_ptr, times_ptr, limits_ptr, state_ptr, slope_ptr, parts, MANY: tl.constexpr):
    d0 = _norm(state_ptr, limits_ptr, parts, MANY)
    d1 = _norm(slope_ptr, limits_ptr, parts, MANY)
    h0 = tl.where((d0 < 1e-5) | (d1 < 1e-5), 1e-6, 0.01 * d0 / d1)
    dt = tl.load(limits_ptr + SIGN) * h0
    tl.store(values_ptr + STATUS, tl.where(_finite(d0), RUNNING, BAD_START).to(tl.float64))
    tl.store(values_ptr + D1, d1)
    tl.store(values_ptr + H0, h0)
    tl.store(values_ptr + DT, dt)
    tl.store(times_ptr, (tl.load(limits_ptr + START) + dt).to(tl.float32))


@Serialised
@triton.jit
def first_step(values_ptr, times_ptr, limits_ptr, c_ptr, change_ptr, parts, STAGES: tl.constexpr, WIDE: tl.constexpr,
               MANY: tl.constexpr):
    h0, d1 = tl.load(values_ptr + H0), tl.load(values_ptr + D1)
    steepest = tl.maximum(d1, _norm(change_ptr, limits_ptr, parts, MANY) / h0, propagate_nan=tl.PropagateNan.ALL)
    h1 = tl.exp(tl.log(0.01 / steepest) * tl.load(limits_ptr + INVERSE_ORDER))
    h1 = tl.where(steepest <= 1e-15, tl.maximum(h0 * 1e-3, 1e-6), h1)
    size = tl.where(_finite(h0), tl.minimum(100 * h0, h1, propagate_nan=tl.PropagateNan.ALL), float("nan"))
    tl.store(values_ptr + SIZE, size)
    status = tl.load(values_ptr + STATUS)
    _plan(values_ptr, times_ptr, limits_ptr, c_ptr, status == RUNNING, status, tl.load(values_ptr + T), size,
          tl.load(values_ptr + DT), tl.load(values_ptr + LAST), STAGES, WIDE)


@Serialised
@triton.jit
def accept_or_reject(values_ptr, counts_ptr, times_ptr, limits_ptr, c_ptr, error_ptr, parts, STAGES: tl.constexpr,
                     WIDE: tl.constexpr, MANY: tl.constexpr):
    status, t, dt = tl.load(values_ptr + STATUS), tl.load(values_ptr + T), tl.load(values_ptr + DT)
    size, last, attempts = tl.load(values_ptr + SIZE), tl.load(values_ptr + LAST), tl.load(values_ptr + ATTEMPTS)
    capacity, n = tl.load(limits_ptr + CAPACITY), tl.load(counts_ptr)
    running = status == RUNNING
    ratio = _norm(error_ptr, limits_ptr, parts, MANY)
    accepted = running & (ratio <= 1)  # False for NaN
    finished = accepted & (last > 0)
    factor = SAFETY_ * tl.exp(-tl.log(ratio) * tl.load(limits_ptr + INVERSE_ORDER))
    factor = tl.minimum(tl.maximum(factor, tl.where(accepted, 1.0, SHRINK_)), GROW_)
    factor = tl.where(ratio == 0, GROW_, tl.where(_finite(ratio), factor, SHRINK_))
    tl.store(values_ptr + TABLES + n, dt, mask=accepted)
    tl.store(values_ptr + TABLES + capacity.to(tl.int32) + n, t, mask=accepted)
    tl.store(values_ptr + TABLES + 2 * capacity.to(tl.int32) + n, attempts, mask=accepted)
    n += accepted.to(tl.int64)
    tl.store(counts_ptr, n)
    attempts += tl.where(running, 1.0, 0.0)
    t = tl.where(accepted & (finished == 0), t + dt, t)
    size = tl.where(running & (finished == 0), tl.abs(dt) * factor, size)
    after = tl.where(n >= capacity, STORE_FULL, RUNNING)
    after = tl.where(attempts >= tl.load(limits_ptr + MAX_STEPS), STEP_LIMIT, after)
    status = tl.where(running, tl.where(finished, FINISHED, after), status)
    tl.store(values_ptr + T, t)
    tl.store(values_ptr + SIZE, size)
    tl.store(values_ptr + ATTEMPTS, attempts)
    tl.store(values_ptr + RATIO, tl.where(running, ratio, tl.load(values_ptr + RATIO)))
    _plan(values_ptr, times_ptr, limits_ptr, c_ptr, status == RUNNING, status, t, size, dt, last, STAGES, WIDE)


@Serialised
@triton.jit
def previous_step(values_ptr, counts_ptr, times_ptr, limits_ptr, c_ptr, STAGES: tl.constexpr, WIDE: tl.constexpr):
    n = tl.maximum(tl.load(counts_ptr + 1) - 1, 0)
    tl.store(counts_ptr + 1, n)
    dt = tl.load(values_ptr + TABLES + n)
    tl.store(values_ptr + DT, dt)
    t = tl.load(values_ptr + TABLES + tl.load(limits_ptr + CAPACITY).to(tl.int32) + n)
    _set_times(times_ptr, c_ptr, t, dt, STAGES, WIDE)
