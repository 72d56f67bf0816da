"""Irregular series in batches: every record's own points, padded to the longest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from acenode.data.rows import Rows, rows_of, together, union_rows
from acenode.transfer import send_all


@dataclass(frozen=True)
class Points:
    """The points of B records, at most T each; what is padded is observed nowhere and repeats the last time."""

    t: Tensor  # (B, T), in units of the horizon
    x: Tensor  # (B, T, D), zero where unobserved
    m: Tensor  # (B, T, D), one where observed
    there: Tensor  # (B, T), whether it is a point at all

    @property
    def observed(self) -> Tensor:
        """(B, T), whether anything was seen there."""
        return self.m.any(-1)


@dataclass(frozen=True)
class Walk:
    """How a recurrent model goes through points: see `acenode.data.rows`. S rows, B records."""

    dt: Tensor  # (S, B)
    point: Tensor  # (S, B), 0 where none is read
    read: Tensor  # (S, B), whether one is
    row: Tensor  # (B, T), after which row a point has been passed


@dataclass(frozen=True)
class Batch:
    """Records to learn from: what is seen, what is to be said of it, and the draws that go with them."""

    seen: Points
    target: Points
    label: Tensor  # (B,) of records, NaN where unknown, or (B, T) of the targets, -1 where there is none
    span: tuple[float, float]  # of the generative ODE
    walk: Walk | None = None
    noise: Tensor | None = None  # (K, B, ·), standard normal
    kl: float = 0.0  # weight of the Kullback–Leibler term

    def to(self, device: torch.device) -> Batch:
        """The same batch there, in one transfer."""
        if device == self.label.device:
            return self
        parts = [p for p in (self.seen, self.target, self.walk, self.label, self.noise) if p is not None]
        moved = send_all(parts, device)
        seen = moved(self.seen)
        return replace(self, seen=seen, target=seen if self.target is self.seen else moved(self.target),
                       walk=None if self.walk is None else moved(self.walk), label=moved(self.label),
                       noise=None if self.noise is None else moved(self.noise))


@dataclass(frozen=True, eq=False)
class Record:
    """One series as arrays, its times in units of the horizon."""

    t: np.ndarray
    x: np.ndarray
    m: np.ndarray

    def part(self, keep: np.ndarray) -> Record:
        return Record(self.t[keep], self.x[keep], self.m[keep])

    def rows(self, backwards: bool) -> Rows:
        """The rows of the record on its own times, made once."""
        if backwards not in self._rows:
            self._rows[backwards] = rows_of(self.t, backwards=backwards)
        return self._rows[backwards]

    @cached_property
    def _rows(self) -> dict[bool, Rows]:
        return {}


def pad(records: list[Record]) -> Points:
    T, D = max(1, *(len(r.t) for r in records)), records[0].x.shape[1]
    t = np.zeros((len(records), T), np.float32)
    x, m = np.zeros((len(records), T, D), np.float32), np.zeros((len(records), T, D), np.float32)
    there = np.zeros((len(records), T), bool)
    for b, r in enumerate(records):
        n = len(r.t)
        t[b, :n], x[b, :n], m[b, :n], there[b, :n] = r.t, r.x, r.m, True
        t[b, n:] = r.t[-1] if n else 0.0
    return Points(*(torch.from_numpy(a) for a in (t, x, m, there)))


def walk(records: list[Record], seen: Points, *, backwards: bool, union: bool = False) -> Walk:
    """The rows of a batch."""
    each = (union_rows([r.t for r in records], backwards=backwards) if union
            else [r.rows(backwards) for r in records])
    rows = together(each)
    return walk_of(rows, seen)


def walk_of(rows: Rows, seen: Points) -> Walk:
    B, T = seen.t.shape
    row = np.zeros((B, T), np.int64)
    s, b = np.nonzero(rows.point >= 0)
    row[b, rows.point[s, b]] = s
    index = np.maximum(rows.point, 0)
    observed = seen.m.numpy().sum(-1) > 0
    read = (rows.point >= 0) & observed[np.arange(B), index]
    return Walk(*(torch.from_numpy(a) for a in (rows.dt, index, read, row)))


def cut_at(records: list[Record]) -> float:
    """Half of a batch's distinct times lie before this one, which is the first of the second half."""
    union = np.unique(np.concatenate([r.t for r in records]))
    return float(union[len(union) // 2])
