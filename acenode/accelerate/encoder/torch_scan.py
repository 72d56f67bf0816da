"""The ODE recurrence as one node of the graph: all rows forward, all rows backward, weights' gradients at the end.

Row by row, with y = [μ, s] and dt, then what is given and whether it is read:

    μ ← μ + dt f(μ)                                     f: linear maps with tanh between
    u, r = σ(tanh(x + y G) G' + b)                      x: the input's share, for all rows at once
    [m, c] = tanh(x' + (y ⊙ [r, r]) N) N' + b'
    y ← [(1−u) m + u μ, |(1−u)|c| + u s|] where read

Recorded operation by operation, the graph of a row has some forty nodes and each of them adds to a weight's gradient;
here a weight's gradient is one product over all rows. Nothing asks the host, so a device can be sent the whole of it;
a CUDA device takes all rows in one launch where it can (`cuda`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from acenode.accelerate.encoder import cuda as scan_cuda
from acenode.accelerate.kernel_check import runs
from acenode.backend import GPU_KERNELS, TORCH_OPERATIONS, Backend

LINE = 32  # numbers of a cache line


class Kept(NamedTuple):
    """What the rows leave for their gradient, each (S, B, ·)."""

    starts: Tensor  # y before
    ys: Tensor  # y after the ODE
    gates: Tensor
    opened: Tensor
    made: Tensor
    said: Tensor
    mixed: Tensor
    inner: list[Tensor]  # between f's maps


class Found(NamedTuple):
    """Gradients row by row of what enters each product's sum, (S, B, ·)."""

    given: Tensor
    opened: Tensor
    said: Tensor
    rate: Tensor
    inner: list[Tensor]


class Scan(torch.autograd.Function):
    """given (S, B, 3u), dt (S, B, 1), read (S, B, 1) and the weights → y after every row, (S, B, 2r).

    `weights` are G, G', b, N, N', b', then W and b of each map of f, all as (inputs, outputs).
    """

    @staticmethod
    def forward(ctx: Any, backend: Backend, given: Tensor, dt: Tensor, read: Tensor, *weights: Tensor) -> Tensor:
        w = [x.contiguous() for x in weights]
        ctx.together = scan_cuda.supports(backend, given, w) and runs(
            backend, ("recurrence", given.device, any(ctx.needs_input_grad), *scan_cuda.compiled_for(w).values()),
            lambda: _attempt(given, dt, read, w, any(ctx.needs_input_grad)))
        if given.is_cuda:
            backend.report_series_by(GPU_KERNELS if ctx.together else TORCH_OPERATIONS)
        kept, outs = _room_forward(given, ctx.together, w)
        (scan_cuda.forward if ctx.together else _forward)(given, dt, read, w, kept, outs)
        ctx.count = len(w)
        ctx.save_for_backward(dt, read, *w, *kept[:-1], *kept.inner)
        return outs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        dt, read, *rest = ctx.saved_tensors
        w, held = rest[:ctx.count], rest[ctx.count:]
        kept = Kept._make((*held[:7], held[7:]))
        S, B, r2 = kept.ys.shape
        r, u2 = r2 // 2, kept.gates.shape[2]
        found = _room_back(grad, ctx.together, kept)
        (scan_cuda.backward if ctx.together else _backward)(grad, dt, read, w, kept, found)

        def product(a: Tensor, b: Tensor) -> Tensor:
            return a.reshape(-1, a.shape[-1]).t() @ b.reshape(-1, b.shape[-1])

        let = (kept.ys.view(S, B, 2, r) * kept.opened[:, :, None, r:]).view(S, B, r2)
        totals = [product(kept.ys, found.given[..., :u2]), product(kept.gates, found.opened),
                  found.opened.sum((0, 1)), product(let, found.given[..., u2:]), product(kept.made, found.said),
                  found.said.sum((0, 1))]
        for a, d in zip([kept.starts[..., :r], *kept.inner], [*found.inner, found.rate], strict=True):
            totals += [product(a, d), d.sum((0, 1))]
        return None, found.given, None, None, *totals


def _attempt(given: Tensor, dt: Tensor, read: Tensor, weights: Sequence[Tensor], back: bool) -> None:
    """There by the kernels, and back."""
    kept, outs = _room_forward(given, True, weights)
    scan_cuda.forward(given, dt, read, weights, kept, outs)
    if back:
        scan_cuda.backward(outs, dt, read, weights, kept, _room_back(outs, True, kept))


