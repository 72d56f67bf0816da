"""The operations of a Runge–Kutta step on the device, in plain tensor operations.

`kernels.step_operations` does the same in few kernels. The coefficients of a combination are dt w_i with dt read on the
device, so that one recording serves every step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from acenode.accelerate.cuda_graph.step_control import SolveSpan, StepControl
from acenode.ode.runge_kutta import State


class StateStore:
    """States and their slopes in numbered rows; the row number is a tensor on the device."""

    def __init__(self, like: State, rows: int) -> None:
        self.like = like
        self.blocks = [b.new_zeros(rows, *b.shape) for b in like * 2]

    def write_after(self, row: Tensor, y: State, k: State) -> None:
        """Write a state and its slope to the row after the given one."""
        for stored, block in zip(self.blocks, y + k, strict=True):
            stored.index_copy_(0, row.reshape(1) + 1, block.unsqueeze(0))

    def read(self, row: Tensor) -> tuple[State, State]:
        found = tuple(stored.index_select(0, row.reshape(1))[0] for stored in self.blocks)
        return found[:len(self.like)], found[len(self.like):]


class StepOperations:
    """Plain tensor operations, for any device."""

    name = "torch"

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.tables: dict[tuple[float, ...], Tensor] = {}

    def table(self, weights: tuple[float, ...]) -> Tensor:
        """Return weights as a tensor on the device; made once, before anything is recorded."""
        if weights not in self.tables:
            self.tables[weights] = torch.tensor(weights, dtype=torch.float64, device=self.device)
        return self.tables[weights]

    def step_control(self, span: SolveSpan, c: tuple[float, ...], like: State) -> StepControl:
        return StepControl(span, c, tuple(b.numel() for b in like), like[0].dtype, like[0].device)

    def state_store(self, like: State, rows: int) -> StateStore:
        return StateStore(like, rows)

    def arrange(self, y: State) -> State:
        """Return the blocks in the memory layout that all other operations expect."""
        return tuple(b.contiguous() for b in y)

    def combine(self, base: State | None, dt: Tensor, weights: Sequence[float], ks: Sequence[State],
                out: State | None = None) -> State:
        """Return base + Σ dt w_i k_i without the zero weights; `out` may be any of the operands."""
        used, chosen = nonzero_terms(weights, ks)
        coefficients = (dt * self.table(chosen)).to(used[0][0].dtype)
        found = []
        for n in range(len(used[0])):
            total = torch.zeros_like(used[0][n]) if base is None else base[n]
            for i, k in enumerate(used):
                total = torch.addcmul(total, k[n], coefficients[i])
            found.append(total)
        if out is None:
            return tuple(found)
        for a, b in zip(out, found, strict=True):
            a.copy_(b)
        return out

    def scaled_squares(self, dt: Tensor, weights: Sequence[float], ks: Sequence[State], y0: State, y1: State,
                       rtol: float, atol: float) -> Tensor:
        """Return sums of squares of Σ dt w_i k_i in units of the tolerance, (blocks, parts)."""
        error = self.combine(None, dt, weights, ks)
        scaled = [e / torch.maximum(u.abs(), v.abs()).mul_(rtol).add_(atol)
                  for e, u, v in zip(error, y0, y1, strict=True)]
        return torch.stack([torch.linalg.vector_norm(s).square().reshape(1) for s in scaled])


def nonzero_terms(weights: Sequence[float], ks: Sequence[State]) -> tuple[list[State], tuple[float, ...]]:
    """Return the stages whose weights are not zero, and these weights."""
    pairs = [(k, float(w)) for k, w in zip(ks, weights, strict=False) if w != 0]
    return [k for k, _ in pairs], tuple(w for _, w in pairs)
