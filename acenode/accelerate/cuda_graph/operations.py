"""What a step on the device is made of, in plain tensor operations: `kernels.operations` does the same in few kernels.

A combination's coefficients are dt w_i, where dt is read on the device, so that one recording serves every step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from acenode.accelerate.cuda_graph.control import Control, Span
from acenode.ode.runge_kutta import State


class Kept:
    """States and their slopes, each under a number that the device knows."""

    def __init__(self, like: State, places: int) -> None:
        self.like = like
        self.blocks = [b.new_zeros(places, *b.shape) for b in like * 2]

    def write(self, number: Tensor, y: State, k: State) -> None:
        """Under the number after the given one."""
        for kept, block in zip(self.blocks, y + k, strict=True):
            kept.index_copy_(0, number.reshape(1) + 1, block.unsqueeze(0))

    def read(self, number: Tensor) -> tuple[State, State]:
        found = tuple(kept.index_select(0, number.reshape(1))[0] for kept in self.blocks)
        return found[:len(self.like)], found[len(self.like):]


class Operations:
    """The plain ones, for any device."""

    name = "torch"

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.tables: dict[tuple[float, ...], Tensor] = {}

    def table(self, weights: tuple[float, ...]) -> Tensor:
        """Weights on the device; made once, before anything is recorded."""
        if weights not in self.tables:
            self.tables[weights] = torch.tensor(weights, dtype=torch.float64, device=self.device)
        return self.tables[weights]

    def control(self, span: Span, c: tuple[float, ...], like: State) -> Control:
        return Control(span, c, tuple(b.numel() for b in like), like[0].dtype, like[0].device)

    def keep(self, like: State, places: int) -> Kept:
        return Kept(like, places)

    def arrange(self, y: State) -> State:
        """The blocks in the layout that all others follow."""
        return tuple(b.contiguous() for b in y)

    def combine(self, base: State | None, dt: Tensor, weights: Sequence[float], ks: Sequence[State],
                out: State | None = None) -> State:
        """base + Σ dt w_i k_i, the zero weights left out; `out` may be any of the others."""
        used, chosen = nonzero(weights, ks)
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

    def squares(self, dt: Tensor, weights: Sequence[float], ks: Sequence[State], y0: State, y1: State, rtol: float,
                atol: float) -> Tensor:
        """Sums of squares of Σ dt w_i k_i in units of the tolerance, (blocks, parts)."""
        error = self.combine(None, dt, weights, ks)
        scaled = [e / torch.maximum(u.abs(), v.abs()).mul_(rtol).add_(atol)
                  for e, u, v in zip(error, y0, y1, strict=True)]
        return torch.stack([torch.linalg.vector_norm(s).square().reshape(1) for s in scaled])


def nonzero(weights: Sequence[float], ks: Sequence[State]) -> tuple[list[State], tuple[float, ...]]:
    pairs = [(k, float(w)) for k, w in zip(ks, weights, strict=False) if w != 0]
    return [k for k, _ in pairs], tuple(w for _, w in pairs)
