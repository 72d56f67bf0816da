"""Batches of series to forecast: their points, the Euler steps between observations, and the random numbers drawn.

Every series takes its own steps: a gap between two points is divided into ⌈gap/Δ⌉ equal steps. The batch is a table
whose row i holds the i-th step of every series, so the series advance in parallel although their times differ. If all
times are multiples of Δ, as in the protocol's data sets, row i is time iΔ for every series.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from acenode.data.points import Batch, Points

GAP_TOLERANCE = 1e-3  # in steps: a gap longer than n steps by at most this much is divided into n steps
GRID_TOLERANCE = 1e-2  # in steps: how far single-precision times may lie from multiples of Δ


@dataclass(frozen=True)
class ScheduledPoints:
    """Points sorted by the row they follow; those of row i are `offsets[i]:offsets[i + 1]`."""

    offsets: list[int]  # S + 1
    row: Tensor  # (N,)
    series: Tensor  # (N,), index in the batch
    point: Tensor  # (N,), index among the points of the series

    def __len__(self) -> int:
        return self.offsets[-1]


@dataclass(frozen=True)
class StepSchedule:
    """S rows. A row is an Euler step of length dt, then the read points, then the observations.

    The first step has length 0, so that points at time 0 belong to row 0.
    """

    dt: Tensor  # (S, 1, 1) if all series take equal steps, else (S, B, 1)
    observations: ScheduledPoints  # h is updated here
    reads: ScheduledPoints  # h is read here: the targets, if they are not the observations themselves
    step_sizes: list[float]  # of each step but the first, averaged over the series that take it

    @property
    def rows(self) -> int:
        return len(self.dt)

    def read_everywhere(self, B: int) -> StepSchedule:
        """Return the same steps with all B series read in every row."""
        row = torch.arange(self.rows, device=self.dt.device).repeat_interleave(B)
        series = torch.arange(B, device=self.dt.device).repeat(self.rows)
        return replace(self, reads=ScheduledPoints(list(range(0, self.rows * B + 1, B)), row, series, row))


def make_schedule(seen: Points, target: Points | None, step: float) -> StepSchedule:
    """Schedule steps of at most `step` through the observations `seen` and the read points `target`, if given."""
    device, kind = seen.t.device, np.dtype(str(seen.t.dtype).removeprefix("torch."))
    t, valid = seen.t.cpu().numpy().astype(np.float64), seen.valid.cpu().numpy()
    if target is not None:
        t = np.concatenate((t, target.t.cpu().numpy().astype(np.float64)), 1)
        valid = np.concatenate((valid, target.valid.cpu().numpy()), 1)
    order = np.argsort(np.where(valid, t, np.inf), axis=1, kind="stable")
    valid = np.take_along_axis(valid, order, 1)
    at = np.take_along_axis(t, order, 1)
    at = np.where(valid, at, np.maximum.accumulate(np.where(valid, at, 0.0), 1))  # padding repeats the last time
    gap = np.diff(at, axis=1, prepend=0.0)
    count = np.ceil(gap / step - GAP_TOLERANCE).astype(np.int64).clip(min=0)
    row, observation = count.cumsum(1), valid & (order < seen.t.shape[1])
    last = np.maximum.accumulate(np.where(observation, row, -1), 1)
    before = np.concatenate((np.full((len(row), 1), -1), last[:, :-1]), 1)
    count += observation & (before == row)  # a row holds at most one observation of a series: a step in between
    row = count.cumsum(1)
    S = int(row[:, -1].max(initial=0)) + 1
    if np.abs(at - row * step).max(initial=0.0) <= GRID_TOLERANCE * step:
        dt = np.full((S, 1, 1), step, kind)
        dt[0] = 0.0
        step_sizes = [step] * (S - 1)
    else:  # the length of every step of every series, zero after its last point
        steps, total = count.ravel(), count.sum(1)
        length = np.repeat(gap.ravel() / np.maximum(steps, 1), steps)
        owner = np.repeat(np.arange(len(gap)), total)
        dt = np.zeros((S, len(gap), 1), kind)
        dt[1 + np.arange(len(length)) - (np.cumsum(total) - total)[owner], owner, 0] = length
        step_sizes = (dt[1:].sum((1, 2)) / np.maximum((dt[1:] > 0).sum((1, 2)), 1)).tolist()
    chosen = np.nonzero(valid)
    rows, series, point = row[chosen], chosen[0], order[chosen]
    T = seen.t.shape[1]
    observed, read = point < T, point >= T
    return StepSchedule(torch.from_numpy(dt).to(device),
                        _sort_by_row(rows[observed], series[observed], point[observed], S, device),
                        _sort_by_row(rows[read], series[read], point[read] - T, S, device), step_sizes)


def _sort_by_row(row: np.ndarray, series: np.ndarray, point: np.ndarray, S: int,
                 device: torch.device) -> ScheduledPoints:
    order = np.argsort(row, kind="stable")
    offsets = np.searchsorted(row[order], np.arange(S + 1)).tolist()
    return ScheduledPoints(offsets, *(torch.from_numpy(x[order].astype(np.int64)).to(device)
                                      for x in (row, series, point)))


@dataclass(frozen=True)
class SporadicBatch(Batch):
    """B series. In training the targets are the seen points, each predicted before it is observed."""

    seen: Points
    target: Points
    horizon: float
    seed: int = 0  # of all random numbers a model draws for this batch
    schedule: StepSchedule | None = None  # for GRU-ODE-Bayes, which steps from point to point

    @property
    def training(self) -> bool:
        return self.target is self.seen


class NoiseSource:
    """Random numbers for one batch, which depend on its seed only."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.generator = torch.Generator(device).manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.generator.device)

    def dropout_mask(self, rate: float, *shape: int) -> Tensor:
        """Draw a mask that is 0 with probability `rate` and 1/(1 − rate) otherwise."""
        drawn = torch.rand(shape, generator=self.generator, device=self.generator.device)
        return (drawn >= rate).to(drawn) / (1 - rate)
