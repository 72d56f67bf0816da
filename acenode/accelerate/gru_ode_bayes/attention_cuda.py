"""A state that follows a gated ODE as ACE's pairwise attention lets it, and jumps: one launch on a CUDA device.

Row by row, for every series by itself:

    s = σ(a) h        r, z = σ(s W_rz)        u = tanh((r ⊙ s) W_u)        h ← h + dt (1−z) ⊙ (u−s)        or u−h

after the row of an event a jump (`events`), and after the rows of a window, τ long, on the mean m
of s over them,

    r, z = σ(a G_rz + m V_rz)        u = tanh((r ⊙ a) G_u + m V_u)        a ← u + e^(−τ(1−z)) ⊙ (a−u)

For the way back, again one launch, h, s and the gates of every row are kept, and a at the start of every window; g's
gates are made again. The gradient of the ODE's weights is then one product over all rows, that of the jumps' weights
one batch of all jumps, and that of g's a sum over the series, each of which adds up its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from acenode.accelerate.gru_ode_bayes.events import (
    LARGEST,
    OF_ROWS,
    REGISTERS,
    WARPS,
    Events,
    Weights,
    largest,
    settle,
    sizes,
)
from acenode.accelerate.kernel_check import kernels_available, runs
from acenode.accelerate.triton_support import MAX_ELEMENTS, block_size
from acenode.backend import Backend

SHARE = 0.125  # of the device's memory for a pass and its way back, at most
STRIP = 16  # rows of a at a time
EXACT = "tf32x3"  # three products in tf32, which give float32's accuracy
OLDEST = (8, 0)  # compute capability, the first one with tf32


class G(NamedTuple):
    """g's weights, all as (inputs, outputs)."""

    G_rz: Tensor  # (H, 2H) of the rows of a
    G_u: Tensor
    V_rz: Tensor  # (H, 2H) of the mean
    V_u: Tensor


