"""Where the series of a batch halt on a CUDA device, series by series, and what the jumps there are made of.

After the row of an event, with p = ReLU(h W₁ + b₁) W₂ + b₂ = [mean, log σ²] for each of D variables and the mask m of
what was observed there,

    q_d = m_d ReLU([x_d, mean_d, log σ_d², (x_d − mean_d)/σ_d] M_d + b_d)        h ← GRU([q_1, …, q_D], h)

(De Brouwer et al., GRU-ODE-Bayes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from acenode.accelerate.triton_support import block_size
from acenode.data.schedule import StepSchedule

LARGEST = 64  # of any layer: a program holds the ODE's weights, with their gradients or with σ(a), in registers
WARPS = 4
REGISTERS = 168  # of a thread: three programs at a time on a multiprocessor
OF_ROWS = 2  # of the weights: those of a row's step; the others are the jumps'


class Weights(NamedTuple):
    """All as (inputs, outputs)."""

    W_rz: Tensor  # (H, 2H)
    W_u: Tensor  # (H, H)
    W_1: Tensor  # (H, Q)
    b_1: Tensor
    W_2: Tensor  # (Q, 2D)
    b_2: Tensor
    M: Tensor  # (D, 4, F)
    b: Tensor  # (D, F)
    W_input: Tensor  # (D·F, 3H): reset, update, new
    b_input: Tensor
    W_hidden: Tensor  # (H, 3H)
    b_hidden: Tensor


@dataclass(frozen=True)
class Events:
    """N events of B series, a series' own one after another and in the order of their rows."""

    offsets: Tensor  # (B + 1,) int32 or int64: series b has the events offsets[b] to offsets[b + 1]
    row: Tensor  # (N,) of the same kind: after this row it happens
    x: Tensor  # (N, D)
    m: Tensor  # (N, D), one where observed
    kept: Tensor | None = None  # (N, Q), what dropout multiplies the hidden layer with
    jumps: Tensor | None = None  # (N,) bool, False for an event where h is only looked at

    def arguments(self) -> tuple[Tensor, ...]:
        """As a kernel takes them."""
        nothing = self.x
        told = nothing if self.jumps is None else self.jumps.contiguous().view(torch.uint8)
        kept = nothing if self.kept is None else self.kept.contiguous()
        return (self.offsets.contiguous(), self.row.contiguous(), told, self.x.contiguous(), self.m.contiguous(), kept)


@dataclass(frozen=True)
class Ordered:
    """The halts of a schedule as events, the jumps' places among them, and the reads'."""

    events: Events
    jumps: Tensor  # (N,)
    reads: Tensor


def in_order(schedule: StepSchedule, B: int, x: Tensor, m: Tensor, kept: Tensor | None) -> Ordered:
    """Of a row, a series' reads come before its jump. x, m and kept are by jump."""
    jumps, reads = schedule.observations, schedule.reads
    series, row = torch.cat((reads.series, jumps.series)), torch.cat((reads.row, jumps.row))
    order = (series * schedule.rows + row).argsort(stable=True)
    offsets = torch.searchsorted(series[order], torch.arange(B + 1, device=order.device))
    beside = [None if v is None else F.pad(v, (0, 0, len(reads), 0))[order] for v in (x, m, kept)]
    jumped = None if len(reads) == 0 else order >= len(reads)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    events = Events(offsets, row[order], beside[0], beside[1], beside[2], jumped)  # type: ignore[arg-type]
    return Ordered(events, place[len(reads):], place[:len(reads)])


def jump(h: Tensor, events: Events, w: Weights) -> Tensor:
    """h (N, H) after all events."""
    hidden = torch.relu(torch.addmm(w.b_1, h, w.W_1))
    p = torch.addmm(w.b_2, hidden if events.kept is None else hidden * events.kept, w.W_2)
    mean, logvar = p.chunk(2, 1)
    features = torch.stack((events.x, mean, logvar, (events.x - mean) * torch.exp(-0.5 * logvar)), -1)  # (N, D, 4)
    q = torch.relu(torch.addmm(w.b.flatten(), features.flatten(1), torch.block_diag(*w.M)))
    q = q * events.m.repeat_interleave(w.b.shape[1], 1)
    given, own = torch.addmm(w.b_input, q, w.W_input), torch.addmm(w.b_hidden, h, w.W_hidden)
    (r, z, n), (own_r, own_z, own_n) = given.chunk(3, 1), own.chunk(3, 1)
    r, z = torch.sigmoid(r + own_r), torch.sigmoid(z + own_z)
    return torch.lerp(torch.tanh(n + r * own_n), h, z)


def settle(pre: Tensor, events: Events, weights: Weights, arrived: Tensor,
           needed: Sequence[bool]) -> list[Tensor | None]:
    """The gradients of the jumps' weights, all jumps at once, from ∂h after each; None where not needed."""
    if not any(needed):
        return [None] * len(needed)
    with torch.enable_grad():
        given = [w.detach().requires_grad_(wanted) for w, wanted in zip(weights[OF_ROWS:], needed, strict=True)]
        after = jump(pre.detach(), events, Weights(*weights[:OF_ROWS], *given))
        found = iter(torch.autograd.grad(after, [w for w in given if w.requires_grad], arrived))
    return [next(found) if wanted else None for wanted in needed]


def sizes(events: Events, weights: Weights) -> dict[str, Any]:
    """What a kernel is compiled for."""
    H, Q, (D, _, each) = len(weights.W_u), weights.W_1.shape[1], weights.M.shape
    return {"H": H, "Q": Q, "D": D, "F": each, "DROPS": events.kept is not None, "ALWAYS": events.jumps is None,
            "P": block_size(H), "PQ": block_size(Q), "PK": block_size(D * each)}


def largest(weights: Weights) -> int:
    """The width of the widest layer."""
    D, _, each = weights.M.shape
    return max(len(weights.W_u), weights.W_1.shape[1], D * each)
