"""Recurrences over a record's points: what they meet there, how what is unseen decays, and the state they leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.data.points import Points
from acenode.models.dense_layers import GRUCell
from acenode.models.latent.recognition import GRU, gaps

LIMIT = 1000.0  # of a decay's exponent


class Decay(nn.Module):
    """exp(−max(0, w·δ + b)), which begins as no decay at all."""

    def __init__(self, inputs: int, each: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs))
        self.bias = nn.Parameter(torch.zeros(inputs if each else 1))
        self.each = each  # a factor for every input, or one for all

    def initialise(self, generator: torch.Generator) -> None:
        for p in self.parameters():
            p.data.zero_()

    def exponent(self, delta: Tensor) -> Tensor:
        y = self.weight * delta
        return (y if self.each else y.sum(-1, keepdim=True)) + self.bias

    def forward(self, delta: Tensor) -> Tensor:
        return (-self.exponent(delta).clamp(0, LIMIT)).exp()


class FullDecay(Decay):
    """exp(−max(0, W δ + b)) with a full matrix: a factor for each of `outputs` coordinates."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, each=False)
        self.weight, self.bias = nn.Parameter(torch.zeros(outputs, inputs)), nn.Parameter(torch.zeros(outputs))

    def exponent(self, delta: Tensor) -> Tensor:
        return F.linear(delta, self.weight, self.bias)


def since(points: Points, start: float | None = None) -> tuple[Tensor, Tensor]:
    """δ and x_last (B, T, D): the time since a variable was last seen before a point, and what it was.

    Before anything was seen δ is the time since `start`, or since the first point, and x_last is zero.
    """
    t, seen = points.t.unsqueeze(-1), points.m > 0
    index = torch.arange(t.shape[1], device=t.device).view(1, -1, 1).expand_as(points.x)
    last = torch.where(seen, index, -1).cummax(1).values
    last = F.pad(last[:, :-1], (0, 0, 1, 0), value=-1)  # strictly before
    at = last.clamp(min=0)
    delta = t - t.expand_as(points.x).gather(1, at)
    delta = torch.where(last >= 0, delta, t - (t[:, :1] if start is None else start))
    return delta, torch.where(last >= 0, points.x.gather(1, at), 0.0)


@dataclass(frozen=True)
class Readings:
    """What a recurrence meets at points (B, T)."""

    x: Tensor  # (B, T, D)
    m: Tensor  # (B, T, D)
    delta: Tensor  # (B, T, D), δ of `since`
    last: Tensor  # (B, T, D), x_last
    gap: Tensor  # (B, T, 1), Δ: to the next point, or since the one before

    def missing(self) -> Readings:
        """The same points with nothing observed."""
        return replace(self, x=torch.zeros_like(self.x), m=torch.zeros_like(self.m))

    def split(self, at: int) -> tuple[Readings, Readings]:
        parts = [(y[:, :at], y[:, at:]) for y in (self.x, self.m, self.delta, self.last, self.gap)]
        first, rest = zip(*parts, strict=True)
        return Readings(*first), Readings(*rest)


def run(step: Callable[..., Tensor], given: tuple[Tensor, ...], read: Tensor, state: Tensor) -> Tensor:
    """The state after every point (B, T, ·) by `step(state, *given)`; what is not `read` (B, T) changes nothing."""
    states, rows = [], zip(*(g.unbind(1) for g in given), strict=True)
    for here, row in zip(read.unsqueeze(-1).unbind(1), rows, strict=True):
        state = torch.where(here, step(state, *row), state)
        states.append(state)
    return torch.stack(states, 1)


def before(states: Tensor) -> Tensor:
    """The states (B, T, ·) as they stood before each point: zero before the first."""
    return F.pad(states[:, :-1], (0, 0, 1, 0))


def held(states: Tensor, points: Points, t: list[float]) -> Tensor:
    """The states as they stand at common times, (F, B, ·): what the last point left, zero before the first."""
    times = torch.tensor(t, dtype=states.dtype, device=states.device)
    count = ((points.t[:, None] <= times[:, None]) & points.valid[:, None]).sum(-1)  # (B, F)
    begun = F.pad(states, (0, 0, 1, 0))
    return begun[torch.arange(len(states), device=states.device)[:, None], count].transpose(0, 1)


class Recurrence(nn.Module):
    """A GRU over the observed points with, as asked, Δ, decayed imputation of the inputs, and a decay of h.

    With both decays it is GRU-D: x̂ = m⊙x + (1−m)⊙(γ_x⊙x_last + (1−γ_x)⊙x̄) and h ← GRU([x̂, m], γ_h⊙h), where γ_h
    is one factor or, if `full`, one for every coordinate of h.
    """

    def __init__(self, variables: int, size: int, *, gap: bool, impute: bool, decay: bool, full: bool = False) -> None:
        super().__init__()
        self.size, self.width, self.gap = size, size, gap
        inputs = 2 * variables + gap
        self.impute = Decay(variables, each=True) if impute else None
        self.decay = (FullDecay(variables, size) if full else Decay(variables, each=False)) if decay else None
        self.cell = GRUCell(inputs, size) if decay else None
        self.gru = None if decay else GRU(inputs, size)
        self.register_buffer("mean", torch.zeros(variables))  # of what was observed in training

    def inputs(self, r: Readings) -> Tensor:
        """[x̂, m], with Δ where that is asked."""
        x = r.x
        if self.impute is not None:
            share = self.impute(r.delta)
            x = torch.where(r.m > 0, x, share * r.last + (1 - share) * self.mean)
        return torch.cat((x, r.m, *((r.gap,) if self.gap else ())), -1)

    def given(self, r: Readings) -> tuple[Tensor, Tensor]:
        """What `step` takes, for all points: the inputs' product and γ_h."""
        assert self.cell is not None
        assert self.decay is not None
        return self.cell.input(self.inputs(r)), self.decay(r.delta)

    def step(self, state: Tensor, *given: Tensor) -> Tensor:
        assert self.cell is not None
        row, share = given
        return self.cell(row, share * state)

    def forward(self, points: Points) -> Tensor:
        """h after every point, (B, T, size)."""
        x, m = points.x, points.m
        r = Readings(x, m, *(since(points) if self.impute or self.decay else (x, x)), gaps(points).unsqueeze(-1))
        if self.gru is not None:
            return self.gru(self.inputs(r), points.observed)
        return run(self.step, self.given(r), points.observed, x.new_zeros(len(x), self.size))
