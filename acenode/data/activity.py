"""Read the Localization Data for Person Activity (UCI 196): positions of four body tags of five people, with the
activity at every time point."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from acenode.data.download import Progress, RemoteFile
from acenode.data.series import ReadResult, SeriesArrays, SeriesSource
from acenode.data.source import lines_of
from acenode.errors import UserError

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

_RECORDING = re.compile(r"[A-Z](\d\d)")
_TAG = {tag: number for number, tag in enumerate(TAGS)}

MALFORMED, UNKNOWN, OUT_OF_ORDER = "malformed lines", "unknown tags or activities", "times out of order"
SHORT = "recordings shorter than a window"


@dataclass
class ActivityRecording:
    """One recording while it is read: its time points in order, and the readings at each of them."""

    first: int  # tick of the first row
    bins: list[int] = field(default_factory=list)  # (R,) time points in 10 ms
    classes: list[int] = field(default_factory=list)  # (R,)
    point: list[int] = field(default_factory=list)  # index of each reading's time point
    tag: list[int] = field(default_factory=list)
    xyz: list[tuple[float, float, float]] = field(default_factory=list)

    def add(self, bin: int, tag: int, xyz: tuple[float, float, float], label: int) -> None:
        """Add a reading at the last time point or a later one."""
        if not self.bins or bin > self.bins[-1]:
            self.bins.append(bin)
            self.classes.append(label)
        else:  # of two labels in one bin, keep the lower
            self.classes[-1] = min(self.classes[-1], label)
        self.point.append(len(self.bins) - 1)
        self.tag.append(tag)
        self.xyz.append(xyz)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the values (R, 12), with readings of a tag in one bin averaged, and their mask."""
        R, tags = len(self.bins), len(TAGS)
        cell = np.array(self.point) * tags + np.array(self.tag)
        count = np.bincount(cell, minlength=R * tags)
        total = np.stack([np.bincount(cell, column, minlength=R * tags) for column in np.array(self.xyz).T], axis=1)
        x = (total / np.maximum(count, 1)[:, None]).reshape(R, 3 * tags).astype(np.float32)
        return x, np.repeat(count > 0, 3).reshape(R, 3 * tags)


def read_rows(
    path: Path, skipped: Counter[str], progress: Progress | None = None
) -> tuple[dict[str, ActivityRecording], int]:
    """Return the recordings by name, and the number of rows, skipped ones included."""
    recordings: dict[str, ActivityRecording] = {}
    rows = 0
    for line in lines_of(path, progress):
        rows += 1
        if reason := _read_row(line.split(","), recordings):
            skipped[reason] += 1
    if not recordings:
        raise UserError(f"{path} is not the official {FILE}: delete it and get it again")
    return recordings, rows


def _read_row(fields: list[str], recordings: dict[str, ActivityRecording]) -> str | None:
    """Add a row to its recording; return the reason if it is skipped."""
    if len(fields) != 8 or not _RECORDING.fullmatch(fields[0]) or not fields[2].isdecimal():
        return MALFORMED
    name, tag, tick, activity = fields[0], fields[1], int(fields[2]), fields[7]
    try:
        x, y, z = (float(number) for number in fields[4:7])
    except ValueError:
        return MALFORMED
    if not all(abs(v) < np.finfo(np.float32).max for v in (x, y, z)):  # False for NaN
        return MALFORMED
    if tag not in _TAG or activity not in CLASS_OF:
        return UNKNOWN
    recording = recordings.get(name)
    bin = 0 if recording is None else round((tick - recording.first) / BIN_TICKS)
    if recording is None:
        recording = recordings[name] = ActivityRecording(tick)
    elif bin < recording.bins[-1]:
        return OUT_OF_ORDER
    recording.add(bin, _TAG[tag], (x, y, z), CLASS_OF[activity])
    return None


def windows(recordings: Mapping[str, ActivityRecording], skipped: Counter[str]) -> SeriesArrays:
    """Cut the recordings into half-overlapping windows of 50 time points; the time of each window starts at 0."""
    ids, group, t, x, m, label = [], [], [], [], [], []
    for name in sorted(recordings):
        recording = recordings[name]
        bins, classes = np.array(recording.bins), np.array(recording.classes, np.int64)
        values, mask = recording.arrays()
        starts = range(0, len(bins) - WINDOW, STRIDE)  # while start + 50 < length
        if not starts:
            skipped[SHORT] += 1
        for start in starts:
            here = slice(start, start + WINDOW)
            ids.append(f"{name}/{start:04d}")
            group.append(int(name[1:]))
            t.append(bins[here] - bins[start])
            x.append(values[here])
            m.append(mask[here])
            label.append(classes[here])
    if not ids:
        raise UserError(f"no recording has more than {WINDOW} time points: get the whole data set")
    times = np.concatenate(t) * BIN_SECONDS
    return SeriesArrays(
        ids=np.array(ids), offsets=np.arange(len(ids) + 1, dtype=np.int64) * WINDOW, t=times.astype(np.float32),
        x=np.concatenate(x), m=np.concatenate(m), label=np.concatenate(label), names=NAMES, classes=CLASSES,
        group=np.array(group, np.int64), unit="s", horizon=float(times.max()),
    )


def read(files: Mapping[str, Path], progress: Progress | None = None) -> ReadResult:
    """Read the windows of the official file, or of a part of it."""
    skipped: Counter[str] = Counter()
    found, rows = read_rows(files[FILE], skipped, progress)
    return ReadResult(windows(found, skipped), skipped, rows)


def recordings(arrays: SeriesArrays) -> int:
    """Count the recordings that the windows come from."""
    return len({name.partition("/")[0] for name in arrays.ids.tolist()})


def describe(arrays: SeriesArrays) -> str:
    """Describe the prepared set in a few words."""
    count = recordings(arrays)
    partial = "" if count >= RECORDINGS else ", a part: results are not comparable with the paper"
    return f"{len(arrays):,} windows of {count} of {RECORDINGS} recordings{partial}"


def load(root: Path, source: SeriesSource | None = None) -> SeriesArrays:
    """Load the prepared windows."""
    return (source or ACTIVITY).load(root)


ACTIVITY = SeriesSource(
    name="activity",
    title="Localization data for person activity",
    # UCI publishes no checksum: the number of rows shows whether a download is complete.
    files=(RemoteFile(FILE, (f"https://archive.ics.uci.edu/ml/machine-learning-databases/00196/{FILE}",)),),
    read=read,
    describe=describe,
    rows=ROWS,
)
