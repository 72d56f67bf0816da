"""Cut long series into windows, and split series or windows into training, validation and test.

Many series are split by series. Few long ones are split by time: the first 64% of the times are for training, the next
16% for validation and the rest for test, and no window reaches into two of them, so that the future never leaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from acenode.data.splits import Parts, record_split, stratified_holdout
from acenode.errors import UserError

MIN_SERIES = 20  # series or windows of a set
POINTS = 24  # times of a window, if its length is not given
OVERLAP = 4  # a window begins every quarter of its length, unless given otherwise,
ENOUGH, PLENTY = 200, 5000  # or more or less often, if that makes fewer or more windows than these
MAX_WINDOWS = 200_000
SHARES = (0.64, 0.8)  # of the times: where validation and test begin
SEED = 42  # of the split by series


@dataclass(frozen=True, eq=False)
class Piece:
    """A series, or a window of one: t (n,) and x (n, V) with NaN in gaps."""

    id: str
    source: int  # the index of its series
    t: np.ndarray
    x: np.ndarray


def typical_step(pieces: Sequence[Piece]) -> float:
    """Return the median time between two rows of a series."""
    return float(np.median(np.concatenate([np.diff(piece.t) for piece in pieces])))


def default_window(pieces: Sequence[Piece]) -> float:
    """Return the length of a window: 24 typical steps, less if the series are short."""
    rows = sum(len(piece.t) for piece in pieces)
    return typical_step(pieces) * min(POINTS, max(4, rows // 12))


def cut_windows(pieces: Sequence[Piece], length: float, stride: float | None = None) -> tuple[list[Piece], Parts]:
    """Cut series into windows and split them: by time if there are fewer than 20 series, else by series.

    Args:
        pieces: the series.
        length: of a window; it has the times from its start up to, not including, start + length.
        stride: between the starts of two windows; if None, a quarter of the length, less for 200 windows, more for at
            most about 5,000, and at least the typical step.
    """
    if not length > 0 or not np.isfinite(length):
        raise UserError(f"a window must be longer than 0, not {length:g} (--window)")
    step = typical_step(pieces)
    if length < 2 * step:
        raise UserError(f"a window of {length:g} has fewer than two times, which are {step:g} apart: use a longer one "
                        "(--window)")
    duration = sum(float(piece.t[-1] - piece.t[0]) for piece in pieces)
    if stride is None:
        stride = max(min(length / OVERLAP, duration / ENOUGH), duration / PLENTY, step)
    if not stride > 0 or not np.isfinite(stride):
        raise UserError(f"windows must start more than 0 apart, not {stride:g} (--stride)")
    if duration / stride > MAX_WINDOWS:
        raise UserError(f"that makes {duration / stride:,.0f} windows: use longer windows or strides (--window, "
                        "--stride)")
    if len(pieces) >= MIN_SERIES:
        windows = [window for piece in pieces for window in _windows(piece, piece.t[0], piece.t[-1], length, stride)]
        return windows, _of_sources(windows, split_series([piece.id for piece in pieces], None))
    bounds = _time_bounds(pieces)
    found: list[list[Piece]] = [
        [window for piece in pieces for window in _windows(piece, start, end, length, stride, end == bounds[-1])]
        for start, end in pairwise(bounds)]
    cuts = np.cumsum([len(part) for part in found])
    return [window for part in found for window in part], Parts(*np.split(np.arange(cuts[-1]), cuts[:-1]))


def _time_bounds(pieces: Sequence[Piece]) -> list[float]:
    """Return where the parts begin and end, so that they have the same share of all times."""
    t = np.sort(np.concatenate([piece.t for piece in pieces]))
    return [float(t[0]), *(float(t[int(share * len(t))]) for share in SHARES), float(t[-1])]


def _windows(piece: Piece, start: float, end: float, length: float, stride: float, last: bool = True) -> list[Piece]:
    """Return the windows between two times; the end itself belongs to the last part only."""
    found = []
    slack = 1e-9 * stride
    step = float(np.median(np.diff(piece.t)))
    stop = end + step if last else end  # the last row stands for one more step
    for k in range(int((stop - start - length) / stride + 1e-9) + 1 if stop - start >= length - slack else 0):
        begin = start + k * stride
        rows = slice(*np.searchsorted(piece.t, [begin - slack, begin + length - slack]))
        if rows.stop - rows.start >= 2:
            found.append(Piece(f"{piece.id}/{k}", piece.source, piece.t[rows], piece.x[rows]))
    return found


def _of_sources(windows: Sequence[Piece], parts: Parts) -> Parts:
    source = np.array([window.source for window in windows])
    return Parts(*(np.flatnonzero(np.isin(source, part)) for part in (parts.train, parts.validation, parts.test)))


def split_series(ids: Sequence[str], labels: np.ndarray | None) -> Parts:
    """Split by series, in proportion to the classes if there are labels: 64%, 16% and 20%."""
    if labels is None:
        return record_split(list(ids), SEED)
    rest, test = stratified_holdout(labels, round(len(ids) / 5), SEED)
    train, validation = stratified_holdout(labels[rest], round(len(rest) / 5), SEED)
    return Parts(rest[train], rest[validation], test)
