"""GRU-ODE-Bayes without attention on a CUDA device, all rows in one launch.

Row by row, for every series separately:

    r, z = σ(h W_rz)        u = tanh((r ⊙ h) W_u)        h ← h + dt (1−z) ⊙ (u−h)

and at an observation the jump (`events`). The backward pass is one launch again, from h before every row. It keeps the
gradient of h after each jump, from which the gradients of the jump's weights follow as those of one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from acenode.accelerate.gru_ode_bayes.events import (
    F_WEIGHTS,
    MAX_WIDTH,
    REGISTERS,
    WARPS,
    KernelEvents,
    KernelWeights,
    jump_gradients,
    max_width,
    sizes,
)
from acenode.accelerate.triton_support import MAX_ELEMENTS, kernel_works, kernels_available
from acenode.backend import Backend


@dataclass(frozen=True)
class SavedStates:
    """Inputs and values of the forward pass that the backward pass needs."""

    dt: Tensor
    events: KernelEvents
    weights: KernelWeights
    states: Tensor  # (S, B, H), h before every row
    pre: Tensor  # (N, H)


def supports(backend: Backend, h0: Tensor, dt: Tensor, events: KernelEvents, weights: KernelWeights) -> bool:
    """Return True if the kernels support these inputs and run on this device."""
    if not h0.is_cuda or any(x.dtype != torch.float32 for x in (h0, dt, events.x, events.m, *weights)):
        return False
    widest = max_width(weights)
    most = max(dt.shape[0] * h0.numel(), len(events.row) * widest)
    if widest > MAX_WIDTH or len(h0) == 0 or most >= MAX_ELEMENTS or not kernels_available(backend, h0.device):
        return False
    back = torch.is_grad_enabled()
    kind = "jumps", h0.device, back, *sizes(events, weights).values()
    return kernel_works(backend, kind, lambda: _attempt(h0, dt, events, weights, back))


@torch.no_grad()
def _attempt(h0: Tensor, dt: Tensor, events: KernelEvents, weights: KernelWeights, back: bool) -> None:
    """Run the forward pass and, if `back`, the backward pass."""
    pre, post, saved = forward(h0, dt, events, weights)
    if back:
        backward(pre, post, saved)


def _launch(kernel: Any, first: tuple[Tensor, ...], dt: Tensor, events: KernelEvents, weights: KernelWeights,
            last: tuple[Tensor, ...], S: int, B: int) -> None:
    with torch.cuda.device(dt.device):
        kernel[(B,)](*first, dt, *dt.stride(), *events.arguments(), torch.cat([w.flatten() for w in weights]), *last,
                     S, B, **sizes(events, weights), num_warps=WARPS, maxnreg=REGISTERS)


def forward(h0: Tensor, dt: Tensor, events: KernelEvents, weights: KernelWeights) -> tuple[Tensor, Tensor, SavedStates]:
    """Return h before and after each event, (N, H), from h0 (B, H) and dt (S, B), which may be an expanded tensor."""
    from acenode.accelerate.gru_ode_bayes import kernels

    (B, H), S = h0.shape, len(dt)
    states = h0.new_empty(S, B, H)
    pre, post = h0.new_empty(len(events.row), H), h0.new_empty(len(events.row), H)
    _launch(kernels.forward, (h0.contiguous(),), dt, events, weights, (states, pre, post), S, B)
    return pre, post, SavedStates(dt, events, weights, states, pre)


def backward(grad_pre: Tensor, grad_post: Tensor, saved: SavedStates,
             needed: Sequence[bool] = (True,) * len(KernelWeights._fields)) -> tuple[Tensor, KernelWeights]:
    """Return the gradients of h0 and of the weights."""
    from acenode.accelerate.gru_ode_bayes import kernels

    S, B, H = saved.states.shape
    d_post = torch.zeros_like(saved.pre)  # the gradient of h after each jump
    d_start, each = grad_pre.new_empty(B, H), grad_pre.new_empty(B, 3 * H * H)
    _launch(kernels.backward, (grad_pre.contiguous(), grad_post.contiguous()), saved.dt, saved.events,
            saved.weights, (saved.states, saved.pre, d_post, d_start, each), S, B)
    total = each.sum(0)
    d_rz, d_u = total[:2 * H * H].view(H, 2 * H), total[2 * H * H:].view(H, H)
    found: Any = jump_gradients(saved.pre, saved.events, saved.weights, d_post, needed[F_WEIGHTS:])
    return d_start, KernelWeights(d_rz, d_u, *found)


class KernelPass(torch.autograd.Function):
    """`KernelPass.apply(h0, dt, events, *weights)`: h before and after each event."""

    @staticmethod
    def forward(ctx: Any, h0: Tensor, dt: Tensor, events: KernelEvents, *weights: Tensor) -> tuple[Tensor, Tensor]:
        pre, post, saved = forward(h0, dt, events, KernelWeights(*weights))
        ctx.dt, ctx.events = dt, events
        ctx.save_for_backward(saved.states, pre, *weights)
        return pre, post

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        states, pre, *weights = ctx.saved_tensors
        saved = SavedStates(ctx.dt, ctx.events, KernelWeights(*weights), states, pre)
        d_start, found = backward(grads[0], grads[1], saved, ctx.needs_input_grad[3:])
        return d_start, None, None, *found
