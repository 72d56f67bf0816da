"""Sporadic series as batches of a forecasting task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from acenode.data.points import Points, TimeSeries, pad
from acenode.data.schedule import SporadicBatch, make_schedule
from acenode.data.series import SeriesArrays
from acenode.data.splits import Parts


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
        """Return these series."""
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
        """Return the mean of every variable over the training series."""
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
        return self._to_forecast(pad(seen), pad(after))

    def _to_forecast(self, seen: Points, target: Points) -> SporadicBatch:
        schedule = None if self.step is None else make_schedule(seen, target, self.step)
        return SporadicBatch(seen, target, self.arrays.horizon, schedule=schedule).to(self.device)

    def grid(self, count: int) -> np.ndarray:
        """Return times from 0 to the end, on the model's own steps if it has any."""
        t = np.linspace(0.0, self.arrays.horizon, count)
        return t if self.step is None else np.unique((t / self.step).round()) * self.step
