"""The operations and the control of a step by Triton kernels, for float32 states of one or two blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from acenode.accelerate.cuda_graph.kernels import step_control as kernels
from acenode.accelerate.cuda_graph.kernels.pointwise import combine, copy_row, error_squares
from acenode.accelerate.cuda_graph.step_control import SolveSpan, StepControl
from acenode.accelerate.cuda_graph.step_operations import StateStore, StepOperations, nonzero_terms
from acenode.ode.runge_kutta import State

BLOCK = 1024
TERMS = 8  # of a combination in one kernel


class KernelStepControl(StepControl):
    """Step-size control with one kernel per decision."""

    def __init__(self, span: SolveSpan, c: tuple[float, ...], numels: tuple[int, ...], dtype: torch.dtype,
                 device: torch.device) -> None:
        super().__init__(span, c, numels, dtype, device)
        self.limits = torch.tensor([span.start, span.end, span.sign, 1 / span.order, span.max_steps, span.capacity,
                                    numels[0], numels[-1]], dtype=torch.float64, device=device)
        self.stages: dict[str, Any] = {"STAGES": len(self.times), "WIDE": triton.next_power_of_2(len(self.times))}
        self.tensors = (self.times, self.limits, self.c)

    def start(self) -> None:
        kernels.start[(1,)](self.values, self.counts, self.times, self.limits, **self.stages, MANY=16, num_warps=1)

    def trial_step(self, state: Tensor, slope: Tensor) -> None:
        kernels.trial_step[(1,)](self.values, self.times, self.limits, state, slope, state.shape[1], **_many(state))

    def first_step(self, change: Tensor) -> None:
        kernels.first_step[(1,)](self.values, *self.tensors, change, change.shape[1], **self.stages, **_many(change))

    def accept_or_reject(self, error: Tensor) -> None:
        kernels.accept_or_reject[(1,)](self.values, self.counts, *self.tensors, error, error.shape[1], **self.stages,
                                       **_many(error))

    def previous_step(self) -> None:
        kernels.previous_step[(1,)](self.values, self.counts, *self.tensors, **self.stages, num_warps=1)


def _many(squares: Tensor) -> dict[str, Any]:
    return {"MANY": triton.next_power_of_2(squares.shape[1]), "num_warps": 1 if squares.shape[1] <= 256 else 4}


class KernelStateStore(StateStore):
    """States and slopes in numbered rows, copied by one kernel in the memory layout that they have."""

    def __init__(self, like: State, rows: int) -> None:
        self.like = like
        self.sizes = (like[0].numel(), like[1].numel() if len(like) == 2 else 0)
        self.stored = like[0].new_zeros(rows, 2 * sum(self.sizes))

    def write_after(self, row: Tensor, y: State, k: State) -> None:
        self._copy(row, 1, tuple(_with_layout(b, like) for b, like in zip(y + k, self.like * 2, strict=True)), True)

    def read(self, row: Tensor) -> tuple[State, State]:
        found = tuple(torch.empty_like(b) for b in self.like * 2)
        self._copy(row, 0, found, False)
        return found[:len(self.like)], found[len(self.like):]

    def _copy(self, row: Tensor, offset: int, blocks: State, write: bool) -> None:
        four = blocks if len(blocks) == 4 else (blocks[0], blocks[0], blocks[1], blocks[1])
        grid = (triton.cdiv(max(self.sizes), BLOCK), 4)
        copy_row[grid](row, offset, self.stored, *four, *self.sizes, WRITE=write, BLOCK=BLOCK)


class KernelStepOperations(StepOperations):
    """Every combination and every norm in one kernel, for both blocks at once."""

    name = "Triton"

    def step_control(self, span: SolveSpan, c: tuple[float, ...], like: State) -> StepControl:
        return KernelStepControl(span, c, tuple(b.numel() for b in like), like[0].dtype, like[0].device)

    def state_store(self, like: State, rows: int) -> StateStore:
        return KernelStateStore(like, rows)

    def arrange(self, y: State) -> State:
        return tuple(b.contiguous(memory_format=torch.channels_last if b.dim() == 4 else torch.contiguous_format)
                     for b in y)

    def combine(self, base: State | None, dt: Tensor, weights: Sequence[float], ks: Sequence[State],
                out: State | None = None) -> State:
        used, chosen = nonzero_terms(weights, ks)
        while len(used) > TERMS:
            base = self._combine(base, dt, chosen[:TERMS], used[:TERMS], None)
            used, chosen = used[TERMS:], chosen[TERMS:]
        return self._combine(base, dt, chosen, used, out)

    def _combine(self, base: State | None, dt: Tensor, weights: tuple[float, ...], ks: list[State],
                 out: State | None) -> State:
        like = base or ks[0]
        out = out or tuple(torch.empty_like(b) for b in like)
        start = base or ks[0]
        combine[_grid(like)](dt, self.table(weights), start[0], start[-1], out[0], out[-1], *_terms(ks, like),
                             like[0].numel(), like[-1].numel(), BASE=base is not None, TERMS=len(ks), BLOCK=BLOCK)
        return out

    def scaled_squares(self, dt: Tensor, weights: Sequence[float], ks: Sequence[State], y0: State, y1: State,
                       rtol: float, atol: float) -> Tensor:
        used, chosen = nonzero_terms(weights, ks)
        one = dt
        if len(used) > TERMS:
            used, chosen, one = [self.combine(None, dt, chosen, used)], (1.0,), torch.ones_like(dt)
        grid = _grid(y0)
        found = y0[0].new_empty(2, grid[0]) if len(y0) == 2 else y0[0].new_zeros(2, grid[0])
        error_squares[grid](one, self.table(chosen), y0[0], y0[-1], y1[0], y1[-1], found, *_terms(used, y0),
                            y0[0].numel(), y0[-1].numel(), rtol, atol, TERMS=len(used), BLOCK=BLOCK)
        return found


def _grid(like: State) -> tuple[int, int]:
    return triton.cdiv(max(b.numel() for b in like), BLOCK), len(like)


def _terms(ks: list[State], like: State) -> list[Tensor]:
    """Return the stages' blocks in the layout of `like`, filled up to TERMS with blocks that are not read."""
    h = [_with_layout(k[0], like[0]) for k in ks]
    a = [_with_layout(k[-1], like[-1]) for k in ks] if len(like) == 2 else h
    return (h + h[:1] * (TERMS - len(h))) + (a + a[:1] * (TERMS - len(a)))


def _with_layout(block: Tensor, like: Tensor) -> Tensor:
    return block if block.stride() == like.stride() else torch.empty_like(like).copy_(block)
