"""The ODE-RNN of `acenode.models.latent`, whose drift is an MLP of μ, as a cell of `scan`.

With y = [μ, s] and the inputs' products x and x' with the first layers of the gates, computed for all points at once:

    μ ← μ + dt f(μ)                                     f: linear layers with tanh between
    u, g = σ(tanh(x + y G) G' + b)
    [μ̃, s̃] = tanh(x' + (y ⊙ [g, g]) N) N' + b'
    y ← [(1−u) ⊙ μ̃ + u ⊙ μ, |(1−u) ⊙ |s̃| + u ⊙ s|]      where the row reads a point
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from acenode.accelerate.recurrence.scan import RecurrentCell, Scan, ScanInputs, ScanLayout, product, total
from acenode.backend import Backend
from acenode.data.passes import EncoderRows, GateLayers, Layers


def integrate(backend: Backend, rows: EncoderRows, cell: GateLayers, f: Layers) -> Tensor:
    """Return y after every row, (S, B, 2r). `f` is the drift."""
    projected, weights = pack(rows, cell)
    of_f = [p for weight, bias in f for p in (weight.t(), bias)]
    start = projected.new_zeros(projected.shape[1], len(weights[0]))
    states: Tensor = Scan.apply(backend, ODERNNCell(), rows.read, start, projected, rows.dt, *weights, *of_f)
    return states


def pack(rows: EncoderRows, cell: GateLayers) -> tuple[Tensor, list[Tensor]]:
    """Return the projected inputs, (S, B, 3u), and G, G', b, N, N' and b' as (inputs, outputs)."""
    update, reset, state = cell
    r2, u = len(state[1][0]), len(update[0][0])
    first = torch.cat([net[0][0] for net in cell])  # (3u, 2r + inputs)
    projected = F.linear(rows.x, first[:, r2:], torch.cat([net[0][1] for net in cell]))  # (B, T, 3u)
    own = first[:, :r2].T
    return projected[torch.arange(len(rows.x), device=rows.x.device), rows.point], [
        own[:, :2 * u], torch.block_diag(update[1][0], reset[1][0]).T, torch.cat((update[1][1], reset[1][1])),
        own[:, 2 * u:], state[1][0].T, state[1][1]]


