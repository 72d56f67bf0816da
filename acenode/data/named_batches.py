"""Batches of series with named variables: what a model sees and predicts, standardised, with times from 0 to 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from acenode.data.named_set import NamedSet
from acenode.data.points import Batch, Points, TimeSeries, pad, unpad
from acenode.data.series import Record

HIDDEN_SHARE = 0.25  # of the observations that are held out to be filled in
GRID = 48  # equal steps of time on which own observations are interpolated
NEAR = 0.05  # scale of time, in units of the duration, at which an observation counts as near
SAME = 1e-6  # times closer than this are the same


@dataclass(frozen=True)
class NamedBatch(Batch):
    """A batch of B series with V variables. Values are standardised; times are in units of the longest duration."""

    seen: Points
    target: Points
    span: tuple[float, float]  # of the ODE
    reference: Tensor  # (B, T, V): the last own observation at each target, or the interpolation of own ones
    label: Tensor  # (B,) int64; zeros if there are none
    control: Tensor | None = None  # (B, GRID + 1, V, 2): own observations that drive the ODE
    times: tuple[float, ...] | None = None  # of the targets, if all series have the same


@dataclass(frozen=True, eq=False)
class ScaledSet:
    """A set prepared for training: every series standardised by the training part, with times from 0 to 1."""

    source: NamedSet
    series: tuple[TimeSeries, ...]

    @classmethod
    def of(cls, source: NamedSet) -> ScaledSet:
        return cls(source, tuple(scaled(r, source) for r in source.series))

    @cached_property
    def span(self) -> tuple[float, float]:
        """The time that the ODE covers: all of it, or for a forecast from the last time that any series was seen."""
        if self.source.task != "forecast":
            return 0.0, 1.0
        last = [s.t[seen][-1] for s, seen in zip(self.series, self._seen, strict=True)]
        return float(max(last)), 1.0

    @cached_property
    def times(self) -> tuple[float, ...] | None:
        """The times of the targets of a forecast, if all series of the set have the same after the start."""
        targets = [s.t[~seen] for s, seen in zip(self.series, self._seen, strict=True)]
        first = targets[0]
        same = all(len(t) == len(first) and np.abs(t - first).max(initial=0) <= SAME for t in targets)
        if self.source.task != "forecast" or not len(first) or not same or first[0] <= self.span[0] + SAME \
                or not (np.diff(first) > 0).all():
            return None
        return tuple(float(t) for t in first)

    @cached_property
    def _seen(self) -> list[np.ndarray]:
        return [r.seen(self.source.given) for r in self.source.series]

    def hidden(self, index: Sequence[int] | np.ndarray, seed: int | None = None) -> list[np.ndarray]:
        """Draw which observations of these series are held out, (n, V) each.

        Without a seed, the draw depends on the series alone, so that every run is tested on the same ones.
        """
        found = []
        for place, i in enumerate(index):
            rng = np.random.default_rng([17, int(i)] if seed is None else [seed, place])
            found.append((rng.random(self.series[i].m.shape) < HIDDEN_SHARE) & (self.series[i].m > 0))
        return found

    def batch(self, index: Sequence[int] | np.ndarray, seed: int | None = None) -> NamedBatch:
        """Return a batch of these series; `seed` draws the points to be filled in."""
        chosen, task = [self.series[i] for i in index], self.source.task
        if task == "forecast":
            seen = [s.part(self._seen[i]) for i, s in zip(index, chosen, strict=True)]
            target = [s.part(~self._seen[i]) for i, s in zip(index, chosen, strict=True)]
        elif task == "fill":
            held = self.hidden(index, seed)
            seen = [TimeSeries(s.t, s.x * ~hide, s.m * ~hide) for s, hide in zip(chosen, held, strict=True)]
            target = [TimeSeries(s.t, s.x * hide, s.m * hide) for s, hide in zip(chosen, held, strict=True)]
        else:
            seen = chosen
            target = [s.part(np.zeros(len(s.t), bool)) for s in chosen]
        return self.assemble(index, seen, target)

    def assemble(self, index: Sequence[int] | np.ndarray, seen: list[TimeSeries],
                 target: list[TimeSeries]) -> NamedBatch:
        """Return the batch of given observations and targets."""
        task, span = self.source.task, self.span
        padded = pad(target)
        padded = replace(padded, t=padded.t.clamp(*span))
        control = None
        if task == "forecast":
            last = np.stack([last_values(s) for s in seen])  # (B, V)
            reference = np.repeat(last[:, None], padded.t.shape[1], 1)
        else:
            grid = np.linspace(*span, GRID + 1)
            control = torch.from_numpy(np.stack([own_path(s, grid) for s in seen]).astype(np.float32))
            reference = np.stack([own_path(s, t)[..., 0] for s, t in zip(seen, padded.t.numpy(), strict=True)])
        labels = np.zeros(len(seen), np.int64) if self.source.labels is None else self.source.labels[np.asarray(index)]
        return NamedBatch(pad(seen), padded, span, torch.from_numpy(reference.astype(np.float32)),
                          torch.from_numpy(labels), control, self.times)


def scaled(record: Record, source: NamedSet) -> TimeSeries:
    """Return a record standardised by the set's training part, from time 0, in units of the longest duration."""
    x = np.where(record.m, (record.x - source.mean) / source.std, 0.0)
    t = (record.t - record.t[0]) / source.duration
    return TimeSeries.single(t, x, record.m)


