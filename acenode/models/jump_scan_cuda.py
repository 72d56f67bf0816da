"""A state that follows a gated ODE and jumps where it is observed, all rows in one launch on a CUDA device.

Row by row, for every series by itself:

    r, z = σ(h W_rz)        u = tanh((r ⊙ h) W_u)        h ← h + dt (1−z) ⊙ (u−h)

and after the row of an event, with p = ReLU(h W₁ + b₁) W₂ + b₂ = [mean, log σ²] for each of D variables and the mask m
of what was observed there,

    q_d = m_d ReLU([x_d, mean_d, log σ_d², (x_d − mean_d)/σ_d] M_d + b_d)        h ← GRU([q_1, …, q_D], h)

(De Brouwer et al., GRU-ODE-Bayes). Backward, the gradient passes through all rows in one launch again, from nothing
but h before every row; what it is after each jump is kept, and the jumps' weights' gradients are those of one batch of
all jumps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from acenode.models.scan_cuda import ADDRESSABLE, launching, padded, ready

LARGEST = 64  # of any layer: the ODE's weights and their gradients are held in registers
WARPS = 4
REGISTERS = 168  # of a thread: three programs at a time on a multiprocessor


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
    """N events of B series, a series' own one after another and in the order of their rows, one a row at most."""

    offsets: Tensor  # (B + 1,) int32 or int64: series b has the events offsets[b] to offsets[b + 1]
    row: Tensor  # (N,) of the same kind: after this row it happens
    x: Tensor  # (N, D)
    m: Tensor  # (N, D), one where observed
    kept: Tensor | None = None  # (N, Q), what dropout multiplies the hidden layer with
    jumps: Tensor | None = None  # (N,) bool, False for an event where h is only looked at


@dataclass(frozen=True)
class Saved:
    dt: Tensor
    events: Events
    weights: Weights
    states: Tensor  # (S, B, H), h before every row
    pre: Tensor  # (N, H)


def suits(h0: Tensor, dt: Tensor, events: Events, weights: Weights) -> bool:
    """Whether the kernels take a scan of this kind."""
    if not h0.is_cuda or any(x.dtype != torch.float32 for x in (h0, dt, events.x, events.m, *weights)):
        return False
    H, Q, (D, _, F) = h0.shape[1], weights.W_1.shape[1], weights.M.shape
    most = max(dt.shape[0] * h0.numel(), len(events.row) * max(H, Q, D))
    return max(H, Q, D * F) <= LARGEST and len(h0) > 0 and most < ADDRESSABLE and ready(h0.device.index)


def jump(h: Tensor, events: Events, w: Weights) -> Tensor:
    """h (N, H) after all events."""
    hidden = torch.relu(torch.addmm(w.b_1, h, w.W_1))
    p = torch.addmm(w.b_2, hidden if events.kept is None else hidden * events.kept, w.W_2)
    mean, logvar = p.chunk(2, 1)
    features = torch.stack((events.x, mean, logvar, (events.x - mean) * torch.exp(-0.5 * logvar)), -1)  # (N, D, 4)
    q = torch.relu(torch.einsum("ndi,dif->ndf", features, w.M) + w.b) * events.m.unsqueeze(-1)
    given, own = torch.addmm(w.b_input, q.flatten(1), w.W_input), torch.addmm(w.b_hidden, h, w.W_hidden)
    (r, z, n), (own_r, own_z, own_n) = given.chunk(3, 1), own.chunk(3, 1)
    r, z = torch.sigmoid(r + own_r), torch.sigmoid(z + own_z)
    return torch.lerp(torch.tanh(n + r * own_n), h, z)


def _launch(kernel: Any, first: tuple[Tensor, ...], dt: Tensor, events: Events, weights: Weights,
            last: tuple[Tensor, ...], S: int, B: int) -> None:
    H, Q, (D, _, F) = weights.W_u.shape[0], weights.W_1.shape[1], weights.M.shape
    nothing = events.x
    told = nothing if events.jumps is None else events.jumps.contiguous().view(torch.uint8)
    kept = nothing if events.kept is None else events.kept.contiguous()
    with launching, torch.cuda.device(dt.device):
        kernel[(B,)](*first, dt, *dt.stride(), events.offsets.contiguous(), events.row.contiguous(), told,
                     events.x.contiguous(), events.m.contiguous(), kept, torch.cat([w.flatten() for w in weights]),
                     *last, S, B, H=H, Q=Q, D=D, F=F, DROPS=events.kept is not None, ALWAYS=events.jumps is None,
                     P=padded(H), PQ=padded(Q), PK=padded(D * F), num_warps=WARPS, maxnreg=REGISTERS)


def forward(h0: Tensor, dt: Tensor, events: Events, weights: Weights) -> tuple[Tensor, Tensor, Saved]:
    """h0 (B, H) and dt (S, B), which may be one number expanded → h before and after each event, (N, H)."""
    from acenode.models import jump_kernels

    (B, H), S = h0.shape, len(dt)
    states = h0.new_empty(S, B, H)
    pre, post = h0.new_empty(len(events.row), H), h0.new_empty(len(events.row), H)
    _launch(jump_kernels.forward, (h0.contiguous(),), dt, events, weights, (states, pre, post), S, B)
    return pre, post, Saved(dt, events, weights, states, pre)


def backward(grad_pre: Tensor, grad_post: Tensor, saved: Saved) -> tuple[Tensor, Weights]:
    """The gradients of h0 and of the weights."""
    from acenode.models import jump_kernels

    S, B, H = saved.states.shape
    arrived = torch.zeros_like(saved.pre)  # the gradient of h after each jump
    d_start, each = grad_pre.new_empty(B, H), grad_pre.new_empty(B, 3 * H * H)
    _launch(jump_kernels.backward, (grad_pre.contiguous(), grad_post.contiguous()), saved.dt, saved.events,
            saved.weights, (saved.states, saved.pre, arrived, d_start, each), S, B)
    total = each.sum(0)
    d_rz, d_u = total[:2 * H * H].view(H, 2 * H), total[2 * H * H:].view(H, H)
    with torch.enable_grad():
        leaves = [w.detach().requires_grad_() for w in saved.weights[2:]]
        after = jump(saved.pre.detach(), saved.events, Weights(*saved.weights[:2], *leaves))
        found = torch.autograd.grad(after, leaves, arrived)
    return d_start, Weights(d_rz, d_u, *found)


class JumpScan(torch.autograd.Function):
    """h before and after each event as one node: `JumpScan.apply(h0, dt, events, *weights)`."""

    @staticmethod
    def forward(ctx: Any, h0: Tensor, dt: Tensor, events: Events, *weights: Tensor) -> tuple[Tensor, Tensor]:
        pre, post, saved = forward(h0, dt, events, Weights(*weights))
        ctx.dt, ctx.events = dt, events
        ctx.save_for_backward(saved.states, pre, *weights)
        return pre, post

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        states, pre, *weights = ctx.saved_tensors
        d_start, found = backward(grads[0], grads[1], Saved(ctx.dt, ctx.events, Weights(*weights), states, pre))
        return d_start, None, None, *found