class ODERNNCell(RecurrentCell):
    """Rows: the projected inputs (S, B, 3u) and dt (S, B, 1), which gets no gradient.

    Weights: those of `pack`, then W and b of each layer of f, all as (inputs, outputs). f's hidden layers have
    one width.
    """

    name = "ode_rnn"
    warps: ClassVar[dict[int, int]] = {16: 1, 32: 2, 64: 4, 128: 8}

    def layout(self, x: ScanInputs) -> ScanLayout:
        """Saved: y after the Euler step, the gates' hidden layers, [u, g], the new state's hidden layer, [μ̃, s̃], the
        new y before its absolute value, and f's hidden layers. Gradients: of the inputs, of the sums that give [u, g]
        and [μ̃, s̃], of f's output and of its hidden layers' sums.
        """
        (r2, u2), hidden = x.weights[0].shape, sum(len(b) for b in x.weights[7:-2:2])
        return ScanLayout([r2, u2, r2, u2 // 2, r2, r2, hidden], [u2 // 2 * 3, r2, r2, r2 // 2, hidden],
                      {"R": r2 // 2, "U": u2 // 2, "H": x.weights[6].shape[1], "L": len(x.weights[6::2])})

    def packed(self, weights: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return all in one row; every second matrix of a chain of products transposed, the first one too."""
        transposed = {0, 3, *range(6, len(weights), 4)}
        return [torch.cat([w.t().flatten() if n in transposed else w.flatten() for n, w in enumerate(weights)])]

    def forward(self, x: ScanInputs, saved: Sequence[Tensor], states: Tensor) -> None:
        (projected, dt), (G, G2, gb, N, N2, nb, *f), y = x.rows, [w.contiguous() for w in x.weights], x.start
        moves, gates_hiddens, gate, new_hiddens, news, mixes, f_hidden = saved
        (B, r2), u2, hidden_layers = y.shape, G.shape[1], _by_layer(f_hidden, f)
        r = r2 // 2
        for i in range(len(projected)):
            a = y[:, :r]
            for W, b, out in zip(f[:-2:2], f[1:-2:2], hidden_layers, strict=True):
                a = torch.addmm(b, a, W, out=out[i]).tanh_()
            moved = moves[i]
            torch.addcmul(y[:, :r], dt[i], torch.addmm(f[-1], a, f[-2]), out=moved[:, :r])
            moved[:, r:] = y[:, r:]
            row = projected[i]
            hidden = torch.addmm(row[:, :u2], moved, G, out=gates_hiddens[i]).tanh_()
            gates = torch.addmm(gb, hidden, G2, out=gate[i]).sigmoid_()  # u, g
            reset_y = (moved.view(B, 2, r) * gates[:, None, r:]).view(B, r2)
            hidden = torch.addmm(row[:, u2:], reset_y, N, out=new_hiddens[i]).tanh_()
            new = torch.addmm(nb, hidden, N2, out=news[i])
            target = torch.cat((new[:, :r], new[:, r:].abs()), 1).view(B, 2, r)
            mixed = torch.lerp(target, moved.view(B, 2, r), gates[:, None, :r], out=mixes[i].view(B, 2, r)).view(B, r2)
            y = states[i]
            torch.where(x.mask[i], torch.cat((mixed[:, :r], mixed[:, r:].abs()), 1), moved, out=y)

    def factors(self, x: ScanInputs, before: Tensor, states: Tensor, saved: Sequence[Tensor]) -> list[Tensor]:
        return [x.mask, x.rows[1], *saved]

    def backward(self, grad: Tensor, x: ScanInputs, factors: Sequence[Tensor], found: Sequence[Tensor]) -> Tensor:
        read, dt, moved, gates_hidden, gate, new_hidden, news, mixed, f_hidden = factors
        G, G2, _, N, N2, _, *f = x.weights
        Gt, G2t, Nt, N2t, *Wts = (W.t().contiguous() for W in (G, G2, N, N2, *f[::2]))
        d_projected, d_gate, d_news, d_rates, d_f_hidden = found
        (B, r2), u2 = x.start.shape, G.shape[1]
        r, layers = r2 // 2, list(zip(_by_layer(f_hidden, f), _by_layer(d_f_hidden, f), Wts[1:], strict=True))
        dy = torch.zeros_like(grad[0])
        for i in range(len(grad) - 1, -1, -1):
            dy = dy + grad[i]
            y, gates, new = moved[i].view(B, 2, r), gate[i], news[i]
            u, g = gates[:, None, :r], gates[:, None, r:]
            d_updated = torch.where(read[i], dy, 0.0)
            dy = dy - d_updated  # where no point is read, y stays as it is
            d_mixed = torch.cat((d_updated[:, :r], d_updated[:, r:] * mixed[i, :, r:].sign()), 1).view(B, 2, r)
            target = torch.cat((new[:, :r], new[:, r:].abs()), 1).view(B, 2, r)
            d_target = d_mixed * (1 - u)
            d_y = d_mixed * u
            d_u = (d_mixed * (y - target)).sum(1)
            d_new = torch.cat((d_target[:, 0], d_target[:, 1] * new[:, r:].sign()), 1)
            d_news[i] = d_new
            d_hidden = (d_new @ N2t) * (1 - new_hidden[i].square())
            d_projected[i, :, u2:] = d_hidden
            d_reset = (d_hidden @ Nt).view(B, 2, r)
            d_y = d_y + d_reset * g
            d_gates = torch.cat((d_u, (d_reset * y).sum(1)), 1) * gates * (1 - gates)
            d_gate[i] = d_gates
            d_hidden = (d_gates @ G2t) * (1 - gates_hidden[i].square())
            d_projected[i, :, :u2] = d_hidden
            dy = dy + torch.addmm(d_y.reshape(B, r2), d_hidden, Gt)
            d_rate = dt[i] * dy[:, :r]
            d_rates[i] = d_rate
            for hidden, d_hidden, Wt in reversed(layers):
                d_rate = (d_rate @ Wt) * (1 - hidden[i].square())
                d_hidden[i] = d_rate
            dy = torch.cat((torch.addmm(dy[:, :r], d_rate, Wts[0]), dy[:, r:]), 1)
        return dy

    def gradients(self, x: ScanInputs, before: Tensor, saved: Sequence[Tensor],
                  found: Sequence[Tensor]) -> tuple[list[Tensor | None], list[Tensor]]:
        moved, gates_hidden, gates, new_hidden, _, _, f_hidden = saved
        d_projected, d_gates, d_new, d_rate, d_f_hidden = found
        (S, B, r2), u2, f = moved.shape, gates_hidden.shape[2], x.weights[6:]
        r = r2 // 2
        reset_y = (moved.view(S, B, 2, r) * gates[:, :, None, r:]).view(S, B, r2)
        totals = [product(moved, d_projected[..., :u2]), product(gates_hidden, d_gates), total(d_gates),
                  product(reset_y, d_projected[..., u2:]), product(new_hidden, d_new), total(d_new)]
        for a, d in zip([before[..., :r], *_by_layer(f_hidden, f)], [*_by_layer(d_f_hidden, f), d_rate], strict=True):
            totals += [product(a, d), total(d)]
        return [d_projected, None], totals


def _by_layer(hidden: Tensor, f: Sequence[Tensor]) -> Sequence[Tensor]:
    """Split the values of f's hidden layers."""
    return hidden.split([len(b) for b in f[1:-2:2]], -1)
