"""A state that follows a gated ODE and jumps where it is observed, all rows in one launch on a CUDA device.

Row by row, for every series by itself:

    r, z = σ(h W_rz)        u = tanh((r ⊙ h) W_u)        h ← h + dt (1−z) ⊙ (u−h)

and after the row of an event a jump (`events`). Backward, the gradient passes through all rows in
one launch again, from nothing but h before every row; what it is after each jump is kept, and the jumps' weights'
gradients are those of one batch of all jumps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
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
from acenode.accelerate.triton_support import MAX_ELEMENTS
from acenode.backend import Backend


@dataclass(frozen=True)
class Saved:
    dt: Tensor
    events: Events
    weights: Weights
    states: Tensor  # (S, B, H), h before every row
    pre: Tensor  # (N, H)


def supports(backend: Backend, h0: Tensor, dt: Tensor, events: Events, weights: Weights) -> bool:
    """Whether the kernels take a scan of this kind."""
    if not h0.is_cuda or any(x.dtype != torch.float32 for x in (h0, dt, events.x, events.m, *weights)):
        return False
    widest = largest(weights)
    most = max(dt.shape[0] * h0.numel(), len(events.row) * widest)
    if widest > LARGEST or len(h0) == 0 or most >= MAX_ELEMENTS or not kernels_available(backend, h0.device.index):
        return False
    back = torch.is_grad_enabled()
    kind = "jumps", h0.device, back, *sizes(events, weights).values()
    return runs(backend, kind, lambda: _attempt(h0, dt, events, weights, back))


@torch.no_grad()
def _attempt(h0: Tensor, dt: Tensor, events: Events, weights: Weights, back: bool) -> None:
    """There, and back."""
    pre, post, saved = forward(h0, dt, events, weights)
    if back:
        backward(pre, post, saved)


def _launch(kernel: Any, first: tuple[Tensor, ...], dt: Tensor, events: Events, weights: Weights,
            last: tuple[Tensor, ...], S: int, B: int) -> None:
    with torch.cuda.device(dt.device):
        kernel[(B,)](*first, dt, *dt.stride(), *events.arguments(), torch.cat([w.flatten() for w in weights]), *last,
                     S, B, **sizes(events, weights), num_warps=WARPS, maxnreg=REGISTERS)


def forward(h0: Tensor, dt: Tensor, events: Events, weights: Weights) -> tuple[Tensor, Tensor, Saved]:
    """h0 (B, H) and dt (S, B), which may be one number expanded → h before and after each event, (N, H)."""
    from acenode.accelerate.gru_ode_bayes import kernels as jump_kernels

    (B, H), S = h0.shape, len(dt)
    states = h0.new_empty(S, B, H)
    pre, post = h0.new_empty(len(events.row), H), h0.new_empty(len(events.row), H)
    _launch(jump_kernels.forward, (h0.contiguous(),), dt, events, weights, (states, pre, post), S, B)
    return pre, post, Saved(dt, events, weights, states, pre)


def backward(grad_pre: Tensor, grad_post: Tensor, saved: Saved,
             needed: Sequence[bool] = (True,) * len(Weights._fields)) -> tuple[Tensor, Weights]:
    """The gradients of h0 and of the weights."""
    from acenode.accelerate.gru_ode_bayes import kernels as jump_kernels

    S, B, H = saved.states.shape
    arrived = torch.zeros_like(saved.pre)  # the gradient of h after each jump
    d_start, each = grad_pre.new_empty(B, H), grad_pre.new_empty(B, 3 * H * H)
    _launch(jump_kernels.backward, (grad_pre.contiguous(), grad_post.contiguous()), saved.dt, saved.events,
            saved.weights, (saved.states, saved.pre, arrived, d_start, each), S, B)
    total = each.sum(0)
    d_rz, d_u = total[:2 * H * H].view(H, 2 * H), total[2 * H * H:].view(H, H)
    found: Any = settle(saved.pre, saved.events, saved.weights, arrived, needed[OF_ROWS:])
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
        saved = Saved(ctx.dt, ctx.events, Weights(*weights), states, pre)
        d_start, found = backward(grads[0], grads[1], saved, ctx.needs_input_grad[3:])
        return d_start, None, None, *found