def last_values(series: TimeSeries) -> np.ndarray:
    """Return the last observation of every variable, (V,); 0, the mean, where there is none."""
    order = np.where(series.m > 0, np.arange(1, len(series.t) + 1)[:, None], 0).max(0, initial=0)
    found = np.take_along_axis(series.x, np.maximum(order - 1, 0)[None], 0)[0] if len(series.t) else 0.0
    return np.where(order > 0, found, 0.0)


def references_at(seen: Points, t: np.ndarray, task: str) -> Tensor:
    """Return what predictions at common times t are relative to, (B, T, V): see `NamedBatch.reference`."""
    return torch.from_numpy(np.stack([np.repeat(last_values(s)[None], len(t), 0) if task == "forecast"
                                      else own_path(s, t)[..., 0] for s in unpad(seen)])).float()


def own_path(series: TimeSeries, t: np.ndarray) -> np.ndarray:
    """Interpolate every variable's own observations at times t, (T, V, 2): the value, and how near observations are.

    The value is constant before the first and after the last observation, and 0 if there is none.
    """
    found = np.zeros((len(t), series.x.shape[1], 2))
    for v in range(series.x.shape[1]):
        here = series.m[:, v] > 0
        if here.any():
            times = series.t[here]
            found[:, v, 0] = np.interp(t, times, series.x[here, v])
            found[:, v, 1] = np.exp(-np.abs(np.asarray(t)[:, None] - times).min(1) / NEAR)
    return found


def correlation(source: NamedSet, least: int = 8) -> np.ndarray:
    """Return the correlation of the training part's variables, (V, V), over the times at which both are observed.

    A pair with fewer than `least` common times has correlation 0.
    """
    x, observed = source.observations("train")
    m = observed.astype(float)
    x = np.where(observed, (x - source.mean) / source.std, 0.0)
    count = m.T @ m
    safe = np.maximum(count, 1)
    mean = x.T @ m / safe  # [i, j]: mean of i where j is observed too
    square = (x ** 2).T @ m / safe - mean ** 2
    covariance = x.T @ x / safe - mean * mean.T
    scale = np.sqrt(np.maximum(square * square.T, 1e-18))
    found = np.where(count >= least, np.clip(covariance / scale, -1, 1), 0.0)
    np.fill_diagonal(found, 1.0)
    return found
