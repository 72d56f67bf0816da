"""Gated recurrent units over the points of irregular series, and helpers for the states that they leave."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.accelerate import dispatch
from acenode.backend import ACCELERATED, Backend
from acenode.data.points import Points
from acenode.models.dense_layers import LinearLayer


class GRUCell(nn.Module):
    """The gated recurrent unit of Cho et al. (2014).

        r, z = σ(W x + U h)        n = tanh(W' x + r ⊙ U' h)        h ← (1−z) ⊙ n + z ⊙ h

    The products with x do not depend on h: compute them for all points at once by `cell.input(x)`.
    """

    def __init__(self, inputs: int, hidden: int, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        bound = hidden ** -0.5  # as torch initialises a GRU
        self.input = LinearLayer(inputs, 3 * hidden, bound=bound, backend=backend)
        self.hidden = LinearLayer(hidden, 3 * hidden, bound=bound, backend=backend)
        self.size, self.backend = hidden, backend

    def forward(self, projected: Tensor, h: Tensor) -> Tensor:
        """Update h (..., size) with `projected` = cell.input(x), (..., 3 size)."""
        own = self.hidden(h)
        r, z = torch.sigmoid(projected[..., :-self.size] + own[..., :-self.size]).chunk(2, -1)
        n = torch.tanh(projected[..., -self.size:] + r * own[..., -self.size:])
        return torch.lerp(n, h, z)

    def accelerated(self, projected: Tensor, mask: Tensor, start: Tensor, decay: Tensor | None = None) -> Tensor | None:
        """Return h after every point, (B, T, size), if there is a faster version of `run_recurrence`; otherwise None.

        With `decay` (B, T, 1 or size), h is multiplied by it before each update.
        """
        return dispatch.gru(self.backend, projected, decay, mask, start, self.hidden.weight, self.hidden.bias)


class MaskedGRU(nn.Module):
    """A GRU that reads only the observed points; at the others h stays as it was."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.layer = _TorchGRU(inputs, size)

    def forward(self, x: Tensor, observed: Tensor, h0: Tensor | None = None) -> Tensor:
        """Return h after every point, (B, T, size), from inputs x (B, T, inputs) and the mask `observed` (B, T)."""
        order = (~observed).to(torch.uint8).argsort(dim=1, stable=True)  # observed points first, in their order
        packed = x.gather(1, order.unsqueeze(-1).expand_as(x))
        start = x.new_zeros(len(x), self.size) if h0 is None else h0
        after, _ = self.layer(packed, start.unsqueeze(0).contiguous())
        states = torch.cat((start.unsqueeze(1), after), 1)  # (B, 1 + T, size)
        count = observed.cumsum(1)  # points read so far
        return states.gather(1, count.unsqueeze(-1).expand(-1, -1, self.size))


class _TorchGRU(nn.GRU):
    def __init__(self, inputs: int, size: int) -> None:
        super().__init__(inputs, size, batch_first=True)

    def initialise(self, generator: torch.Generator) -> None:
        bound = self.hidden_size ** -0.5
        for p in self.parameters():
            p.data.uniform_(-bound, bound, generator=generator)


def run_recurrence(step: Callable[..., Tensor], inputs: tuple[Tensor, ...], mask: Tensor, state: Tensor) -> Tensor:
    """Return the state after every point, (B, T, ·), by state ← step(state, *inputs at the point) where mask is True.

    Args:
        step: Takes a state (B, ·) and the inputs (B, ·) of one point.
        inputs: Tensors (B, T, ·).
        mask: (B, T). At a point where it is False, the state stays as it was.
        state: The initial state, (B, ·).
    """
    states, rows = [], zip(*(x.unbind(1) for x in inputs), strict=True)
    for updated, row in zip(mask.unsqueeze(-1).unbind(1), rows, strict=True):
        state = torch.where(updated, step(state, *row), state)
        states.append(state)
    return torch.stack(states, 1)


def states_before(states: Tensor) -> Tensor:
    """Return the states (B, T, ·) before each point, given those after it: zero before the first."""
    return F.pad(states[:, :-1], (0, 0, 1, 0))


def states_at(states: Tensor, points: Points, t: list[float]) -> Tensor:
    """Return the states at common times, (F, B, ·): those after the last point so far, zero before the first."""
    times = torch.tensor(t, dtype=states.dtype, device=states.device)
    count = ((points.t[:, None] <= times[:, None]) & points.valid[:, None]).sum(-1)  # (B, F)
    with_start = F.pad(states, (0, 0, 1, 0))
    return with_start[torch.arange(len(states), device=states.device)[:, None], count].transpose(0, 1)
