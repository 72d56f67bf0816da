"""The ODE-RNN over all rows as one node of the autograd graph, for a drift that is an MLP of μ.

With y = [μ, s], the projected inputs x and x' of `packing`, and the gates' weights G, G', b and N, N', b':

    μ ← μ + dt f(μ)                                     f: linear layers with tanh between
    u, g = σ(tanh(x + y G) G' + b)
    [μ̃, s̃] = tanh(x' + (y ⊙ [g, g]) N) N' + b'
    y ← [(1−u) ⊙ μ̃ + u ⊙ μ, |(1−u) ⊙ |s̃| + u ⊙ s|]      where the row reads a point

Autograd would record some forty nodes a row, each of which adds to a weight's gradient. Here the gradient of a weight
is one product over all rows. No step waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from acenode.accelerate.encoder import cuda, torch_rows
from acenode.accelerate.encoder.buffers import EncoderActivations, activations_for, gradients_for
from acenode.accelerate.triton_support import kernel_works
from acenode.backend import GPU_KERNELS, TORCH_OPERATIONS, Backend


class EncoderScan(torch.autograd.Function):
    """Map projected inputs (S, B, 3u), dt (S, B, 1), read (S, B, 1) and weights to y after every row, (S, B, 2r).

    `weights` are G, G', b, N, N', b', then W and b of each layer of f, all as (inputs, outputs).
    """

    @staticmethod
    def forward(ctx: Any, backend: Backend, projected: Tensor, dt: Tensor, read: Tensor, *weights: Tensor) -> Tensor:
        w = [x.contiguous() for x in weights]
        trains = any(ctx.needs_input_grad)
        ctx.by_kernel = cuda.supports(backend, projected, w) and kernel_works(
            backend, ("recurrence", projected.device, trains, *cuda.compiled_for(w).values()),
            lambda: _attempt(projected, dt, read, w, trains))
        if projected.is_cuda:
            backend.report_series_by(GPU_KERNELS if ctx.by_kernel else TORCH_OPERATIONS)
        saved, states = activations_for(projected, w, zero=ctx.by_kernel)
        (cuda if ctx.by_kernel else torch_rows).forward(projected, dt, read, w, saved, states)
        ctx.count = len(w)
        ctx.save_for_backward(dt, read, *w, *saved[:-1], *saved.f_hidden)
        return states

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        dt, read, *rest = ctx.saved_tensors
        w, kept = rest[:ctx.count], rest[ctx.count:]
        saved = EncoderActivations._make((*kept[:7], kept[7:]))
        S, B, r2 = saved.y_moved.shape
        r, u2 = r2 // 2, saved.gates_hidden.shape[2]
        d = gradients_for(grad, saved, zero=ctx.by_kernel)
        (cuda if ctx.by_kernel else torch_rows).backward(grad, dt, read, w, saved, d)
        reset_y = (saved.y_moved.view(S, B, 2, r) * saved.gates[:, :, None, r:]).view(S, B, r2)
        totals = [_product(saved.y_moved, d.projected[..., :u2]), _product(saved.gates_hidden, d.gates),
                  d.gates.sum((0, 1)), _product(reset_y, d.projected[..., u2:]), _product(saved.new_hidden, d.new),
                  d.new.sum((0, 1))]
        for a, d_sum in zip([saved.y_start[..., :r], *saved.f_hidden], [*d.f_hidden, d.rate], strict=True):
            totals += [_product(a, d_sum), d_sum.sum((0, 1))]
        return None, d.projected, None, None, *totals


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Return Σ aᵀ b over all rows and series."""
    return a.reshape(-1, a.shape[-1]).t() @ b.reshape(-1, b.shape[-1])


def _attempt(projected: Tensor, dt: Tensor, read: Tensor, weights: Sequence[Tensor], trains: bool) -> None:
    """Run the kernels once, forward and, in training, backward."""
    saved, states = activations_for(projected, weights, zero=True)
    cuda.forward(projected, dt, read, weights, saved, states)
    if trains:
        cuda.backward(states, dt, read, weights, saved, gradients_for(states, saved, zero=True))
