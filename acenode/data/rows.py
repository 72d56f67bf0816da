"""What a recurrent model does, row by row: how far time moves, and which of a record's points is then read.

Every record walks its own times, all records of a batch in step. A gap of time is crossed in the protocol's Euler
steps: with Δ = (last − first time)/50, one step where the gap is below Δ, else between max(2, ⌊gap/Δ⌋) equally spaced
points. On the union grid every record also halts, without reading, at the times of its batch mates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SHARE = 50  # Δ is such a part of the span
BEFORE = 0.01  # a gap of its own before the first point that is read


@dataclass(frozen=True, eq=False)
class Rows:
    """Of one record, or of a batch where the arrays are (S, B)."""

    dt: np.ndarray  # (S,) float32, negative where time runs backwards
    point: np.ndarray  # (S,) int64, the point that is read after it, -1 for none


def substeps(gaps: np.ndarray, smallest: float) -> np.ndarray:
    """Euler steps to take for each gap."""
    if not smallest > 0:
        return np.ones(len(gaps), np.int64)
    size = np.abs(gaps)
    ratio = np.floor(size / smallest + 1e-6)  # single precision: 3 times Δ is not 2.9999999
    return np.where(size < smallest, 1, np.maximum(2, ratio) - 1).astype(np.int64)


def rows_of(t: np.ndarray, *, backwards: bool, read: np.ndarray | None = None) -> Rows:
    """The rows of one record with times t; `read` says at which of them there is a point, and which (-1: none)."""
    if len(t) == 0:
        return Rows(np.zeros(0, np.float32), np.zeros(0, np.int64))
    order = np.arange(len(t))[::-1] if backwards else np.arange(len(t))
    walked = t[order].astype(np.float64)
    gaps = np.diff(walked, prepend=walked[0] + (BEFORE if backwards else -BEFORE))
    steps = substeps(gaps, abs(walked[-1] - walked[0]) / SHARE)
    steps[0] = 1
    dt = np.repeat(gaps / steps, steps).astype(np.float32)
    point = np.full(len(dt), -1, np.int64)
    point[np.cumsum(steps) - 1] = order if read is None else read[order]
    return Rows(dt, point)


def union_rows(times: list[np.ndarray], *, backwards: bool) -> list[Rows]:
    """The rows of each record of a batch when all walk through all of its times."""
    union = np.unique(np.concatenate(times))
    found = []
    for t in times:
        read = np.full(len(union), -1, np.int64)
        read[np.searchsorted(union, t)] = np.arange(len(t))
        found.append(rows_of(union, backwards=backwards, read=read))
    return found


def together(rows: list[Rows]) -> Rows:
    """The rows of a batch, (S, B): shorter records begin later, with rows that change nothing before."""
    S = max(1, *(len(r.dt) for r in rows))
    dt, point = np.zeros((S, len(rows)), np.float32), np.full((S, len(rows)), -1, np.int64)
    for b, r in enumerate(rows):
        if len(r.dt):
            dt[-len(r.dt):, b], point[-len(r.dt):, b] = r.dt, r.point
    return Rows(dt, point)
