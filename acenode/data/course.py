"""How a batch of series is advanced between its observations: Euler steps, and which series halts after which.

Every series takes its own steps: a gap of time is crossed in ⌈gap/Δ⌉ equal ones. All series of a batch go in step, row
by row, so that nobody waits. Where all times are multiples of Δ, as in the protocol's sets, row i is the time iΔ of all
of them: the same steps that one clock shared by the batch would take.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from acenode.data.points import Points

NEAR = 1e-3  # of a step: a gap that much longer than n steps is n steps long
EVEN = 1e-2  # of a step: times are stored in single precision


@dataclass(frozen=True)
class Halts:
    """Points at which a series is looked at, by row: those of row i are `offsets[i]:offsets[i + 1]`."""

    offsets: list[int]  # S + 1
    row: Tensor  # (N,)
    series: Tensor  # (N,)
    point: Tensor  # (N,), its place among the series' points

    def __len__(self) -> int:
        return self.offsets[-1]


@dataclass(frozen=True)
class Course:
    """S rows; in each a step of dt, then the reads, then the jumps. The first step is of length 0, at time 0."""

    dt: Tensor  # (S, 1, 1) where all series take equal steps, else (S, B, 1)
    jumps: Halts  # at the seen points
    reads: Halts  # at the targets, where they are not the seen points themselves
    sizes: list[float]  # of each step but the first, the mean over the series that take it

    @property
    def rows(self) -> int:
        return len(self.dt)

    def read_everywhere(self, B: int) -> Course:
        """The same with a read of all B series in every row, which changes nothing on the way."""
        row = torch.arange(self.rows, device=self.dt.device).repeat_interleave(B)
        series = torch.arange(B, device=self.dt.device).repeat(self.rows)
        return replace(self, reads=Halts(list(range(0, self.rows * B + 1, B)), row, series, row))


def course_of(seen: Points, target: Points | None, step: float) -> Course:
    """The rows of a batch; without `target` nothing but the seen points is looked at."""
    device = seen.t.device
    t, there = seen.t.cpu().numpy().astype(np.float64), seen.there.cpu().numpy()
    if target is not None:
        t = np.concatenate((t, target.t.cpu().numpy().astype(np.float64)), 1)
        there = np.concatenate((there, target.there.cpu().numpy()), 1)
    order = np.argsort(np.where(there, t, np.inf), axis=1, kind="stable")
    there = np.take_along_axis(there, order, 1)
    at = np.take_along_axis(t, order, 1)
    at = np.where(there, at, np.maximum.accumulate(np.where(there, at, 0.0), 1))  # what is padded stays where it is
    gap = np.diff(at, axis=1, prepend=0.0)
    count = np.ceil(gap / step - NEAR).astype(np.int64).clip(min=0)
    count += _crowded(count.cumsum(1), there & (order < seen.t.shape[1]))
    row = count.cumsum(1)
    S = int(row[:, -1].max(initial=0)) + 1
    if np.abs(at - row * step).max(initial=0.0) <= EVEN * step:
        dt = np.full((S, 1, 1), step, np.float32)
        dt[0] = 0.0
        sizes = [step] * (S - 1)
    else:
        dt = _own_steps(gap, count, S)
        sizes = (dt[1:].sum((1, 2)) / np.maximum((dt[1:] > 0).sum((1, 2)), 1)).tolist()
    here = np.nonzero(there)
    rows, series, point = row[here], here[0], order[here]
    T = seen.t.shape[1]
    jumps, reads = point < T, point >= T
    return Course(torch.from_numpy(dt).to(device), _halts(rows[jumps], series[jumps], point[jumps], S, device),
                  _halts(rows[reads], series[reads], point[reads] - T, S, device), sizes)


def _crowded(row: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Seen points in the row of the one before: a series jumps once in a row, so that a step lies between the two."""
    last = np.maximum.accumulate(np.where(seen, row, -1), 1)
    before = np.concatenate((np.full((len(row), 1), -1), last[:, :-1]), 1)
    return seen & (before == row)


def _own_steps(gap: np.ndarray, count: np.ndarray, S: int) -> np.ndarray:
    """(S, B, 1): the length of every step of every series; none after its last halt."""
    steps, total = count.ravel(), count.sum(1)
    length = np.repeat(gap.ravel() / np.maximum(steps, 1), steps)
    series = np.repeat(np.arange(len(gap)), total)
    first = np.cumsum(total) - total
    dt = np.zeros((S, len(gap), 1), np.float32)
    dt[1 + np.arange(len(length)) - first[series], series, 0] = length
    return dt


def _halts(row: np.ndarray, series: np.ndarray, point: np.ndarray, S: int, device: torch.device) -> Halts:
    order = np.argsort(row, kind="stable")
    offsets = np.searchsorted(row[order], np.arange(S + 1)).tolist()
    return Halts(offsets, *(torch.from_numpy(x[order].astype(np.int64)).to(device) for x in (row, series, point)))
