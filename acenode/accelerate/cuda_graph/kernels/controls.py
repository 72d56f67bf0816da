"""The step-size control in one small kernel a step: `engine.control` says it in plain tensor operations.

`limits` holds, in double precision, what `Span` says and the blocks' sizes.
"""

from __future__ import annotations

import triton
import triton.language as tl

from acenode.accelerate.cuda_graph import control as c
from acenode.accelerate.triton_support import Serialised
from acenode.ode.step_size import GROW, SAFETY, SHRINK

T, SIZE, DT, RATIO, LAST = (tl.constexpr(i) for i in (c.T, c.SIZE, c.DT, c.RATIO, c.LAST))
STATUS, TRIED, D1, H0, NAMED = (tl.constexpr(i) for i in (c.STATUS, c.TRIED, c.D1, c.H0, c.NAMED))
RUNNING, ARRIVED, STUCK, LIMIT, FULL, BAD_START = (tl.constexpr(float(i)) for i in range(6))
START, END, SIGN, INVERSE_ORDER, MAX_STEPS, PLACES, NUMEL_H, NUMEL_A = (tl.constexpr(i) for i in range(8))
SAFETY_, GROW_, SHRINK_ = tl.constexpr(SAFETY), tl.constexpr(GROW), tl.constexpr(SHRINK)


@triton.jit
def _finite(x):
    return tl.abs(x) < float("inf")  # False for NaN


@triton.jit
def _norm(squares_ptr, limits_ptr, parts, MANY: tl.constexpr):
    """The larger of the blocks' root mean squares."""
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
def _plan(facts_ptr, times_ptr, limits_ptr, c_ptr, running, status, t, size, dt, last, STAGES: tl.constexpr,
          WIDE: tl.constexpr):
    rest = tl.abs(tl.load(limits_ptr + END) - t)
    final = (size < rest) == 0
    planned = tl.load(limits_ptr + SIGN) * tl.where(final, rest, size)
    stuck = (_finite(size) == 0) | (t + planned == t)
    dt = tl.where(running, planned, dt)
    tl.store(facts_ptr + STATUS, tl.where(running & stuck, STUCK, status))
    tl.store(facts_ptr + LAST, tl.where(running, tl.where(final, 1.0, 0.0), last))
    tl.store(facts_ptr + DT, dt)
    _set_times(times_ptr, c_ptr, t, dt, STAGES, WIDE)


@Serialised
@triton.jit
def start(facts_ptr, place_ptr, times_ptr, limits_ptr, STAGES: tl.constexpr, WIDE: tl.constexpr, MANY: tl.constexpr):
    i = tl.arange(0, MANY)
    t = tl.load(limits_ptr + START)
    tl.store(facts_ptr + i, tl.where(i == T, t, 0.0), mask=i < NAMED)
    tl.store(place_ptr + tl.arange(0, 2), tl.zeros((2,), dtype=tl.int64))
    j = tl.arange(0, WIDE)
    tl.store(times_ptr + j, tl.zeros((WIDE,), dtype=tl.float32) + t.to(tl.float32), mask=j < STAGES)


@Serialised
@triton.jit
def guess(facts_ptr, times_ptr, limits_ptr, state_ptr, slope_ptr, parts, MANY: tl.constexpr):
    d0 = _norm(state_ptr, limits_ptr, parts, MANY)
    d1 = _norm(slope_ptr, limits_ptr, parts, MANY)
    h0 = tl.where((d0 < 1e-5) | (d1 < 1e-5), 1e-6, 0.01 * d0 / d1)
    dt = tl.load(limits_ptr + SIGN) * h0
    tl.store(facts_ptr + STATUS, tl.where(_finite(d0), RUNNING, BAD_START).to(tl.float64))
    tl.store(facts_ptr + D1, d1)
    tl.store(facts_ptr + H0, h0)
    tl.store(facts_ptr + DT, dt)
    tl.store(times_ptr, (tl.load(limits_ptr + START) + dt).to(tl.float32))


