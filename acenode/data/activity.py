"""Read the Localization Data for Person Activity (UCI 196): positions of four body tags of five people, with the
activity at every time point."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from acenode.data.series import ReadResult, SeriesArrays, SeriesSource
from acenode.data.source import Progress, RemoteFile, lines_of
from acenode.errors import UserError

if TYPE_CHECKING:
    from pandas import DataFrame

FILE = "ConfLongDemo_JSI.txt"
TAGS = {"010-000-024-033": "left ankle", "010-000-030-096": "right ankle", "020-000-033-111": "chest",
        "020-000-032-221": "belt"}
NAMES = tuple(f"{tag} {axis}" for tag in TAGS.values() for axis in "xyz")
CLASSES = ("walking", "falling", "lying", "sitting", "standing up", "on all fours", "sitting on the ground")
CLASS_OF = {
    "walking": 0, "falling": 1, "lying": 2, "lying down": 2, "sitting": 3, "sitting down": 3,
    "standing up from lying": 4, "standing up from sitting": 4, "standing up from sitting on the ground": 4,
    "on all fours": 5, "sitting on the ground": 6,
}
RECORDINGS = 25  # five people, five trials each
ROWS = 164_860
BIN_TICKS = 100_000  # of 100 ns: 10 ms
BIN_SECONDS = 0.01
WINDOW, STRIDE = 50, 25

_RECORDING, _TICK = re.compile(r"[A-Z](\d\d)"), re.compile(r"\d{1,18}")
_TAG = {tag: number for number, tag in enumerate(TAGS)}

MALFORMED, UNKNOWN, OUT_OF_ORDER = "malformed lines", "unknown tags or activities", "times out of order"
SHORT = "recordings shorter than a window"


def read_rows(path: Path, skipped: Counter[str], progress: Progress | None = None) -> tuple[DataFrame, int]:
    """Return the usable rows: recording, bin of 10 ms since its first row, tag, label, x, y and z; and how many rows
    there are, skipped ones included."""
    import pandas as pd

    found, rows = [], 0
    for line in lines_of(path, progress):
        rows += 1
        row = _row(line.split(","))
        if isinstance(row, str):
            skipped[row] += 1
        else:
            found.append(row)
    if not found:
        raise UserError(f"{path} is not the official {FILE}: delete it and get it again")
    table = pd.DataFrame(found, columns=["recording", "tick", "tag", "label", "x", "y", "z"])
    since = table.tick - table.groupby("recording").tick.transform("first")
    table["bin"] = np.rint(since / BIN_TICKS).astype(np.int64)
    late = table.bin < table.groupby("recording").bin.cummax()
    skipped[OUT_OF_ORDER] += int(late.sum())
    return table[~late], rows


def _row(fields: list[str]) -> tuple[str | int | float, ...] | str:
    """Return the values of a row, or the reason why it is skipped."""
    if len(fields) != 8 or not _RECORDING.fullmatch(fields[0]) or not _TICK.fullmatch(fields[2]):
        return MALFORMED
    try:
        xyz = [float(number) for number in fields[4:7]]
    except ValueError:
        return MALFORMED
    if not all(abs(v) < np.finfo(np.float32).max for v in xyz):  # False for NaN
        return MALFORMED
    if fields[1] not in _TAG or fields[7] not in CLASS_OF:
        return UNKNOWN
    return fields[0], int(fields[2]), _TAG[fields[1]], CLASS_OF[fields[7]], *xyz


def time_points(rows: DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the bins (R,) of a recording, their labels, and the values (R, 12) and mask.

    Readings of a tag in one bin are averaged; of two labels in one bin, the lower one is kept.
    """
    bins, point = np.unique(rows.bin, return_inverse=True)
    R, tags = len(bins), len(TAGS)
    cell = point * tags + rows.tag.to_numpy()
    count = np.bincount(cell, minlength=R * tags)
    total = np.stack([np.bincount(cell, rows[axis], minlength=R * tags) for axis in "xyz"], axis=1)
    x = (total / np.maximum(count, 1)[:, None]).reshape(R, 3 * tags).astype(np.float32)
    label = rows.label.groupby(point).min().to_numpy(np.int64)
    return bins, label, x, np.repeat(count > 0, 3).reshape(R, 3 * tags)


def windows(rows: DataFrame, skipped: Counter[str]) -> SeriesArrays:
    """Cut the recordings into half-overlapping windows of 50 time points; the time of each window starts at 0."""
    ids, found = [], []
    for name, own in rows.groupby("recording"):
        bins, *others = time_points(own)
        starts = range(0, len(bins) - WINDOW, STRIDE)  # while start + 50 < length
        skipped[SHORT] += int(not starts)
        for start in starts:
            here = slice(start, start + WINDOW)
            ids.append(f"{name}/{start:04d}")
            found.append((bins[here] - bins[start], *(array[here] for array in others)))
    if not ids:
        raise UserError(f"no recording has more than {WINDOW} time points: get the whole data set")
    bins, label, x, m = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    times = bins * BIN_SECONDS
    return SeriesArrays.from_points(
        ids, np.arange(len(times)) // WINDOW, times, x, m, NAMES, horizon=float(times.max()), unit="s", label=label,
        classes=CLASSES, group=np.array([int(name[1:3]) for name in ids], np.int64))


def read(files: Mapping[str, Path], progress: Progress | None = None) -> ReadResult:
    """Read the windows of the official file, or of a part of it."""
    skipped: Counter[str] = Counter()
    found, rows = read_rows(files[FILE], skipped, progress)
    return ReadResult(windows(found, skipped), +skipped, rows)


def recordings(arrays: SeriesArrays) -> int:
    return len({name.partition("/")[0] for name in arrays.ids.tolist()})


def describe(arrays: SeriesArrays) -> str:
    count = recordings(arrays)
    partial = "" if count >= RECORDINGS else ", a part: results are not comparable with the paper"
    return f"{len(arrays):,} windows of {count} of {RECORDINGS} recordings{partial}"


ACTIVITY = SeriesSource(
    name="activity",
    title="Localization data for person activity",
    # UCI publishes no checksum: the number of rows shows whether a download is complete.
    files=(RemoteFile(FILE, (f"https://archive.ics.uci.edu/ml/machine-learning-databases/00196/{FILE}",)),),
    read=read, describe=describe, rows=ROWS)
