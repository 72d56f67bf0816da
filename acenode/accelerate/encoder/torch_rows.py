"""Forward and backward pass of `scan` in torch operations, row by row. The backward pass is derived by hand."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from acenode.accelerate.encoder.buffers import EncoderActivations, EncoderGradients


def forward(projected: Tensor, dt: Tensor, read: Tensor, weights: Sequence[Tensor], saved: EncoderActivations,
            states: Tensor) -> None:
    """Fill `saved` and the states y (S, B, 2r)."""
    G, G2, gb, N, N2, nb, *field = weights
    layers = [(field[i], field[i + 1]) for i in range(0, len(field), 2)]
    B, (r2, u2) = projected.shape[1], G.shape
    r = r2 // 2
    y = projected.new_zeros(B, r2)
    for i in range(len(projected)):
        saved.y_start[i] = y
        a = y[:, :r]
        for (W, b), out in zip(layers[:-1], saved.f_hidden, strict=True):
            a = torch.addmm(b, a, W, out=out[i]).tanh_()
        W, b = layers[-1]
        moved = saved.y_moved[i]
        torch.addcmul(y[:, :r], dt[i], torch.addmm(b, a, W), out=moved[:, :r])
        moved[:, r:] = y[:, r:]
        x = projected[i]
        hidden = torch.addmm(x[:, :u2], moved, G, out=saved.gates_hidden[i]).tanh_()
        gates = torch.addmm(gb, hidden, G2, out=saved.gates[i]).sigmoid_()  # u, g
        reset_y = (moved.view(B, 2, r) * gates[:, None, r:]).view(B, r2)
        hidden = torch.addmm(x[:, u2:], reset_y, N, out=saved.new_hidden[i]).tanh_()
        new = torch.addmm(nb, hidden, N2, out=saved.new[i])
        target = torch.cat((new[:, :r], new[:, r:].abs()), 1).view(B, 2, r)
        mixed = torch.lerp(target, moved.view(B, 2, r), gates[:, None, :r],
                           out=saved.mixed[i].view(B, 2, r)).view(B, r2)
        y = states[i]
        torch.where(read[i], torch.cat((mixed[:, :r], mixed[:, r:].abs()), 1), moved, out=y)


def backward(grad: Tensor, dt: Tensor, read: Tensor, weights: Sequence[Tensor], saved: EncoderActivations,
             d: EncoderGradients) -> None:
    """Fill `d`, given the gradient of the states."""
    G, G2, _, N, N2, _, *field = weights
    Gt, G2t, Nt, N2t, *Wts = (W.t().contiguous() for W in (G, G2, N, N2, *field[::2]))
    S, B, r2 = saved.y_moved.shape
    r, u2 = r2 // 2, saved.gates_hidden.shape[2]
    dy = torch.zeros_like(grad[0])
    for i in range(S - 1, -1, -1):
        dy = dy + grad[i]
        y, gates, new = saved.y_moved[i].view(B, 2, r), saved.gates[i], saved.new[i]
        u, g = gates[:, None, :r], gates[:, None, r:]
        d_updated = torch.where(read[i], dy, 0.0)
        dy = dy - d_updated  # where no point is read, y stays as it is
        d_mixed = torch.cat((d_updated[:, :r], d_updated[:, r:] * saved.mixed[i, :, r:].sign()), 1).view(B, 2, r)
        target = torch.cat((new[:, :r], new[:, r:].abs()), 1).view(B, 2, r)
        d_target = d_mixed * (1 - u)
        d_y = d_mixed * u
        d_u = (d_mixed * (y - target)).sum(1)
        d_new = torch.cat((d_target[:, 0], d_target[:, 1] * new[:, r:].sign()), 1)
        d.new[i] = d_new
        d_hidden = (d_new @ N2t) * (1 - saved.new_hidden[i].square())
        d.projected[i, :, u2:] = d_hidden
        d_reset = (d_hidden @ Nt).view(B, 2, r)
        d_y = d_y + d_reset * g
        d_gates = torch.cat((d_u, (d_reset * y).sum(1)), 1) * gates * (1 - gates)
        d.gates[i] = d_gates
        d_hidden = (d_gates @ G2t) * (1 - saved.gates_hidden[i].square())
        d.projected[i, :, :u2] = d_hidden
        dy = dy + torch.addmm(d_y.reshape(B, r2), d_hidden, Gt)
        d_rate = dt[i] * dy[:, :r]
        d.rate[i] = d_rate
        for n in range(len(saved.f_hidden) - 1, -1, -1):
            d_rate = (d_rate @ Wts[n + 1]) * (1 - saved.f_hidden[n][i].square())
            d.f_hidden[n][i] = d_rate
        dy = torch.cat((torch.addmm(dy[:, :r], d_rate, Wts[0]), dy[:, r:]), 1)
