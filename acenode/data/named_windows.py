"""Cut one long series into windows, and split them by time so that no part sees another part's future."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from acenode.data.named_set import PARTS, Record
from acenode.data.splits import record_split
from acenode.errors import UserError


def cut_windows(whole: Record, length: float, every: float, given: float = 0.0) -> list[Record]:
    """Return windows of a long series: [start, start + length) for starts `every` apart.

    A window that begins in a gap of the times is left out, because times are counted from the first point of a window,
    and one without an observation; with `given`, also one without an observation before or after it.

    Args:
        whole: the series.
        length: of a window, in units of time.
        every: the time between the starts of two windows.
        given: the part of a window that a forecast sees; 0 if there is no forecast.
    """
    found = []
    end = whole.t[-1] + np.median(np.diff(whole.t))  # the last point stands for as much time as the others
    for start in np.arange(whole.t[0], end - length + 1e-6 * every, every):
        low, high = np.searchsorted(whole.t, [start - 1e-9, start + length - 1e-9])
        window = Record(whole.t[low:high], whole.x[low:high], whole.m[low:high])
        if not window.m.any() or window.t[0] - start > every / 2:
            continue
        seen = window.seen(given)
        if not given or (window.m[seen].any() and window.m[~seen].any()):
            found.append(window)
    return found


def split_by_time(windows: Sequence[Record], shares: tuple[float, float] = (0.6, 0.2)) -> dict[str, np.ndarray]:
    """Split windows by time: the first part trains, the next validates, the last tests.

    A window that reaches across a boundary is in no part, so that no observation is in two parts.

    Args:
        windows: in any order.
        shares: of the time that training and validation take.

    Raises:
        UserError: a part is left without a window.
    """
    start, end = min(w.t[0] for w in windows), max(w.t[-1] for w in windows)
    edges = [start, *(start + np.cumsum(shares) * (end - start)), np.inf]
    parts = {name: np.array([i for i, w in enumerate(windows) if w.t[0] >= low and w.t[-1] < high], np.int64)
             for name, low, high in zip(PARTS, edges[:-1], edges[1:], strict=True)}
    for name, found in parts.items():
        if not len(found):
            raise UserError(f"no window fits into the {name} part: use shorter windows or a longer series")
    return parts


def split_series(ids: Sequence[str], seed: int = 42) -> dict[str, np.ndarray]:
    """Split whole series at random: a fifth for test, a fifth of the others for validation."""
    parts = record_split(np.array(ids), seed)
    return {name: getattr(parts, name) for name in PARTS}
