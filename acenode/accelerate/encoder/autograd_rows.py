"""The ODE-RNN row by row with packed weights and autograd, for any drift."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from acenode.accelerate.encoder.packing import EncoderCellWeights, PackedCell

Step = Callable[[Tensor, "Tensor | None", Tensor, bool], "tuple[Tensor, Tensor | None]"]


def integrate(packed: PackedCell, dt: Tensor, read: Tensor, initial_attention: Callable[[Tensor], Tensor | None],
              step: Step, detach_attention: bool) -> Tensor:
    """Return y = [μ, s] after every row, (S, B, 2r); dt and read are (S, B, 1)."""
    B, r2 = packed.projected.shape[1], len(packed.weights.gates_bias)
    r, states = r2 // 2, []
    y = packed.projected.new_zeros(B, r2)
    a = initial_attention(y[:, :r])
    for i, projected in enumerate(packed.projected):
        mu, a = step(y[:, :r], a, dt[i], detach_attention)
        y = torch.cat((mu, y[:, r:]), 1)
        y = torch.where(read[i], _updated(y, projected, packed.weights), y)
        states.append(y)
    return torch.stack(states)


def _updated(y: Tensor, projected: Tensor, w: EncoderCellWeights) -> Tensor:
    """Return y (B, 2r) after the update at a point."""
    u2, r = w.gates.shape[1], y.shape[1] // 2
    gates = torch.sigmoid(torch.addmm(w.gates_bias, torch.tanh(torch.addmm(projected[:, :u2], y, w.gates)),
                                      w.gates_out))
    update, reset = gates.view(-1, 2, 1, r).expand(-1, 2, 2, r).unbind(1)  # the same for μ and s
    own = y.view(-1, 2, r)
    hidden = torch.tanh(torch.addmm(projected[:, u2:], (own * reset).flatten(1), w.new))
    mean, deviation = torch.addmm(w.new_bias, hidden, w.new_out).view(-1, 2, r).unbind(1)
    mixed = torch.lerp(torch.stack((mean, deviation.abs()), 1), own, update)
    return torch.stack((mixed[:, 0], mixed[:, 1].abs()), 1).flatten(1)
