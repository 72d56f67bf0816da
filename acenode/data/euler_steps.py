"""Euler steps of a recurrent encoder between the points of a record.

A gap between two points is divided as in the protocol: with Δ = (last − first time)/50, a gap below Δ is one step, a
longer one has max(2, ⌊gap/Δ⌋) equally spaced points and so one step fewer. Every record steps through its own times, or
on the union grid through the times of its whole batch, where it reads only its own points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

STEPS_PER_SPAN = 50  # Δ is the time from first to last point divided by this
FIRST_GAP = 0.01  # time before the first point


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
    order = np.arange(len(t))[::-1] if backwards else np.arange(len(t))
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