@Serialised
@triton.jit
def first(facts_ptr, times_ptr, limits_ptr, c_ptr, change_ptr, parts, STAGES: tl.constexpr, WIDE: tl.constexpr,
          MANY: tl.constexpr):
    h0, d1 = tl.load(facts_ptr + H0), tl.load(facts_ptr + D1)
    steepest = tl.maximum(d1, _norm(change_ptr, limits_ptr, parts, MANY) / h0, propagate_nan=tl.PropagateNan.ALL)
    h1 = tl.exp(tl.log(0.01 / steepest) * tl.load(limits_ptr + INVERSE_ORDER))
    h1 = tl.where(steepest <= 1e-15, tl.maximum(h0 * 1e-3, 1e-6), h1)
    size = tl.where(_finite(h0), tl.minimum(100 * h0, h1, propagate_nan=tl.PropagateNan.ALL), float("nan"))
    tl.store(facts_ptr + SIZE, size)
    status = tl.load(facts_ptr + STATUS)
    _plan(facts_ptr, times_ptr, limits_ptr, c_ptr, status == RUNNING, status, tl.load(facts_ptr + T), size,
          tl.load(facts_ptr + DT), tl.load(facts_ptr + LAST), STAGES, WIDE)


@Serialised
@triton.jit
def judge(facts_ptr, place_ptr, times_ptr, limits_ptr, c_ptr, error_ptr, parts, STAGES: tl.constexpr,
          WIDE: tl.constexpr, MANY: tl.constexpr):
    status, t, dt = tl.load(facts_ptr + STATUS), tl.load(facts_ptr + T), tl.load(facts_ptr + DT)
    size, last, tried = tl.load(facts_ptr + SIZE), tl.load(facts_ptr + LAST), tl.load(facts_ptr + TRIED)
    places, n = tl.load(limits_ptr + PLACES), tl.load(place_ptr)
    running = status == RUNNING
    ratio = _norm(error_ptr, limits_ptr, parts, MANY)
    accepted = running & (ratio <= 1)  # False for NaN
    arrived = accepted & (last > 0)
    factor = SAFETY_ * tl.exp(-tl.log(ratio) * tl.load(limits_ptr + INVERSE_ORDER))
    factor = tl.minimum(tl.maximum(factor, tl.where(accepted, 1.0, SHRINK_)), GROW_)
    factor = tl.where(ratio == 0, GROW_, tl.where(_finite(ratio), factor, SHRINK_))
    tl.store(facts_ptr + NAMED + n, dt, mask=accepted)
    tl.store(facts_ptr + NAMED + places.to(tl.int32) + n, t, mask=accepted)
    tl.store(facts_ptr + NAMED + 2 * places.to(tl.int32) + n, tried, mask=accepted)
    n += accepted.to(tl.int64)
    tl.store(place_ptr, n)
    tried += tl.where(running, 1.0, 0.0)
    t = tl.where(accepted & (arrived == 0), t + dt, t)
    size = tl.where(running & (arrived == 0), tl.abs(dt) * factor, size)
    after = tl.where(tried >= tl.load(limits_ptr + MAX_STEPS), LIMIT, tl.where(n >= places, FULL, RUNNING))
    status = tl.where(running, tl.where(arrived, ARRIVED, after), status)
    tl.store(facts_ptr + T, t)
    tl.store(facts_ptr + SIZE, size)
    tl.store(facts_ptr + TRIED, tried)
    tl.store(facts_ptr + RATIO, tl.where(running, ratio, tl.load(facts_ptr + RATIO)))
    _plan(facts_ptr, times_ptr, limits_ptr, c_ptr, status == RUNNING, status, t, size, dt, last, STAGES, WIDE)


@Serialised
@triton.jit
def back(facts_ptr, place_ptr, times_ptr, limits_ptr, c_ptr, STAGES: tl.constexpr, WIDE: tl.constexpr):
    n = tl.maximum(tl.load(place_ptr + 1) - 1, 0)
    tl.store(place_ptr + 1, n)
    dt = tl.load(facts_ptr + NAMED + n)
    tl.store(facts_ptr + DT, dt)
    t = tl.load(facts_ptr + NAMED + tl.load(limits_ptr + PLACES).to(tl.int32) + n)
    _set_times(times_ptr, c_ptr, t, dt, STAGES, WIDE)
