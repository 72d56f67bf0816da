"""Small sporadic series, and a small model of every forecasting baseline with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from irregular_batches import filled
from torch import Tensor

from acenode import Solver
from acenode.data.points import Points, TimeSeries, pad
from acenode.data.schedule import SporadicBatch
from acenode.models.forecast.baselines import ODEVAE, GRUSimple, RecurrentForecaster, SequentialVAE, TimeLSTM, gru_d
from acenode.models.forecast.gaussian import Forecast, gaussian_nll

D, H, UNITS = 3, 4, 5
HORIZON, CUT = 20.0, 12.0
TIGHT = Solver("dopri5", rtol=1e-7, atol=1e-8)
LENGTHS = (6, 11, 4)

MODELS: dict[str, Callable[[], Any]] = {
    "gru-simple": lambda: RecurrentForecaster(GRUSimple(D, H), D, UNITS),
    "gru-d": lambda: RecurrentForecaster(gru_d(D, H), D, UNITS),
    "t-lstm": lambda: RecurrentForecaster(TimeLSTM(D, H), D, UNITS),
    "seq-vae": lambda: SequentialVAE(D, H, 6, 5, UNITS),
    "node-vae": lambda: ODEVAE(D, H, 6, 5, UNITS, mask=False, solver=TIGHT),
    "node-vae-mask": lambda: ODEVAE(D, H, 6, 5, UNITS, mask=True, solver=TIGHT),
}
RECURRENT = ["gru-simple", "gru-d", "t-lstm"]
VARIATIONAL = ["seq-vae", "node-vae", "node-vae-mask"]


def build(kind: str) -> Any:
    model = filled(MODELS[kind](), seed=1).double().eval()
    recurrence = getattr(model, "recurrence", None)
    if hasattr(recurrence, "mean"):
        recurrence.mean.copy_(torch.tensor([0.3, -0.2, 0.1]))  # type: ignore[union-attr]
    return model


def series(n: int, seed: int) -> TimeSeries:
    """Draw n points after time 0, the last two of them after the cut."""
    rng = np.random.default_rng([seed, n])
    early = np.sort(rng.choice(np.arange(1, 120), n - 2, replace=False)) / 10
    t = np.concatenate([early, CUT + np.sort(rng.choice(np.arange(1, 80), 2, replace=False)) / 10])
    m = rng.random((n, D)) < 0.5
    m[np.arange(n), rng.integers(0, D, n)] = True
    return TimeSeries(t, (rng.normal(size=m.shape) * m).astype(np.float32), m)


def all_series() -> list[TimeSeries]:
    return [series(n, i) for i, n in enumerate(LENGTHS)]


def points(of: list[TimeSeries]) -> Points:
    p = pad(of)
    return Points(p.t.double(), p.x.double(), p.m.double(), p.valid)


def training(of: list[TimeSeries], seed: int = 0) -> SporadicBatch:
    seen = points(of)
    return SporadicBatch(seen, seen, HORIZON, seed)


def forecasting(of: list[TimeSeries]) -> SporadicBatch:
    return SporadicBatch(points([r.part(r.t <= CUT) for r in of]), points([r.part(r.t > CUT) for r in of]), HORIZON)


MODES = pytest.mark.parametrize("mode", [training, forecasting])


def objective(forecast: Forecast, target: Points) -> Tensor:
    total = (target.m * gaussian_nll(target.x, forecast.mean, forecast.logvar)).sum()
    return total if forecast.extra is None else total + forecast.extra


def assert_predicts(forecast: Forecast, i: int, k: int, exact: tuple[Tensor, Tensor]) -> None:
    assert torch.allclose(forecast.mean[i, k], exact[0], atol=1e-9)
    assert torch.allclose(forecast.logvar[i, k], exact[1], atol=1e-9)
