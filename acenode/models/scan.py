"""The ODE recurrence as one node of the graph: all rows forward, all rows backward, weights' gradients at the end.

Row by row, with y = [μ, s] and dt, then what is given and whether it is read:

    μ ← μ + dt f(μ)                                     f: linear maps with tanh between
    u, r = σ(tanh(x + y G) G' + b)                      x: the input's share, for all rows at once
    [m, c] = tanh(x' + (y ⊙ [r, r]) N) N' + b'
    y ← [(1−u) m + u μ, |(1−u)|c| + u s|] where read

Recorded operation by operation, the graph of a row has some forty nodes and each of them adds to a weight's gradient;
here a weight's gradient is one product over all rows. Nothing asks the host, so a device can be sent the whole of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class Scan(torch.autograd.Function):
    """given (S, B, 3u), dt (S, B, 1), read (S, B, 1) and the weights → y after every row, (S, B, 2r).

    `weights` are G, G', b, N, N', b', then W and b of each map of f, all as (inputs, outputs).
    """

    @staticmethod
    def forward(ctx: Any, given: Tensor, dt: Tensor, read: Tensor, *weights: Tensor) -> Tensor:
        G, G2, gb, N, N2, nb, *field = (w.contiguous() for w in weights)
        maps = [(field[i], field[i + 1]) for i in range(0, len(field), 2)]
        S, B, _ = given.shape
        r2, u2 = G.shape
        r = r2 // 2
        new = given.new_empty
        starts, ys, outs = new(S, B, r2), new(S, B, r2), new(S, B, r2)  # y before, after the ODE, after the row
        inner = [new(S, B, W.shape[1]) for W, _ in maps[:-1]]
        gates, opened, made, mixed = new(S, B, u2), new(S, B, r2), new(S, B, u2 // 2), new(S, B, r2)
        said = new(S, B, r2)
        y = given.new_zeros(B, r2)
        for i in range(S):
            starts[i] = y
            a = y[:, :r]
            for (W, b), kept in zip(maps[:-1], inner, strict=True):
                a = torch.addmm(b, a, W, out=kept[i]).tanh_()
            W, b = maps[-1]
            moved = ys[i]
            torch.addcmul(y[:, :r], dt[i], torch.addmm(b, a, W), out=moved[:, :r])
            moved[:, r:] = y[:, r:]
            x = given[i]
            g = torch.addmm(x[:, :u2], moved, G, out=gates[i]).tanh_()
            o = torch.addmm(gb, g, G2, out=opened[i]).sigmoid_()
            let = (moved.view(B, 2, r) * o[:, None, r:]).view(B, r2)
            n = torch.addmm(x[:, u2:], let, N, out=made[i]).tanh_()
            c = torch.addmm(nb, n, N2, out=said[i])
            target = torch.cat((c[:, :r], c[:, r:].abs()), 1).view(B, 2, r)
            m = torch.lerp(target, moved.view(B, 2, r), o[:, None, :r], out=mixed[i].view(B, 2, r)).view(B, r2)
            y = outs[i]
            torch.where(read[i], torch.cat((m[:, :r], m[:, r:].abs()), 1), moved, out=y)
        ctx.save_for_backward(dt, read, starts, ys, gates, opened, made, said, mixed, G, G2, N, N2,
                              *(W for W, _ in maps), *inner)
        ctx.maps = len(maps)
        return outs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        dt, read, starts, ys, gates, opened, made, said, mixed, G, G2, N, N2, *rest = ctx.saved_tensors
        Ws, inner = rest[:ctx.maps], rest[ctx.maps:]
        S, B, r2 = ys.shape
        r = r2 // 2
        back = [W.t().contiguous() for W in (G, G2, N, N2, *Ws)]
        Gt, G2t, Nt, N2t, *Wts = back
        d_given = grad.new_empty(S, B, gates.shape[2] + made.shape[2])
        d_open, d_said = grad.new_empty(S, B, r2), grad.new_empty(S, B, r2)
        d_inner = [torch.empty_like(a) for a in inner]
        d_rate = grad.new_empty(S, B, r)
        u2 = gates.shape[2]
        dy = torch.zeros_like(grad[0])
        for i in range(S - 1, -1, -1):
            dy = dy + grad[i]
            y, o, c = ys[i].view(B, 2, r), opened[i], said[i]
            u, let = o[:, None, :r], o[:, None, r:]
            d_new = torch.where(read[i], dy, 0.0)
            dy = dy - d_new  # where nothing is read, y passes on
            d_mixed = torch.cat((d_new[:, :r], d_new[:, r:] * mixed[i, :, r:].sign()), 1).view(B, 2, r)
            target = torch.cat((c[:, :r], c[:, r:].abs()), 1).view(B, 2, r)
            d_target = d_mixed * (1 - u)
            d_y = d_mixed * u
            d_u = (d_mixed * (y - target)).sum(1)
            d_c = torch.cat((d_target[:, 0], d_target[:, 1] * c[:, r:].sign()), 1)
            d_said[i] = d_c
            d_n = (d_c @ N2t) * (1 - made[i].square())
            d_given[i, :, u2:] = d_n
            d_let = (d_n @ Nt).view(B, 2, r)
            d_y = d_y + d_let * let
            d_gate = torch.cat((d_u, (d_let * y).sum(1)), 1) * o * (1 - o)
            d_open[i] = d_gate
            d_g = (d_gate @ G2t) * (1 - gates[i].square())
            d_given[i, :, :u2] = d_g
            dy = dy + torch.addmm(d_y.reshape(B, r2), d_g, Gt)
            d = dt[i] * dy[:, :r]
            d_rate[i] = d
            for n in range(len(inner) - 1, -1, -1):
                d = (d @ Wts[n + 1]) * (1 - inner[n][i].square())
                d_inner[n][i] = d
            dy = torch.cat((torch.addmm(dy[:, :r], d, Wts[0]), dy[:, r:]), 1)

        def product(a: Tensor, b: Tensor) -> Tensor:
            return a.reshape(-1, a.shape[-1]).t() @ b.reshape(-1, b.shape[-1])

        let = (ys.view(S, B, 2, r) * opened[:, :, None, r:]).view(S, B, r2)
        found = [product(ys, d_given[..., :u2]), product(gates, d_open), d_open.sum((0, 1)),
                 product(let, d_given[..., u2:]), product(made, d_said), d_said.sum((0, 1))]
        inputs: Sequence[Tensor] = [starts[..., :r], *inner]
        for a, d in zip(inputs, [*d_inner, d_rate], strict=True):
            found += [product(a, d), d.sum((0, 1))]
        return d_given, None, None, *found
