"""Small batches of sporadic series and small GRU-ODE-Bayes models, in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
from irregular_batches import filled
from torch import Tensor

from acenode.attention import Correlation, Dense
from acenode.data.points import Points, TimeSeries, pad
from acenode.data.schedule import SporadicBatch
from acenode.models.forecast.gaussian import gaussian_nll
from acenode.models.forecast.gru_ode import GRUAttention, MatrixGRU, RowGRU
from acenode.models.forecast.gru_ode_bayes import GRUODEBayes

STEP, END, H, D = 0.25, 4.0, 5, 3


def times(n: int, seed: int, step: float = STEP) -> np.ndarray:
    """Draw n distinct times on the grid of steps."""
    rng = np.random.default_rng([seed, n])
    return np.sort(rng.choice(int(END / step) + 1, n, replace=False)) * step


def series(t: np.ndarray, seed: int = 0) -> TimeSeries:
    rng = np.random.default_rng(seed)
    m = rng.random((len(t), D)) < 0.4
    m[np.arange(len(t)), rng.integers(0, D, len(t))] = True
    return TimeSeries.single(t, rng.normal(size=m.shape) * m, m)


def double(points: Points) -> Points:
    return Points(points.t.double(), points.x.double(), points.m.double(), points.valid)


def batch(of: list[TimeSeries], target: list[TimeSeries] | None = None, seed: int = 1) -> SporadicBatch:
    seen = double(pad(of))
    return SporadicBatch(seen, seen if target is None else double(pad(target)), END, seed)


def several(lengths: tuple[int, ...] = (4, 7, 1)) -> list[TimeSeries]:
    return [series(times(n, i), i) for i, n in enumerate(lengths)]


def model_of(attention: GRUAttention | None = None, seed: int = 0, **given: Any) -> GRUODEBayes:
    settings = {"step": STEP, "mixing": 1e-3, **given}
    model = filled(GRUODEBayes(D, H, 4, 2, attention=attention, **settings), seed).double()
    assert isinstance(model, GRUODEBayes)
    return model


def evolving(every: int = 2, initial: str = "correlation", size: int = H, g: str = "rows",
             **given: Any) -> GRUAttention:
    q = Dense((size,)) if initial == "dense" else Correlation((size,))
    return GRUAttention(RowGRU(size) if g == "rows" else MatrixGRU(size), q, every=every, **given)


def fixed() -> GRUAttention:
    return GRUAttention(None, Correlation((H,), bins=5))


def objective(model: GRUODEBayes, of: SporadicBatch, **given: Any) -> Tensor:
    forecast = model(of, **given)
    total = (gaussian_nll(of.target.x, forecast.mean, forecast.logvar) * of.target.m).sum()
    return total if forecast.extra is None else total + forecast.extra
