"""Batches of irregular series: the points of every series, padded to the longest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from acenode.data.euler_steps import EulerSteps, euler_steps, precision, stack_steps, union_euler_steps
from acenode.device.transfer import send_all


@dataclass(frozen=True)
class Points:
    """Points of B series, at most T each. Padding has mask zero and repeats the last time."""

    t: Tensor  # (B, T), in units of the horizon or of the data set
    x: Tensor  # (B, T, D), zero where unobserved
    m: Tensor  # (B, T, D), mask: one where observed
    valid: Tensor  # (B, T), False for padding

    @property
    def observed(self) -> Tensor:
        """Return which points have at least one observed variable, (B, T)."""
        return self.m.any(-1)


@dataclass(frozen=True)
class RecurrentSchedule:
    """Euler steps and reads of a recurrent encoder for a batch: S rows, B series. See `acenode.data.euler_steps`."""

    dt: Tensor  # (S, B)
    point: Tensor  # (S, B), index of the point to read, 0 if none
    read: Tensor  # (S, B), whether a point is read
    row: Tensor  # (B, T), the row that reads a point


@dataclass(frozen=True)
class SeriesBatch:
    """A batch for the latent-ODE family: observations, targets, labels and noise."""

    seen: Points
    target: Points
    label: Tensor  # (B,) per series, NaN if unknown; or (B, T) per target, -1 for none
    span: tuple[float, float]  # of the generative ODE
    schedule: RecurrentSchedule | None = None
    noise: Tensor | None = None  # (K, B, ·), standard normal
    kl: float = 0.0  # weight of the Kullback–Leibler term

    def to(self, device: torch.device) -> SeriesBatch:
        """Copy the batch to a device in one transfer."""
        if device == self.label.device:
            return self
        parts = [p for p in (self.seen, self.target, self.schedule, self.label, self.noise) if p is not None]
        moved = send_all(parts, device)
        seen = moved(self.seen)
        return replace(self, seen=seen, target=seen if self.target is self.seen else moved(self.target),
                       schedule=None if self.schedule is None else moved(self.schedule), label=moved(self.label),
                       noise=None if self.noise is None else moved(self.noise))


@dataclass(frozen=True, eq=False)
class TimeSeries:
    """One irregular series as arrays."""

    t: np.ndarray  # (T,)
    x: np.ndarray  # (T, D), zero where unobserved
    m: np.ndarray  # (T, D), mask: one where observed

    def part(self, keep: np.ndarray) -> TimeSeries:
        return TimeSeries(self.t[keep], self.x[keep], self.m[keep])

    def steps(self, backwards: bool) -> EulerSteps:
        """Return the Euler steps through the series' own times; computed once per direction."""
        if backwards not in self._steps:
            self._steps[backwards] = euler_steps(self.t, backwards=backwards)
        return self._steps[backwards]

    @cached_property
    def _steps(self) -> dict[bool, EulerSteps]:
        return {}


def pad(series: list[TimeSeries]) -> Points:
    """Pad series to the longest and stack them, in the precision of their values: double if x is, else single."""
    T, D = max(1, *(len(s.t) for s in series)), series[0].x.shape[1]
    kind = precision(*(s.x for s in series))
    t = np.zeros((len(series), T), kind)
    x, m = np.zeros((len(series), T, D), kind), np.zeros((len(series), T, D), kind)
    valid = np.zeros((len(series), T), bool)
    for b, s in enumerate(series):
        n = len(s.t)
        t[b, :n], x[b, :n], m[b, :n], valid[b, :n] = s.t, s.x, s.m, True
        t[b, n:] = s.t[-1] if n else 0.0
    return Points(*(torch.from_numpy(a) for a in (t, x, m, valid)))


def recurrent_schedule(series: list[TimeSeries], seen: Points, *, backwards: bool,
                       union: bool = False) -> RecurrentSchedule:
    """Schedule an encoder through a batch: each series on its own times, or with `union` on those of the batch."""
    each = (union_euler_steps([s.t for s in series], backwards=backwards) if union
            else [s.steps(backwards) for s in series])
    return schedule_from_steps(stack_steps(each), seen)


def schedule_from_steps(steps: EulerSteps, seen: Points) -> RecurrentSchedule:
    """Convert steps (S, B) to tensors; points with nothing observed are not read."""
    B, T = seen.t.shape
    row = np.zeros((B, T), np.int64)
    s, b = np.nonzero(steps.point >= 0)
    row[b, steps.point[s, b]] = s
    index = np.maximum(steps.point, 0)
    observed = seen.m.numpy().sum(-1) > 0
    read = (steps.point >= 0) & observed[np.arange(B), index]
    dt, *others = (torch.from_numpy(a) for a in (steps.dt, index, read, row))
    return RecurrentSchedule(dt.to(seen.t.dtype), *others)


def median_time(series: list[TimeSeries]) -> float:
    """Return the first time of the second half of a batch's distinct times."""
    union = np.unique(np.concatenate([s.t for s in series]))
    return float(union[len(union) // 2])
