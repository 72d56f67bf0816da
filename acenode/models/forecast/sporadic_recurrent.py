"""Recurrent forecasters: GRU-Simple, GRU-D and T-LSTM.

Every point is predicted before it is read: a step with nothing observed advances the state to the point's time. After
the last observation such steps lead from target to target.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn

from acenode.accelerate import dispatch
from acenode.backend import ACCELERATED, Backend
from acenode.data.sporadic import NoiseSource, SporadicBatch
from acenode.models.dense_layers import LinearLayer
from acenode.models.forecast.forecaster import Forecaster, seen_and_targets
from acenode.models.forecast.gaussian import Forecast
from acenode.models.gru import GRUCell, run_recurrence, states_at, states_before
from acenode.models.missing_data import MissingDataGRU, RecurrentInputs


class Cell(Protocol):
    """One step of a recurrence. Its state has `width` coordinates, of which the first `size` are h."""

    size: int
    width: int

    def step_inputs(self, r: RecurrentInputs) -> tuple[Tensor, ...]:
        """Return the inputs of `step` for all points at once."""

    def step(self, state: Tensor, *given: Tensor) -> Tensor: ...

    def run(self, given: tuple[Tensor, ...], mask: Tensor, start: Tensor) -> Tensor:
        """Return the state after every point, (B, T, width); it stays as it was where mask (B, T) is False."""


class GRUSimple(nn.Module):
    """h ← GRU([x̂, m, δ], h), where x̂ has the training mean where x is unobserved (Che et al.)."""

    mean: Tensor

    def __init__(self, variables: int, size: int, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.size, self.width = size, size
        self.cell = GRUCell(3 * variables, size, backend)
        self.register_buffer("mean", torch.zeros(variables))  # of the observed training values

    def step_inputs(self, r: RecurrentInputs) -> tuple[Tensor, ...]:
        x = torch.where(r.m > 0, r.x, self.mean)
        return (self.cell.input(torch.cat((x, r.m, r.delta), -1)),)

    def step(self, state: Tensor, *given: Tensor) -> Tensor:
        return self.cell(given[0], state)

    def run(self, given: tuple[Tensor, ...], mask: Tensor, start: Tensor) -> Tensor:
        fast = self.cell.accelerated(given[0], mask, start)
        return run_recurrence(self.step, given, mask, start) if fast is None else fast


def gru_d(variables: int, size: int, backend: Backend = ACCELERATED) -> MissingDataGRU:
    """Return GRU-D with a decay for every coordinate of h (Che et al.)."""
    return MissingDataGRU(variables, size, gap=False, impute=True, decay=True, full=True, backend=backend)


class TimeLSTM(nn.Module):
    """An LSTM on [x, m] whose short-term memory decays with time (Baytas et al., T-LSTM).

    C_S = tanh(W_d C + b_d), C* = (C − C_S) + g(Δ) C_S, g(Δ) = 1/log(e + Δ);
    C ← f⊙C* + i⊙C̃, h ← o⊙tanh(C), with i, f, o = σ(W [x, m] + U h + b) and C̃ = tanh(W [x, m] + U h + b).
    """

    def __init__(self, variables: int, size: int, backend: Backend = ACCELERATED) -> None:
        super().__init__()
        self.size, self.width, self.backend = size, 2 * size, backend
        bound = size ** -0.5  # as torch initialises an LSTM
        self.input = LinearLayer(2 * variables, 4 * size, bound=bound, backend=backend)
        self.hidden = LinearLayer(size, 4 * size, bound=bound, backend=backend)
        self.short = LinearLayer(size, size, bound=bound, backend=backend)

    def step_inputs(self, r: RecurrentInputs) -> tuple[Tensor, ...]:
        """Return W [x, m] + b for i, f, o and C̃, and g(Δ) − 1."""
        return self.input(torch.cat((r.x, r.m), -1)), 1 / torch.log(math.e + r.gap) - 1

    def step(self, state: Tensor, *given: Tensor) -> Tensor:
        row, lost = given
        h, C = state.chunk(2, -1)
        C = torch.addcmul(C, lost, torch.tanh(self.short(C)))
        y = row + self.hidden(h)
        i, f, o = torch.sigmoid(y[..., :-self.size]).chunk(3, -1)
        C = torch.addcmul(f * C, i, torch.tanh(y[..., -self.size:]))
        return torch.cat((o * torch.tanh(C), C), -1)

    def run(self, given: tuple[Tensor, ...], mask: Tensor, start: Tensor) -> Tensor:
        projected, lost = given
        fast = dispatch.time_lstm(self.backend, projected, lost, mask, start, (self.hidden.weight, self.hidden.bias),
                                  (self.short.weight, self.short.bias))
        return run_recurrence(self.step, given, mask, start) if fast is None else fast


class RecurrentForecaster(Forecaster):
    """Predict each target from h after a step to its time with nothing observed."""

    def __init__(self, recurrence: Cell, variables: int, units: int, dropout: float = 0.0) -> None:
        super().__init__(recurrence.size, variables, units, dropout)
        self.recurrence = recurrence

    def states(self, batch: SporadicBatch, read: RecurrentInputs) -> Tensor:
        """Return the state after every seen point, (B, T, width)."""
        start = read.x.new_zeros(len(read.x), self.recurrence.width)
        return self.recurrence.run(self.recurrence.step_inputs(read), batch.seen.valid, start)

    def forward(self, batch: SporadicBatch, *, detach_attention: bool = False) -> Forecast:
        """Predict the targets. `detach_attention` is unused; all forecasting models share this signature."""
        read, targets = seen_and_targets(batch)
        states, given = self.states(batch, read), self.recurrence.step_inputs(targets)
        if batch.training:
            at = self.recurrence.step(states_before(states), *given)
        else:
            at = self.recurrence.run(given, batch.target.valid, states[:, -1])
        return self.predict(at[..., :self.latent], NoiseSource(batch.seed, at.device))

    def trajectory(self, batch: SporadicBatch, t: list[float]) -> tuple[Tensor, None]:
        """Return h at common times: that of the last point before."""
        states = self.states(batch, seen_and_targets(batch)[0])[..., :self.latent]
        return states_at(states, batch.seen, t), None