@dataclass(frozen=True)
class Way:
    """How h and a go together."""

    every: int  # rows of a window
    own_feedback: bool
    detach: bool  # a is a constant in the gradient
    keep: bool  # whether there is a way back

    def windows(self, S: int) -> int:
        """Of S rows, of which row 0 is in no window but goes with the first."""
        return max(1, -(-(S - 1) // self.every))


class Kept(NamedTuple):
    """What the way back needs; next to nothing where there is none."""

    a: Tensor  # (windows, B, H, H) at the start of each; two of them in turn where there is no way back
    states: Tensor  # (S, B, H), h before every row
    attended: Tensor  # s
    opened: Tensor  # r, z, u: (S, B, 3H)
    means: Tensor  # (windows − 1, B, H) of s
    shares: Tensor  # (windows − 1, B, 3H), the mean's in g's gates
    taus: Tensor  # (windows − 1, B)
    pre: Tensor  # (N, H)


def _kept(way: Way, S: int, B: int, H: int, N: int) -> tuple[tuple[int, ...], ...]:
    windows = way.windows(S)
    n, rows, a = (windows - 1, S, windows) if way.keep else (0, 0, min(2, windows))
    return (a, B, H, H), (rows, B, H), (rows, B, H), (rows, B, 3 * H), (n, B, H), (n, B, 3 * H), (n, B), (N, H)


def supports(backend: Backend, h0: Tensor, dt: Tensor, events: Events, way: Way, weights: Weights, g: G) -> bool:
    """Whether the kernels take a scan of this kind."""
    if not h0.is_cuda or any(x.dtype != torch.float32 for x in (h0, dt, events.x, events.m, *weights, *g)):
        return False
    if len(h0) == 0 or largest(weights) > LARGEST or torch.cuda.get_device_capability(h0.device) < OLDEST:
        return False
    B, H = h0.shape
    counts = [torch.Size(shape).numel() for shape in _kept(way, len(dt), B, H, len(events.row))]
    scratch = B * max(5 * LARGEST, way.every + 1) * LARGEST
    held = 2 * sum(counts) + 2 * scratch  # and their gradients, at most
    room = SHARE * torch.cuda.get_device_properties(h0.device).total_memory
    if (max(*counts, scratch) >= MAX_ELEMENTS or 4 * held > room
            or not kernels_available(backend, h0.device.index)):
        return False
    needed = [w.requires_grad for w in (*weights, *g)]
    kind = ("attention", h0.device, way.own_feedback, way.detach, way.keep, any(needed[:OF_ROWS]),
            any(needed[len(weights):]), *sizes(events, weights).values())
    return runs(backend, kind, lambda: _attempt(h0, dt, events, way, weights, g, needed))


@torch.no_grad()
def _attempt(h0: Tensor, dt: Tensor, events: Events, way: Way, weights: Weights, g: G, needed: list[bool]) -> None:
    """There and, if there is one, the way back."""
    B, H = h0.shape
    post, kept = forward(h0, h0.new_zeros(B, H, H), dt, events, way, weights, g)
    if way.keep:
        backward(kept.pre, post, dt, events, way, weights, g, kept, needed)


def _squares(weights: Weights, g: G) -> Tensor:
    """(9, P, P): r, z and u of the ODE, of the rows of a and of the mean, with zeros around."""
    H = len(weights.W_u)
    each = [part for rz, u in ((weights.W_rz, weights.W_u), (g.G_rz, g.G_u), (g.V_rz, g.V_u))
            for part in (rz[:, :H], rz[:, H:], u)]
    beyond = block_size(H) - H
    return F.pad(torch.stack(each), (0, beyond, 0, beyond))


def _launch(kernel: Any, first: tuple[Tensor, ...], dt: Tensor, events: Events, way: Way, weights: Weights, g: G,
            last: tuple[Tensor, ...], B: int, **told: bool) -> None:
    S, square, made = len(dt), _squares(weights, g), sizes(events, weights)
    with torch.cuda.device(dt.device):
        kernel[(B,)](*first, dt, *dt.stride(), *events.arguments(), torch.cat([w.flatten() for w in weights[OF_ROWS:]]),
                     square, square.mT.contiguous(), *last, S, B, way.windows(S), way.every, OWN=way.own_feedback,
                     M=min(STRIP, made["P"]), EXACT=EXACT, **told, **made, num_warps=WARPS, num_stages=1,
                     maxnreg=REGISTERS)


def forward(h0: Tensor, a0: Tensor, dt: Tensor, events: Events, way: Way, weights: Weights,
            g: G) -> tuple[Tensor, Kept]:
    """h0 (B, H), a0 (B, H, H) and dt (S, B), dt[0] = 0 → h after each event, (N, H), and what is kept."""
    from acenode.accelerate.gru_ode_bayes import attention_scan_kernels as attend_scan_kernels

    (B, H), S, N = h0.shape, len(dt), len(events.row)
    kept = Kept(*(h0.new_empty(shape) for shape in _kept(way, S, B, H, N)))
    kept.a[0] = a0
    soft, post = h0.new_empty(B, block_size(H), block_size(H)), torch.empty_like(kept.pre)
    a, *others = kept
    _launch(attend_scan_kernels.forward, (h0.contiguous(),), dt, events, way, weights, g, (a, soft, *others, post), B,
            KEEP=way.keep)
    return post, kept


class Found(NamedTuple):
    h0: Tensor
    a0: Tensor
    weights: list[Tensor | None]
    g: list[Tensor | None]


def backward(grad_pre: Tensor, grad_post: Tensor, dt: Tensor, events: Events, way: Way, weights: Weights, g: G,
             kept: Kept, needed: Sequence[bool]) -> Found:
    """The gradients; of the weights, g's last, those that are needed."""
    from acenode.accelerate.gru_ode_bayes import attention_scan_kernels as attend_scan_kernels

    B, H = kept.states.shape[1:]
    P, live = block_size(H), not way.detach
    of_rows, of_jumps, of_g = any(needed[:OF_ROWS]), needed[OF_ROWS:len(weights)], live and any(needed[len(weights):])
    new, none = grad_pre.new_empty, grad_pre.new_empty(0)
    arrived = torch.zeros_like(kept.pre)  # ∂h after each jump
    d_start, d_a = new(B, H), grad_pre.new_zeros(B, P, P)
    d_opened = torch.empty_like(kept.opened) if of_rows else none
    d_shares, work = (torch.empty_like(kept.shares), new(B, 5, P, P)) if of_g else (none, none)
    sums = grad_pre.new_zeros(B, 3, P, P) if of_g else none
    _launch(attend_scan_kernels.backward, (grad_pre.contiguous(), grad_post.contiguous()), dt, events, way, weights, g,
            (kept.a, kept.states, kept.attended, kept.opened, kept.shares, kept.taus, kept.pre, arrived, new(B, P, P),
             new(B, way.every + 1, P), d_a, d_opened, d_shares, work, sums, d_start), B, LIVE=live, F_TRAINED=of_rows,
            G_TRAINED=of_g)
    rows: list[Tensor | None] = [None, None]
    if of_rows:
        s, d = kept.attended.view(-1, H), d_opened.view(-1, 3 * H)
        rows = [s.t() @ d[:, :2 * H], (s * kept.opened.view(-1, 3 * H)[:, :H]).t() @ d[:, 2 * H:]]
    of_a: list[Tensor | None] = [torch.zeros_like(w) if wanted else None
                                 for w, wanted in zip(g, needed[len(weights):], strict=True)]
    if of_g:
        r, z, u = sums.sum(0)[:, :H, :H]
        means, d = kept.means.view(-1, H), d_shares.view(-1, 3 * H)
        of_a = [torch.cat((r, z), 1), u, means.t() @ d[:, :2 * H], means.t() @ d[:, 2 * H:]]
    return Found(d_start, d_a[:, :H, :H], [*rows, *settle(kept.pre, events, weights, arrived, of_jumps)], of_a)


class AttendScan(torch.autograd.Function):
    """h before and after each event as one node: `AttendScan.apply(h0, a0, dt, events, way, *weights, *g)`."""

    @staticmethod
    def forward(ctx: Any, h0: Tensor, a0: Tensor, dt: Tensor, events: Events, way: Way,
                *weights: Tensor) -> tuple[Tensor, Tensor]:
        own = len(Weights._fields)
        post, kept = forward(h0, a0, dt, events, way, Weights(*weights[:own]), G(*weights[own:]))
        ctx.dt, ctx.events, ctx.way = dt, events, way
        ctx.save_for_backward(*kept, *weights)
        return kept.pre, post

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        own, saved = len(Weights._fields), ctx.saved_tensors
        kept, weights = Kept(*saved[:len(Kept._fields)]), saved[len(Kept._fields):]
        found = backward(grads[0], grads[1], ctx.dt, ctx.events, ctx.way, Weights(*weights[:own]), G(*weights[own:]),
                         kept, ctx.needs_input_grad[5:])
        return found.h0, found.a0, None, None, None, *found.weights, *found.g
