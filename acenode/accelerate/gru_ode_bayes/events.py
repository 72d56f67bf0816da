"""Observations and read points in the order of the CUDA kernels, and the GRU-Bayes update in torch.

At an observation after a row, with [mean, log σ²] = ReLU(h W₁ + b₁) W₂ + b₂ for each of D variables and the mask m,

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
from acenode.data.gru_ode_bayes_pass import CellWeights
from acenode.data.schedule import StepSchedule

MAX_WIDTH = 64  # of any layer: a program holds f's weights, with their gradients or with σ(a), in registers
WARPS = 4
REGISTERS = 168  # per thread: three programs run on a multiprocessor at a time
F_WEIGHTS = 2  # the first weights are f's, the others p's and the update's


class KernelWeights(NamedTuple):
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
class KernelEvents:
    """N observations and read points ("events") of B series, sorted by series and then by row."""

    offsets: Tensor  # (B + 1,) int32 or int64: series b has the events offsets[b]:offsets[b + 1]
    row: Tensor  # (N,) of the same type: the row that the event follows
    x: Tensor  # (N, D)
    m: Tensor  # (N, D), one where observed
    dropout: Tensor | None = None  # (N, Q), dropout mask of the hidden layer
    observed: Tensor | None = None  # (N,) bool, False for a read point; None if all are observations

    def arguments(self) -> tuple[Tensor, ...]:
        """Return the tensors in the order of a kernel's parameters."""
        unused = self.x
        observed = unused if self.observed is None else self.observed.contiguous().view(torch.uint8)
        dropout = unused if self.dropout is None else self.dropout.contiguous()
        return (self.offsets.contiguous(), self.row.contiguous(), observed, self.x.contiguous(), self.m.contiguous(),
                dropout)


@dataclass(frozen=True)
class EventOrder:
    """The points of a schedule as events, and the index of each observation and read point among them."""

    events: KernelEvents
    observations: Tensor  # (N,)
    reads: Tensor  # (R,)


def in_order(schedule: StepSchedule, B: int, x: Tensor, m: Tensor, dropout: Tensor | None) -> EventOrder:
    """Sort the points by series and row, read points before observations; x, m and dropout are by observation."""
    observations, reads = schedule.observations, schedule.reads
    series, row = torch.cat((reads.series, observations.series)), torch.cat((reads.row, observations.row))
    order = (series * schedule.rows + row).argsort(stable=True)
    offsets = torch.searchsorted(series[order], torch.arange(B + 1, device=order.device))
    values = [None if v is None else F.pad(v, (0, 0, len(reads), 0))[order] for v in (x, m, dropout)]
    observed = None if len(reads) == 0 else order >= len(reads)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    events = KernelEvents(offsets, row[order], values[0], values[1], values[2], observed)  # type: ignore[arg-type]
    return EventOrder(events, place[len(reads):], place[:len(reads)])


def kernel_weights(w: CellWeights) -> KernelWeights:
    """Return the model's weights as the kernels take them."""
    return KernelWeights(torch.cat((w.f_reset, w.f_update)).t(), w.f_new.t(), w.p_hidden.t(), w.p_hidden_bias,
                         w.p_out.t(), w.p_out_bias, w.features, w.features_bias, w.gru_input.t(), w.gru_input_bias,
                         w.gru_hidden.t(), w.gru_hidden_bias)


def predict(h: Tensor, dropout: Tensor | None, w: CellWeights) -> Tensor:
    """Return p(x | h), mean and log-variance, (N, 2D)."""
    hidden = torch.relu(F.linear(h, w.p_hidden, w.p_hidden_bias))
    return F.linear(hidden if dropout is None else hidden * dropout, w.p_out, w.p_out_bias)


def jump(h: Tensor, events: KernelEvents, w: KernelWeights) -> Tensor:
    """Return h (N, H) after the update at every event."""
    hidden = torch.relu(torch.addmm(w.b_1, h, w.W_1))
    p = torch.addmm(w.b_2, hidden if events.dropout is None else hidden * events.dropout, w.W_2)
    mean, logvar = p.chunk(2, 1)
    features = torch.stack((events.x, mean, logvar, (events.x - mean) * torch.exp(-0.5 * logvar)), -1)  # (N, D, 4)
    q = torch.relu(torch.addmm(w.b.flatten(), features.flatten(1), torch.block_diag(*w.M)))
    q = q * events.m.repeat_interleave(w.b.shape[1], 1)
    of_q, of_h = torch.addmm(w.b_input, q, w.W_input), torch.addmm(w.b_hidden, h, w.W_hidden)
    (r, z, n), (r_h, z_h, n_h) = of_q.chunk(3, 1), of_h.chunk(3, 1)
    r, z = torch.sigmoid(r + r_h), torch.sigmoid(z + z_h)
    return torch.lerp(torch.tanh(n + r * n_h), h, z)


def jump_gradients(pre: Tensor, events: KernelEvents, weights: KernelWeights, d_post: Tensor,
                   needed: Sequence[bool]) -> list[Tensor | None]:
    """Return the gradients of p's and the update's weights, all observations at once, from ∂h after each."""
    if not any(needed):
        return [None] * len(needed)
    with torch.enable_grad():
        own = [w.detach().requires_grad_(wanted) for w, wanted in zip(weights[F_WEIGHTS:], needed, strict=True)]
        after = jump(pre.detach(), events, KernelWeights(*weights[:F_WEIGHTS], *own))
        found = iter(torch.autograd.grad(after, [w for w in own if w.requires_grad], d_post))
    return [next(found) if wanted else None for wanted in needed]


def sizes(events: KernelEvents, weights: KernelWeights) -> dict[str, Any]:
    """Return the compile-time constants of a kernel."""
    H, Q, (D, _, each) = len(weights.W_u), weights.W_1.shape[1], weights.M.shape
    return {"H": H, "Q": Q, "D": D, "F": each, "DROPOUT": events.dropout is not None,
            "NO_READS": events.observed is None,
            "P": block_size(H), "PQ": block_size(Q), "PK": block_size(D * each)}


def max_width(weights: KernelWeights) -> int:
    """Return the width of the widest layer."""
    D, _, each = weights.M.shape
    return max(len(weights.W_u), weights.W_1.shape[1], D * each)
