"""Sporadic series as batches of a forecasting task, and the errors of forecasts.

Targets of weather are heavy-tailed: on most days there is no snow. One heavy snowfall among the test targets can then
weigh more in the mean squared error than a hundred ordinary days. Errors are therefore also reported by variable, and
in ways that a few extreme targets do not decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acenode.data.points import Points, TimeSeries, pad
from acenode.data.schedule import SporadicBatch, make_schedule
from acenode.data.series import SeriesArrays
from acenode.data.splits import Parts
from acenode.experiments.recording import binned
from acenode.models.forecast.gaussian import Forecast, gaussian_nll

LARGEST = 0.01  # share of the targets whose weight in the squared error is reported
PERCENTILE = 99.0  # at which squared errors are cut off in the winsorised mean
DRAWS = 2_000  # of the bootstrap over series
INTERVAL = (2.5, 97.5)  # percentiles of its interval


@dataclass(frozen=True, eq=False)
class ForecastSeries:
    """Series with their splits and the time after which they are forecast."""

    arrays: SeriesArrays
    parts: Parts
    cut: float
    device: torch.device
    step: float | None  # of a model that takes steps of its own between observations
    note: str = ""  # on the unit of time

    def records(self, index: Sequence[int] | np.ndarray) -> list[TimeSeries]:
        a, found = self.arrays, []
        for i in index:
            here = slice(int(a.offsets[i]), int(a.offsets[i + 1]))
            found.append(TimeSeries(a.t[here], a.x[here], a.m[here].astype(np.float32)))
        return found

    def longest(self, index: Sequence[int] | np.ndarray, count: int) -> list[int]:
        """Return the `count` series with most rows among these."""
        offsets = self.arrays.offsets
        return sorted(index, key=lambda i: -int(offsets[i + 1] - offsets[i]))[:count]

    def observed_mean(self) -> np.ndarray:
        train = self.arrays.take(self.parts.train)
        return (train.x.sum(0, dtype=np.float64) / np.maximum(train.m.sum(0), 1)).astype(np.float32)

    def training_batch(self, index: np.ndarray, seed: int) -> SporadicBatch:
        """Return whole series, each observation of which is predicted before it is read."""
        seen = pad(self.records(index))
        schedule = None if self.step is None else make_schedule(seen, None, self.step)
        return SporadicBatch(seen, seen, self.arrays.horizon, seed, schedule).to(self.device)

    def forecast_batch(self, index: Sequence[int] | np.ndarray, targets: int | None = None) -> SporadicBatch:
        """Return series up to the cut, with the first `targets` rows after it (None: all) to be forecast."""
        seen, after = [], []
        for r in self.records(index):
            later = np.flatnonzero(r.t > self.cut)
            seen.append(r.part(r.t <= self.cut))
            after.append(r.part(later[:targets]))
        return self.to_forecast(pad(seen), pad(after))

    def to_forecast(self, seen: Points, target: Points) -> SporadicBatch:
        schedule = None if self.step is None else make_schedule(seen, target, self.step)
        return SporadicBatch(seen, target, self.arrays.horizon, schedule=schedule).to(self.device)

    def grid(self, count: int) -> np.ndarray:
        """Return times from 0 to the end, on the model's own steps if it has any."""
        t = np.linspace(0.0, self.arrays.horizon, count)
        return t if self.step is None else np.unique((t / self.step).round()) * self.step


@dataclass
class ForecastErrors:
    edges: Tensor | None = None  # of the time bins in which errors are summed
    squared: float = 0.0
    nll: float = 0.0
    observed: float = 0.0
    nfe: float | None = None  # evaluations of f in the last batch, if the model has an f
    bins: np.ndarray | None = None  # (3, bins): squared errors, negative log-likelihoods and counts over time

    def add(self, predicted: Forecast, batch: SporadicBatch) -> None:
        target = batch.target
        squared = (target.x - predicted.mean).square() * target.m
        nll = gaussian_nll(target.x, predicted.mean, predicted.logvar) * target.m
        self.squared += float(squared.sum(dtype=torch.float64))
        self.nll += float(nll.sum(dtype=torch.float64))
        self.observed += float(target.m.sum())
        self.nfe = None if predicted.evaluations is None else predicted.evaluations.forward
        if self.edges is not None:
            sums = binned(target.t, self.edges, squared, nll, target.m)
            self.bins = sums if self.bins is None else self.bins + sums

    def metrics(self) -> dict[str, float]:
        found = {"mse": self.squared / max(1.0, self.observed), "negll": self.nll / max(1.0, self.observed)}
        return found if self.nfe is None else {**found, "nfe": self.nfe}


@dataclass(frozen=True, eq=False)
class ObservedTargets:
    """The observed values among the targets of a split, with their predictions: N of each."""

    series: np.ndarray  # index of the series
    variable: np.ndarray  # index of the variable
    t: np.ndarray  # time
    x: np.ndarray
    mean: np.ndarray

    @property
    def squared(self) -> np.ndarray:
        return np.asarray((self.x - self.mean) ** 2)

    def take(self, chosen: np.ndarray) -> ObservedTargets:
        return ObservedTargets(*(column[chosen] for column in (self.series, self.variable, self.t, self.x, self.mean)))


def error_report(targets: ObservedTargets, names: tuple[str, ...]) -> dict[str, Any]:
    """Return all measures of the targets, and those of every variable, as `errors` of result.json."""
    by_variable = []
    for j, name in enumerate(names):
        own = targets.take(targets.variable == j)
        by_variable.append({"name": name, **measures(own), "share": share(own.squared.sum(), targets.squared.sum())})
    low, high = bootstrap_interval(targets)
    return {**measures(targets), "mse_low": low, "mse_high": high, "by_variable": by_variable,
            "how": f"winsorised: squared errors cut off at their {PERCENTILE:g}th percentile; largest: share of the "
                   f"squared error in the {100 * LARGEST:g}% of targets with the largest one; mse_low, mse_high: 95% "
                   "interval of the MSE, drawing series with replacement"}


def measures(targets: ObservedTargets) -> dict[str, Any]:
    """Return the number of targets and the summaries of their errors, None without targets."""
    squared = targets.squared.astype(np.float64)
    if not len(squared):
        return {"count": 0, "mse": None, "mae": None, "median": None, "winsorised": None, "largest": None}
    top = np.sort(squared)[-max(1, round(LARGEST * len(squared))):]
    return {"count": len(squared), "mse": float(squared.mean()), "mae": float(np.sqrt(squared).mean()),
            "median": float(np.median(squared)),
            "winsorised": float(np.minimum(squared, np.percentile(squared, PERCENTILE)).mean()),
            "largest": share(top.sum(), squared.sum())}


def share(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0


def bootstrap_interval(targets: ObservedTargets, draws: int = DRAWS, seed: int = 0) -> tuple[float, float]:
    """Return the 95% interval of the mean squared error if the series are drawn again with replacement."""
    _, own = np.unique(targets.series, return_inverse=True)
    if not len(own):
        return float("nan"), float("nan")
    sums, counts = np.bincount(own, targets.squared), np.bincount(own)
    drawn = np.random.default_rng(seed).integers(0, len(sums), (draws, len(sums)))
    low, high = np.percentile(sums[drawn].sum(1) / counts[drawn].sum(1), INTERVAL)
    return float(low), float(high)
