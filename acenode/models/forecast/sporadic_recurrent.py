"""Recurrent forecasters: the state steps from point to point, and what comes next is read off it.

A point is said before it is read: a step with nothing observed takes the state to the point's time. Past the last
point such steps follow one another from target to target.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn

from acenode.data.sporadic import NoiseSource, SporadicBatch
from acenode.models.dense_layers import Map
from acenode.models.forecast.forecaster import Forecaster, met
from acenode.models.forecast.gaussian import Forecast
from acenode.models.gru import GRUCell
from acenode.models.latent.recurrence import Readings, Recurrence, before, held, run


class Cell(Protocol):
    """One step of a recurrence. Of its state, `width` wide, the first `size` coordinates are h."""

    size: int
    width: int

    def given(self, r: Readings) -> tuple[Tensor, ...]:
        """What `step` takes beside the state, for all points at once."""

    def step(self, state: Tensor, *given: Tensor) -> Tensor: ...


class GRUSimple(nn.Module):
    """h ← GRU([x̂, m, δ], h), where x̂ is the training mean of what is missing (Che et al.)."""

    mean: Tensor

    def __init__(self, variables: int, size: int) -> None:
        super().__init__()
        self.size, self.width = size, size
        self.cell = GRUCell(3 * variables, size)
        self.register_buffer("mean", torch.zeros(variables))  # of what was observed in training

    def given(self, r: Readings) -> tuple[Tensor, ...]:
        x = torch.where(r.m > 0, r.x, self.mean)
        return (self.cell.input(torch.cat((x, r.m, r.delta), -1)),)

    def step(self, state: Tensor, *given: Tensor) -> Tensor:
        return self.cell(given[0], state)


def gru_d(variables: int, size: int) -> Recurrence:
    """GRU-D, with a decay of every coordinate of h (Che et al.)."""
    return Recurrence(variables, size, gap=False, impute=True, decay=True, full=True)


class TimeLSTM(nn.Module):
    """An LSTM on [x, m] that forgets the short-term part of its memory with time (Baytas et al., T-LSTM).

    C_S = tanh(W_d C + b_d), C* = (C − C_S) + g(Δ) C_S, g(Δ) = 1/log(e + Δ);
    C ← f⊙C* + i⊙C̃, h ← o⊙tanh(C), with i, f, o = σ(W [x, m] + U h + b) and C̃ = tanh(W [x, m] + U h + b).
    """

    def __init__(self, variables: int, size: int) -> None:
        super().__init__()
        self.size, self.width = size, 2 * size
        self.input, self.hidden, self.short = Map(2 * variables, 4 * size), Map(size, 4 * size), Map(size, size)
        for part in (self.input, self.hidden, self.short):
            part.bound = size ** -0.5  # as torch begins an LSTM

    def given(self, r: Readings) -> tuple[Tensor, ...]:
        """The inputs' product, in the order i, f, o, C̃, and g(Δ) − 1."""
        return self.input(torch.cat((r.x, r.m), -1)), 1 / torch.log(math.e + r.gap) - 1

    def step(self, state: Tensor, *given: Tensor) -> Tensor:
        row, lost = given
        h, C = state.chunk(2, -1)
        C = torch.addcmul(C, lost, torch.tanh(self.short(C)))
        y = row + self.hidden(h)
        i, f, o = torch.sigmoid(y[..., :-self.size]).chunk(3, -1)
        C = torch.addcmul(f * C, i, torch.tanh(y[..., -self.size:]))
        return torch.cat((o * torch.tanh(C), C), -1)


class RecurrentForecaster(Forecaster):
    """p(x) at a target is read off h after a step to its time on which nothing is observed."""

    def __init__(self, recurrence: Cell, variables: int, units: int, dropout: float = 0.0) -> None:
        super().__init__(recurrence.size, variables, units, dropout)
        self.recurrence = recurrence

    def states(self, batch: SporadicBatch, read: Readings) -> Tensor:
        """After every seen point, (B, T, width)."""
        start = read.x.new_zeros(len(read.x), self.recurrence.width)
        return run(self.recurrence.step, self.recurrence.given(read), batch.seen.valid, start)

    def forward(self, batch: SporadicBatch, *, detach_attention: bool = False) -> Forecast:
        """`detach_attention` is there so that all models are called alike; there is none here."""
        read, asked = met(batch)
        states, given = self.states(batch, read), self.recurrence.given(asked)
        if batch.training:
            at = self.recurrence.step(before(states), *given)
        else:
            at = run(self.recurrence.step, given, batch.target.valid, states[:, -1])
        return self.say(at[..., :self.latent], NoiseSource(batch.seed, at.device))

    def trajectory(self, batch: SporadicBatch, t: list[float]) -> tuple[Tensor, None]:
        """h as it stands at common times."""
        states = self.states(batch, met(batch)[0])[..., :self.latent]
        return held(states, batch.seen, t), None
