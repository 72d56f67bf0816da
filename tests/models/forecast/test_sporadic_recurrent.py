"""The recurrent baselines against their equations, one point of one series at a time."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from small_baselines import (
    LENGTHS,
    RECURRENT,
    D,
    H,
    all_series,
    assert_predicts,
    build,
    forecasting,
    training,
)
from torch import Tensor

from acenode.models.forecast.baselines import RecurrentForecaster
from acenode.models.recurrent import MatrixDecay


def gru(cell: Any, x: Tensor, h: Tensor) -> Tensor:
    W, U, b, c = cell.input.weight, cell.hidden.weight, cell.input.bias, cell.hidden.bias
    gi, gh = W @ x + b, U @ h + c
    r, z = torch.sigmoid(gi[:H] + gh[:H]), torch.sigmoid(gi[H:2 * H] + gh[H:2 * H])
    return (1 - z) * torch.tanh(gi[2 * H:] + r * gh[2 * H:]) + z * h


def step_directly(kind: str, cell: Any, state: Tensor, x: Tensor, m: Tensor, delta: Tensor, last: Tensor,
                  gap: Tensor) -> Tensor:
    if kind == "gru-simple":
        return gru(cell.cell, torch.cat((m * x + (1 - m) * cell.mean, m, delta)), state)
    if kind == "gru-d":
        share = torch.exp(-torch.clamp(cell.impute.weight * delta + cell.impute.bias, min=0))
        decay = torch.exp(-torch.clamp(cell.decay.weight @ delta + cell.decay.bias, min=0))
        x = m * x + (1 - m) * (share * last + (1 - share) * cell.mean)
        return gru(cell.cell, torch.cat((x, m)), decay * state)
    h, C = state[:H], state[H:]
    short = torch.tanh(cell.short.weight @ C + cell.short.bias)
    C = (C - short) + short / torch.log(math.e + gap)
    y = cell.input.weight @ torch.cat((x, m)) + cell.input.bias + cell.hidden.weight @ h + cell.hidden.bias
    i, f, o, new = y[:H].sigmoid(), y[H:2 * H].sigmoid(), y[2 * H:3 * H].sigmoid(), y[3 * H:].tanh()
    C = f * C + i * new
    return torch.cat((o * torch.tanh(C), C))


NOTHING = torch.zeros(D, dtype=torch.float64)


class ByHand:
    """A recurrent model on one series, with δ by recursion: δ ← Δ + (1 − m) δ of the previous point."""

    def __init__(self, kind: str, model: RecurrentForecaster) -> None:
        self.kind, self.model, self.t = kind, model, torch.zeros(())
        self.state = torch.zeros(model.recurrence.width, dtype=torch.float64)
        self.delta = self.last = self.m = NOTHING

    def after(self, t: Tensor, x: Tensor, m: Tensor) -> Tensor:
        delta = (t - self.t) + (1 - self.m) * self.delta
        return step_directly(self.kind, self.model.recurrence, self.state, x, m, delta, self.last, t - self.t)

    def predict(self, t: Tensor) -> tuple[Tensor, Tensor]:
        return self.model.head(self.after(t, NOTHING, NOTHING)[:H])

    def read(self, t: Tensor, x: Tensor, m: Tensor) -> None:
        self.state = self.after(t, x, m)
        self.delta, self.t = (t - self.t) + (1 - self.m) * self.delta, t
        self.m, self.last = m, torch.where(m > 0, x, self.last)


@pytest.mark.parametrize("kind", RECURRENT)
def test_a_recurrent_model_predicts_each_point_and_then_reads_it(kind: str) -> None:
    model, batch = build(kind), training(all_series())
    forecast, seen = model(batch), batch.seen
    assert forecast.extra is None
    for i, n in enumerate(LENGTHS):
        hand = ByHand(kind, model)
        for k in range(n):
            assert_predicts(forecast, i, k, hand.predict(seen.t[i, k]))
            hand.read(seen.t[i, k], seen.x[i, k], seen.m[i, k])


@pytest.mark.parametrize("kind", RECURRENT)
def test_a_recurrent_forecast_steps_from_target_to_target(kind: str) -> None:
    model, batch = build(kind), forecasting(all_series())
    forecast, seen = model(batch), batch.seen
    for i, n in enumerate(LENGTHS):
        hand = ByHand(kind, model)
        for k in range(n - 2):
            hand.read(seen.t[i, k], seen.x[i, k], seen.m[i, k])
        for k in range(2):
            assert_predicts(forecast, i, k, hand.predict(batch.target.t[i, k]))
            hand.read(batch.target.t[i, k], NOTHING, NOTHING)


def test_a_full_decay_is_initialised_as_none_and_never_grows() -> None:
    decay = MatrixDecay(2, 3)
    delta = torch.tensor([[0.5, 2.0]])
    assert decay(delta).tolist() == [[1.0, 1.0, 1.0]]
    decay.weight.data = torch.tensor([[1.0, 0.0], [0.0, -1.0], [2.0, 1.0]])
    assert decay(delta)[0].tolist() == pytest.approx([math.exp(-0.5), 1.0, math.exp(-3.0)])


@pytest.mark.parametrize("kind", RECURRENT)
def test_a_prediction_does_not_depend_on_its_own_or_later_values(kind: str) -> None:
    model, batch = build(kind), training(all_series())
    forecast, k = model(batch), 2
    for name in ("x", "m"):
        changed = getattr(batch.seen, name).clone()
        changed[:, k:] = 1.7 * batch.seen.valid[:, k:, None] if name == "x" else 1 - changed[:, k:]
        seen = replace(batch.seen, **{name: changed})
        other = model(replace(batch, seen=seen, target=seen))
        assert torch.equal(other.mean[:, :k + 1], forecast.mean[:, :k + 1])
        assert torch.equal(other.logvar[:, :k + 1], forecast.logvar[:, :k + 1])
        assert ((other.mean[:, k + 1] - forecast.mean[:, k + 1]).abs().amax(-1) > 1e-6).all()