def _room_forward(given: Tensor, together: bool, weights: Sequence[Tensor]) -> tuple[Kept, Tensor]:
    """For what is kept, and for y."""
    (r2, u2), hidden = weights[0].shape, [W.shape[1] for W in weights[6:-2:2]]
    blocks, inner = _blocks(given, together, [r2, r2, u2, r2, u2 // 2, r2, r2], hidden)
    return Kept._make((*blocks, inner)), given.new_empty(*given.shape[:2], r2)


def _room_back(grad: Tensor, together: bool, kept: Kept) -> Found:
    r2, u2, u = kept.ys.shape[2], kept.gates.shape[2], kept.made.shape[2]
    blocks, inner = _blocks(grad, together, [u2 + u, r2, r2, r2 // 2], [a.shape[2] for a in kept.inner])
    return Found._make((*blocks, inner))


def _blocks(like: Tensor, zero: bool, widths: list[int], inner: list[int]) -> tuple[list[Tensor], list[Tensor]]:
    """Parts of one storage, each (S, B, width), those of f's maps side by side at its end.

    Zero for a kernel, which stores nothing where nothing is read; each begins at a whole number of cache lines.
    """
    S, B, _ = like.shape
    sizes = [-(-S * B * width // LINE) * LINE for width in widths] + [S * B * width for width in inner]
    whole = (like.new_zeros if zero else like.new_empty)(sum(sizes))
    parts = [part[:S * B * width].view(S, B, width)
             for part, width in zip(whole.split(sizes), widths + inner, strict=True)]
    return parts[:len(widths)], parts[len(widths):]


def _forward(given: Tensor, dt: Tensor, read: Tensor, weights: Sequence[Tensor], kept: Kept, outs: Tensor) -> None:
    G, G2, gb, N, N2, nb, *field = weights
    maps = [(field[i], field[i + 1]) for i in range(0, len(field), 2)]
    B, (r2, u2) = given.shape[1], G.shape
    r = r2 // 2
    y = given.new_zeros(B, r2)
    for i in range(len(given)):
        kept.starts[i] = y
        a = y[:, :r]
        for (W, b), to in zip(maps[:-1], kept.inner, strict=True):
            a = torch.addmm(b, a, W, out=to[i]).tanh_()
        W, b = maps[-1]
        moved = kept.ys[i]
        torch.addcmul(y[:, :r], dt[i], torch.addmm(b, a, W), out=moved[:, :r])
        moved[:, r:] = y[:, r:]
        x = given[i]
        g = torch.addmm(x[:, :u2], moved, G, out=kept.gates[i]).tanh_()
        o = torch.addmm(gb, g, G2, out=kept.opened[i]).sigmoid_()
        let = (moved.view(B, 2, r) * o[:, None, r:]).view(B, r2)
        n = torch.addmm(x[:, u2:], let, N, out=kept.made[i]).tanh_()
        c = torch.addmm(nb, n, N2, out=kept.said[i])
        target = torch.cat((c[:, :r], c[:, r:].abs()), 1).view(B, 2, r)
        m = torch.lerp(target, moved.view(B, 2, r), o[:, None, :r], out=kept.mixed[i].view(B, 2, r)).view(B, r2)
        y = outs[i]
        torch.where(read[i], torch.cat((m[:, :r], m[:, r:].abs()), 1), moved, out=y)


def _backward(grad: Tensor, dt: Tensor, read: Tensor, weights: Sequence[Tensor], kept: Kept, found: Found) -> None:
    G, G2, _, N, N2, _, *field = weights
    Gt, G2t, Nt, N2t, *Wts = (W.t().contiguous() for W in (G, G2, N, N2, *field[::2]))
    S, B, r2 = kept.ys.shape
    r, u2 = r2 // 2, kept.gates.shape[2]
    dy = torch.zeros_like(grad[0])
    for i in range(S - 1, -1, -1):
        dy = dy + grad[i]
        y, o, c = kept.ys[i].view(B, 2, r), kept.opened[i], kept.said[i]
        u, let = o[:, None, :r], o[:, None, r:]
        d_new = torch.where(read[i], dy, 0.0)
        dy = dy - d_new  # where nothing is read, y passes on
        d_mixed = torch.cat((d_new[:, :r], d_new[:, r:] * kept.mixed[i, :, r:].sign()), 1).view(B, 2, r)
        target = torch.cat((c[:, :r], c[:, r:].abs()), 1).view(B, 2, r)
        d_target = d_mixed * (1 - u)
        d_y = d_mixed * u
        d_u = (d_mixed * (y - target)).sum(1)
        d_c = torch.cat((d_target[:, 0], d_target[:, 1] * c[:, r:].sign()), 1)
        found.said[i] = d_c
        d_n = (d_c @ N2t) * (1 - kept.made[i].square())
        found.given[i, :, u2:] = d_n
        d_let = (d_n @ Nt).view(B, 2, r)
        d_y = d_y + d_let * let
        d_gate = torch.cat((d_u, (d_let * y).sum(1)), 1) * o * (1 - o)
        found.opened[i] = d_gate
        d_g = (d_gate @ G2t) * (1 - kept.gates[i].square())
        found.given[i, :, :u2] = d_g
        dy = dy + torch.addmm(d_y.reshape(B, r2), d_g, Gt)
        d = dt[i] * dy[:, :r]
        found.rate[i] = d
        for n in range(len(kept.inner) - 1, -1, -1):
            d = (d @ Wts[n + 1]) * (1 - kept.inner[n][i].square())
            found.inner[n][i] = d
        dy = torch.cat((torch.addmm(dy[:, :r], d, Wts[0]), dy[:, r:]), 1)
