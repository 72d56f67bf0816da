"""Series in double precision stay in double precision, from their padding to a model's predictions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from acenode.data.points import TimeSeries, pad, recurrent_schedule
from acenode.data.schedule import SporadicBatch, make_schedule
from acenode.models.forecast.gru_ode_bayes import GRUODEBayes
from acenode.models.layers import initialise

START = 1.7e4  # in single precision, times after it are rounded to 0.002
T = START + np.array([0.0, 0.1, 0.25])


def series(kind: type) -> list[TimeSeries]:
    x = np.array([[0.1], [0.2], [1 / 3]], kind)
    return [TimeSeries(T.astype(kind), x, np.ones_like(x)), TimeSeries(T[:2].astype(kind), x[:2], np.ones_like(x[:2]))]


def test_padding_keeps_the_precision() -> None:
    padded = pad(series(np.float64))
    assert padded.t.dtype == padded.x.dtype == padded.m.dtype == torch.float64
    assert padded.t[0].tolist() == T.tolist()
    assert float(padded.x[0, 2, 0]) == 1 / 3
    single = pad(series(np.float32))
    assert single.t.dtype == single.x.dtype == single.m.dtype == torch.float32


@pytest.mark.parametrize("union", [False, True])
def test_steps_of_an_encoder_keep_the_precision(union: bool) -> None:
    made = series(np.float64)
    dt = recurrent_schedule(made, pad(made), backwards=False, union=union).dt
    assert dt.dtype == torch.float64
    assert float(dt[:, 0].sum()) == pytest.approx(0.25 + 0.01, abs=1e-10)
    made = series(np.float32)
    assert recurrent_schedule(made, pad(made), backwards=False, union=union).dt.dtype == torch.float32


@pytest.mark.parametrize("step", [0.05, 0.03])
def test_steps_between_observations_keep_the_precision(step: float) -> None:
    seen = pad([TimeSeries(s.t - START, s.x, s.m) for s in series(np.float64)])
    schedule = make_schedule(seen, None, step)
    assert schedule.dt.dtype == torch.float64
    assert float(schedule.dt.expand(-1, 2, -1)[:, 0].sum()) == pytest.approx(0.25, abs=1e-12)


def test_a_forecasting_model_in_double_precision() -> None:
    model = GRUODEBayes(variables=1, size=4, units=5, features=3, step=0.05)
    initialise(model, seed=0)
    seen = pad([TimeSeries(s.t - START, s.x, s.m) for s in series(np.float64)])
    forecast = model.double()(SporadicBatch(seen, seen, horizon=1.0))
    assert forecast.mean.dtype == torch.float64
    single = pad([TimeSeries((s.t - START).astype(np.float32), s.x.astype(np.float32), s.m.astype(np.float32))
                  for s in series(np.float64)])
    rounded = model.float()(SporadicBatch(single, single, horizon=1.0))
    assert torch.allclose(forecast.mean.float(), rounded.mean, atol=1e-5)
