"""Batches of irregular series: the points of every series, padded to the longest, and the Euler steps between them.

A recurrent encoder steps between the points of a record. A gap is divided as in the protocol: with Δ = (last − first
time)/50, a gap below Δ is one step, a longer one has max(2, ⌊gap/Δ⌋) equally spaced points and so one step fewer. Every
record steps through its own times, or on the union grid through the times of its whole batch, where it reads only its
own points.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch import Tensor

from acenode.data.series import Record
from acenode.device.gpu import send_batch

STEPS_PER_SPAN = 50  # Δ is the time from first to last point divided by this
FIRST_GAP = 0.01  # time before the first point


@dataclass(frozen=True)
class Points:
    """Points of B series, at most T each. Padding has mask zero and repeats the last time."""

    t: Tensor  # (B, T), in units of the horizon or of the data set
    x: Tensor  # (B, T, D), zero where unobserved
    m: Tensor  # (B, T, D), mask: one where observed
    valid: Tensor  # (B, T), False for padding

    @property
    def observed(self) -> Tensor:
        return self.m.any(-1)


@dataclass(frozen=True)
class RecurrentSchedule:
    """Euler steps and reads of a recurrent encoder for a batch: S rows, B series."""

    dt: Tensor  # (S, B)
    point: Tensor  # (S, B), index of the point to read, 0 if none
    read: Tensor  # (S, B), whether a point is read
    row: Tensor  # (B, T), the row that reads a point


class Batch:
    """Base of batches, which are dataclasses of tensors."""

    def to(self, device: torch.device) -> Self:
        """Copy the batch to a device in one transfer."""
        return send_batch(self, device)


@dataclass(frozen=True)
class SeriesBatch(Batch):
    """A batch for the latent-ODE family: observations, targets, labels and noise."""

    seen: Points
    target: Points
    label: Tensor  # (B,) per series, NaN if unknown; or (B, T) per target, -1 for none
    span: tuple[float, float]  # of the generative ODE
    schedule: RecurrentSchedule | None = None
    noise: Tensor | None = None  # (K, B, ·), standard normal
    kl: float = 0.0  # weight of the Kullback–Leibler term


class TimeSeries(Record):
    """One irregular series as a model reads it; t, x and m are of single precision, except in tests."""

    @classmethod
    def single(cls, t: np.ndarray, x: np.ndarray, m: np.ndarray) -> TimeSeries:
        return cls(t.astype(np.float32), x.astype(np.float32), m.astype(np.float32))

    @cached_property
    def steps(self) -> dict[bool, EulerSteps]:
        """The Euler steps through the series' own times, by whether they go backwards."""
        return {backwards: euler_steps(self.t, backwards=backwards) for backwards in (False, True)}


def unpad(points: Points) -> list[TimeSeries]:
    return [TimeSeries(*(x[b].cpu().numpy()[valid] for x in (points.t, points.x, points.m)))
            for b, valid in enumerate(points.valid.cpu().numpy())]


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


@dataclass(frozen=True, eq=False)
class EulerSteps:
    """Steps of one record, or of a batch with arrays (S, B)."""

    dt: np.ndarray  # (S,) of the times' precision, negative backwards in time
    point: np.ndarray  # (S,) int64, index of the point read after the step, or -1


def precision(*arrays: np.ndarray) -> np.dtype:
    """Return float64 if any array has it, else float32."""
    return np.dtype(np.float64 if any(a.dtype == np.float64 for a in arrays) else np.float32)


def step_counts(gaps: np.ndarray, smallest: float) -> np.ndarray:
    """Return the number of Euler steps for each gap; `smallest` is Δ."""
    if not smallest > 0:
        return np.ones(len(gaps), np.int64)
    size = np.abs(gaps)
    ratio = np.floor(size / smallest + 1e-6)  # in single precision, 3 Δ must not count as 2.9999999 Δ
    return np.where(size < smallest, 1, np.maximum(2, ratio) - 1).astype(np.int64)


def euler_steps(t: np.ndarray, *, backwards: bool, read: np.ndarray | None = None) -> EulerSteps:
    """Return the steps through times t. `read` has the index of the point at each time, or -1; default: its own."""
    if len(t) == 0:
        return EulerSteps(np.zeros(0, precision(t)), np.zeros(0, np.int64))
    order = np.arange(len(t))[::-1 if backwards else 1]
    ordered = t[order].astype(np.float64)
    gaps = np.diff(ordered, prepend=ordered[0] + (FIRST_GAP if backwards else -FIRST_GAP))
    steps = step_counts(gaps, abs(ordered[-1] - ordered[0]) / STEPS_PER_SPAN)
    steps[0] = 1
    dt = np.repeat(gaps / steps, steps).astype(precision(t))
    point = np.full(len(dt), -1, np.int64)
    point[np.cumsum(steps) - 1] = order if read is None else read[order]
    return EulerSteps(dt, point)


def union_euler_steps(times: list[np.ndarray], *, backwards: bool) -> list[EulerSteps]:
    """Return the steps of each record of a batch on the union of their times."""
    union = np.unique(np.concatenate(times))
    found = []
    for t in times:
        read = np.full(len(union), -1, np.int64)
        read[np.searchsorted(union, t)] = np.arange(len(t))
        found.append(euler_steps(union, backwards=backwards, read=read))
    return found


def stack_steps(each: list[EulerSteps]) -> EulerSteps:
    """Stack the steps of several records, (S, B). Shorter records start with steps of length 0."""
    S = max(1, *(len(steps.dt) for steps in each))
    dt = np.zeros((S, len(each)), precision(*(steps.dt for steps in each)))
    point = np.full((S, len(each)), -1, np.int64)
    for b, steps in enumerate(each):
        if len(steps.dt):
            dt[-len(steps.dt):, b], point[-len(steps.dt):, b] = steps.dt, steps.point
    return EulerSteps(dt, point)


def recurrent_schedule(series: list[TimeSeries], seen: Points, *, backwards: bool,
                       union: bool = False) -> RecurrentSchedule:
    """Schedule an encoder through a batch: each series on its own times, or with `union` on those of the batch."""
    each = (union_euler_steps([s.t for s in series], backwards=backwards) if union
            else [s.steps[backwards] for s in series])
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
