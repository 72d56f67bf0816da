"""The operations and the control of a step by Triton kernels, for float32 states of one or two blocks.

`step_control` does the same in plain tensor operations. Most kernels take two blocks, h and a, and the second program
index chooses between them; a state of one block is passed twice and launched once. Values that depend on the step are
read from the device. `limits` holds, in double precision, 1 / the method's order, the largest numbers of attempts and
of accepted steps, and the sizes of the blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from acenode.accelerate.cuda_graph import step_control as c
from acenode.accelerate.triton_support import Serialised
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import State
from acenode.ode.stepping import GROW, SAFETY, SHRINK

BLOCK = 1024

T, SIZE, DT, RATIO, LAST = (tl.constexpr(i) for i in (c.T, c.SIZE, c.DT, c.RATIO, c.LAST))
STATUS, ATTEMPTS, TABLES = (tl.constexpr(i) for i in (c.STATUS, c.ATTEMPTS, c.TABLES))
RUNNING, FINISHED, UNDERFLOW = (tl.constexpr(float(i)) for i in (c.RUNNING, c.FINISHED, c.UNDERFLOW))
STEP_LIMIT, STORE_FULL = (tl.constexpr(float(i)) for i in (c.STEP_LIMIT, c.STORE_FULL))
INVERSE_ORDER, MAX_STEPS, CAPACITY, NUMEL_H, NUMEL_A = (tl.constexpr(i) for i in range(5))
SAFETY_, GROW_, SHRINK_ = tl.constexpr(SAFETY), tl.constexpr(GROW), tl.constexpr(SHRINK)


@triton.jit
def _combine(base, ks, dt, weights_ptr, at, mask, BASE: tl.constexpr, TERMS: tl.constexpr):
    """Return base + Σ dt w_i k_i at the given indices."""
    y = tl.load(base + at, mask=mask, other=0.0) if BASE else tl.zeros_like(at).to(tl.float32)
    for i in tl.static_range(TERMS):
        y += (dt * tl.load(weights_ptr + i)).to(tl.float32) * tl.load(ks[i] + at, mask=mask, other=0.0)
    return y


@Serialised
@triton.jit
def combine(dt_ptr, weights_ptr, base_h, base_a, out_h, out_a, hs, as_, size_h, size_a, BASE: tl.constexpr,
            TERMS: tl.constexpr, BLOCK: tl.constexpr):
    """Write base + Σ dt w_i k_i to `out`, for both blocks; their stages are tuples of pointers."""
    dt, at = tl.load(dt_ptr), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if tl.program_id(1) == 0:
        mask = at < size_h
        tl.store(out_h + at, _combine(base_h, hs, dt, weights_ptr, at, mask, BASE, TERMS), mask=mask)
    else:
        mask = at < size_a
        tl.store(out_a + at, _combine(base_a, as_, dt, weights_ptr, at, mask, BASE, TERMS), mask=mask)


@triton.jit
def _scaled_square(error, y0_ptr, y1_ptr, rtol, atol, at, mask):
    u, v = tl.load(y0_ptr + at, mask=mask, other=0.0), tl.load(y1_ptr + at, mask=mask, other=0.0)
    x = error / (tl.maximum(tl.abs(u), tl.abs(v), propagate_nan=tl.PropagateNan.ALL) * rtol + atol)
    return tl.sum(tl.where(mask, x * x, 0.0))


@Serialised
@triton.jit
def error_squares(dt_ptr, weights_ptr, y0_h, y0_a, y1_h, y1_a, out_ptr, hs, as_, size_h, size_a, rtol, atol,
                  TERMS: tl.constexpr, BLOCK: tl.constexpr):
    """Write sums of squares of Σ dt w_i k_i in units of the tolerance, one per program, (2, programs)."""
    dt, at = tl.load(dt_ptr), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if tl.program_id(1) == 0:
        mask = at < size_h
        error = _combine(y0_h, hs, dt, weights_ptr, at, mask, False, TERMS)
        tl.store(out_ptr + tl.program_id(0), _scaled_square(error, y0_h, y1_h, rtol, atol, at, mask))
    else:
        mask = at < size_a
        error = _combine(y0_a, as_, dt, weights_ptr, at, mask, False, TERMS)
        tl.store(out_ptr + tl.num_programs(0) + tl.program_id(0),
                 _scaled_square(error, y0_a, y1_a, rtol, atol, at, mask))


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
def _plan(values_ptr, times_ptr, c_ptr, running, status, t, size, dt, last, STAGES: tl.constexpr, WIDE: tl.constexpr):
    rest = 1.0 - t
    final = (size < rest) == 0
    planned = tl.where(final, rest, size)
    underflow = (_finite(size) == 0) | (t + planned == t)
    dt = tl.where(running, planned, dt)
    tl.store(values_ptr + STATUS, tl.where(running & underflow, UNDERFLOW, status))
    tl.store(values_ptr + LAST, tl.where(running, tl.where(final, 1.0, 0.0), last))
    tl.store(values_ptr + DT, dt)
    _set_times(times_ptr, c_ptr, t, dt, STAGES, WIDE)


@Serialised
@triton.jit
def accept_or_reject_kernel(values_ptr, counts_ptr, times_ptr, limits_ptr, c_ptr, error_ptr, parts,
                            STAGES: tl.constexpr, WIDE: tl.constexpr, MANY: tl.constexpr):
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
    size = tl.where(running & (finished == 0), dt * factor, size)
    after = tl.where(n >= capacity, STORE_FULL, RUNNING)
    after = tl.where(attempts >= tl.load(limits_ptr + MAX_STEPS), STEP_LIMIT, after)
    status = tl.where(running, tl.where(finished, FINISHED, after), status)
    tl.store(values_ptr + T, t)
    tl.store(values_ptr + SIZE, size)
    tl.store(values_ptr + ATTEMPTS, attempts)
    tl.store(values_ptr + RATIO, tl.where(running, ratio, tl.load(values_ptr + RATIO)))
    _plan(values_ptr, times_ptr, c_ptr, status == RUNNING, status, t, size, dt, last, STAGES, WIDE)


@Serialised
@triton.jit
def previous_step_kernel(values_ptr, counts_ptr, times_ptr, limits_ptr, c_ptr, STAGES: tl.constexpr,
                         WIDE: tl.constexpr):
    n = tl.maximum(tl.load(counts_ptr + 1) - 1, 0)
    tl.store(counts_ptr + 1, n)
    dt = tl.load(values_ptr + TABLES + n)
    tl.store(values_ptr + DT, dt)
    t = tl.load(values_ptr + TABLES + tl.load(limits_ptr + CAPACITY).to(tl.int32) + n)
    _set_times(times_ptr, c_ptr, t, dt, STAGES, WIDE)


class KernelStepControl(c.StepControl):
    """Step-size control with one kernel for each decision that is taken at every step."""

    def __init__(self, order: int, max_steps: int, capacity: int, stage_times: tuple[float, ...], like: State) -> None:
        super().__init__(order, max_steps, capacity, stage_times, like)
        limits = torch.tensor([1 / order, max_steps, capacity, self.numels[0], self.numels[-1]], dtype=torch.float64,
                              device=self.values.device)
        self.stages: dict[str, Any] = {"STAGES": len(self.times), "WIDE": triton.next_power_of_2(len(self.times))}
        self.tensors = (self.values, self.counts, self.times, limits, self.c)

    def accept_or_reject(self, error: Tensor) -> None:
        parts = error.shape[1]
        accept_or_reject_kernel[(1,)](*self.tensors, error, parts, **self.stages, MANY=triton.next_power_of_2(parts),
                                      num_warps=1 if parts <= 256 else 4)

    def previous_step(self) -> None:
        previous_step_kernel[(1,)](*self.tensors, **self.stages, num_warps=1)


class KernelStepOperations(c.StepOperations):
    """Every combination and every norm in one kernel, for both blocks at once."""

    name, control = "Triton", KernelStepControl

    def arrange(self, y: State) -> State:
        return tuple(b.contiguous(memory_format=torch.channels_last if b.dim() == 4 else torch.contiguous_format)
                     for b in y)

    def combine(self, base: State | None, dt: Tensor, weights: Sequence[float], ks: Sequence[State],
                out: State | None = None) -> State:
        used, chosen = c.nonzero_terms(weights, ks)
        like = base or used[0]
        out = out or tuple(torch.empty_like(b) for b in like)
        combine[_grid(like)](dt, self.table(chosen), like[0], like[-1], out[0], out[-1], *_terms(used, like),
                             like[0].numel(), like[-1].numel(), BASE=base is not None, TERMS=len(used), BLOCK=BLOCK)
        return out

    def scaled_squares(self, dt: Tensor, weights: Sequence[float], ks: Sequence[State], y0: State, y1: State,
                       solver: Solver) -> Tensor:
        used, chosen = c.nonzero_terms(weights, ks)
        grid = _grid(y0)
        found = y0[0].new_empty(2, grid[0]) if len(y0) == 2 else y0[0].new_zeros(2, grid[0])
        error_squares[grid](dt, self.table(chosen), y0[0], y0[-1], y1[0], y1[-1], found, *_terms(used, y0),
                            y0[0].numel(), y0[-1].numel(), solver.rtol, solver.atol, TERMS=len(used), BLOCK=BLOCK)
        return found


def _grid(like: State) -> tuple[int, int]:
    return triton.cdiv(max(b.numel() for b in like), BLOCK), len(like)


def _terms(ks: list[State], like: State) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the first and the last blocks of the stages, in the layout of `like`."""
    blocks = list(zip(*(map(c.with_layout, k, like) for k in ks), strict=True))
    return blocks[0], blocks[-1]
