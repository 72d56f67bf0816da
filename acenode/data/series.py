"""Irregular time series as flat arrays: checks, scaling, the prepared file and its source."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from acenode.data.folder import is_file, read_npz, write_npz
from acenode.data.source import DataSource, Progress, RemoteFile, fetch
from acenode.errors import UserError

FORMAT = 1  # of the prepared file
FLOOR = 1e-6  # variables with a smaller standard deviation are only shifted
UNITS = ("h", "s", "")  # "" if time has no unit
ROUNDING = 1e-9  # relative, of times of named variables


@dataclass(frozen=True, eq=False)
class Record:
    """One irregular series, or one window of a long series."""

    t: np.ndarray  # (n,), strictly increasing
    x: np.ndarray  # (n, V), 0 in gaps
    m: np.ndarray  # (n, V), mask: False or 0 in gaps

    @classmethod
    def from_gaps(cls, t: np.ndarray, x: np.ndarray) -> Record:
        """Return the record of values in which NaN stands for a gap."""
        x = np.ascontiguousarray(x, np.float64)
        m = ~np.isnan(x)
        return cls(np.asarray(t, np.float64), np.where(m, x, 0.0), m)

    def part(self, keep: Any) -> Self:
        return type(self)(self.t[keep], self.x[keep], self.m[keep])

    def seen(self, given: float) -> np.ndarray:
        """Return which points are given to a forecast, (n,): those less than `given` after the first."""
        return self.t - self.t[0] < given * (1 - ROUNDING)

    def faults(self, variables: int) -> Iterator[str]:
        """Describe what is wrong with the arrays of a set of named variables."""
        n = len(self.t)
        if n == 0:
            yield "has no points"
        if self.t.shape != (n,) or self.x.shape != (n, variables) or self.m.shape != (n, variables):
            yield f"needs t (n,) and x and m (n, {variables}), not {self.t.shape}, {self.x.shape} and {self.m.shape}"
        if self.t.dtype != np.float64 or self.x.dtype != np.float64 or self.m.dtype != bool:
            yield "needs t and x of float64 and m of bool"
        if not np.isfinite(self.t).all() or not (np.diff(self.t) > 0).all():
            yield "has times that do not increase"
        if not np.isfinite(self.x).all():
            yield "has a value that is not a finite number"
        if (self.x[~self.m] != 0).any():
            yield "has a value other than 0 in a gap"


@dataclass(frozen=True, eq=False)
class SeriesArrays:
    """Irregular series of N records, one after another: record i has the points offsets[i]:offsets[i+1]."""

    ids: np.ndarray  # (N,) str
    offsets: np.ndarray  # (N+1,) int64
    t: np.ndarray  # (P,) float32 in `unit`, strictly increasing within a record
    x: np.ndarray  # (P, D) float32, raw units, 0 where unobserved
    m: np.ndarray  # (P, D) bool
    label: np.ndarray  # (N,) float32, NaN if unknown; or (P,) int64, one for each time point
    names: tuple[str, ...]  # of the D variables
    classes: tuple[str, ...]
    group: np.ndarray  # (N,) int64, the trial or set of each record; zeros if there is none
    unit: str  # one of UNITS
    horizon: float  # the time every t is divided by before a model sees it
    coupling: np.ndarray | None = None  # (D, D) of a simulated set: [i, j] > 0 where variable j drives variable i

    @classmethod
    def from_points(cls, ids: Sequence[str] | np.ndarray, record: np.ndarray, t: np.ndarray, x: np.ndarray,
                    m: np.ndarray, names: tuple[str, ...], *, horizon: float, unit: str = "",
                    label: np.ndarray | None = None, classes: tuple[str, ...] = (), group: np.ndarray | None = None,
                    coupling: np.ndarray | None = None) -> SeriesArrays:
        """Return the series of points that are sorted by record and time.

        `record` (P,) is the index of each point's record; x may have anything where nothing was observed.
        """
        offsets = np.concatenate([[0], np.cumsum(np.bincount(record, minlength=len(ids)))]).astype(np.int64)
        return cls(np.asarray(ids), offsets, t.astype(np.float32), np.where(m, x, 0).astype(np.float32), m,
                   np.full(len(ids), np.nan, np.float32) if label is None else label, names, classes,
                   np.zeros(len(ids), np.int64) if group is None else group, unit, horizon, coupling)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def pointwise(self) -> bool:
        """True if every time point has a label; False if every record has one."""
        return self.label.dtype.kind == "i"

    def fault(self) -> str | None:
        """Describe what is wrong with the arrays, or return None."""
        N, P, D = len(self.ids), len(self.t), len(self.names)
        expected = {"ids": ("str", (N,)), "offsets": ("int64", (N + 1,)), "t": ("float32", (P,)),
                    "x": ("float32", (P, D)), "m": ("bool", (P, D)), "group": ("int64", (N,)),
                    "label": ("int64", (P,)) if self.pointwise else ("float32", (N,))}
        for name, (kind, shape) in expected.items():
            array = getattr(self, name)
            if array.shape != shape or (array.dtype.kind != "U" if kind == "str" else array.dtype != kind):
                return f"{name} is {array.dtype} {array.shape}, where {kind} {shape} belongs"
        if self.coupling is not None and self.coupling.shape != (D, D):
            return f"coupling is {self.coupling.shape}, where {(D, D)} belongs"
        if self.offsets[0] != 0 or self.offsets[-1] != P or (np.diff(self.offsets) < 1).any():
            return "offsets do not cut the points into records"
        if len(np.unique(self.ids)) != N:
            return "two records have the same id"
        steps = np.diff(self.t)
        steps[self.offsets[1:-1] - 1] = 1.0  # steps between records do not count
        if not (steps > 0).all() or not np.isfinite(self.t).all():  # False for NaN
            return "times do not increase within a record"
        if self.unit not in UNITS or not 0 < self.horizon < np.inf:
            return f"the horizon is {self.horizon} {self.unit}".rstrip()
        if P and (self.t.min() < 0 or self.t.max() > self.horizon * (1 + 1e-6)):
            return f"times leave 0 to {self.horizon:g} {self.unit}".rstrip()
        if not np.isfinite(self.x).all():
            return "a value is not a number"
        if (self.x[~self.m] != 0).any():
            return "an unobserved value is not 0"
        known = self.label if self.pointwise else self.label[~np.isnan(self.label)]
        if ((known < 0) | (known >= len(self.classes)) | (known != np.rint(known))).any():
            return f"a label is none of the {len(self.classes)} classes"
        return None

    def points(self, i: int) -> slice:
        return slice(int(self.offsets[i]), int(self.offsets[i + 1]))

    def take(self, indices: np.ndarray) -> SeriesArrays:
        """Return the records at these indices, in this order."""
        indices = np.arange(len(self))[indices]
        lengths = np.diff(self.offsets)[indices]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        points = np.arange(offsets[-1]) + np.repeat(self.offsets[indices] - offsets[:-1], lengths)
        return replace(self, ids=self.ids[indices], offsets=offsets, t=self.t[points], x=self.x[points],
                       m=self.m[points], label=self.label[points if self.pointwise else indices],
                       group=self.group[indices])


def save(path: Path, arrays: SeriesArrays, notes: Mapping[str, Any] | None = None) -> None:
    """Write the series as one npz file: only observed values, the mask as bits, names and `notes` as JSON."""
    about = {"format": FORMAT, "names": arrays.names, "classes": arrays.classes, "unit": arrays.unit,
             "horizon": arrays.horizon, "notes": dict(notes or {})}
    write_npz(path, {
        "ids": arrays.ids, "offsets": arrays.offsets, "t": arrays.t, "values": arrays.x[arrays.m],
        "mask": np.packbits(arrays.m, axis=1), "label": arrays.label, "group": arrays.group,
        "coupling": np.zeros((0, 0)) if arrays.coupling is None else arrays.coupling,
        "about": np.array(json.dumps(about, allow_nan=False))})


def load(path: Path) -> tuple[SeriesArrays, dict[str, Any]]:
    """Read the series and notes of a file. A ValueError says what is wrong with the file."""
    stored = read_npz(path, ("ids", "offsets", "t", "values", "mask", "label", "group", "coupling", "about"))
    try:
        about = json.loads(str(stored["about"]))
        version, notes, names = about["format"], dict(about["notes"]), tuple(about["names"])
        m = np.unpackbits(stored["mask"], axis=1, count=len(names)).astype(bool)
        x = np.zeros(m.shape, np.float32)
        x[m] = stored["values"]
        arrays = SeriesArrays(stored["ids"], stored["offsets"], stored["t"], x, m, stored["label"], names,
                              tuple(about["classes"]), stored["group"], about["unit"], float(about["horizon"]),
                              stored["coupling"] if stored["coupling"].size else None)
        fault = arrays.fault()
    except (KeyError, TypeError, ValueError, IndexError) as error:  # the file was not written by `save`
        raise ValueError("its arrays do not fit together") from error
    if version != FORMAT:
        raise ValueError("it was prepared by another version")
    if fault:
        raise ValueError(fault)
    return arrays, notes


@dataclass(frozen=True, eq=False)
class Scale:
    """x' = (x − shift) / scale for each variable."""

    shift: np.ndarray  # (D,) float32
    scale: np.ndarray  # (D,) float32, never 0

    def apply(self, x: np.ndarray, m: np.ndarray) -> np.ndarray:
        """Scale x (…, D); unobserved values stay 0."""
        return np.where(m, (x - self.shift) / self.scale, np.float32(0)).astype(np.float32)

    def invert(self, x: np.ndarray) -> np.ndarray:
        return (x * self.scale + self.shift).astype(np.float32)

    @classmethod
    def comparable(cls, x: np.ndarray, m: np.ndarray) -> Scale:
        """Scale to (x − min) / max of all observed values: divided by the maximum, not the range, as in the published
        results."""
        seen = m.any(axis=0)
        low = np.where(seen, np.where(m, x, np.inf).min(axis=0, initial=np.inf), 0.0)
        high = np.where(seen, np.where(m, x, -np.inf).max(axis=0, initial=-np.inf), 0.0)
        return cls(low.astype(np.float32), np.where(high == 0, 1.0, high).astype(np.float32))

    @classmethod
    def standard(cls, x: np.ndarray, m: np.ndarray) -> Scale:
        """Scale to mean 0 and standard deviation 1 of the observed values; fit it on training records only."""
        count = np.maximum(m.sum(axis=0), 1)
        mean = np.where(m, x, 0.0).sum(axis=0, dtype=np.float64) / count
        spread = np.sqrt(np.where(m, (x - mean) ** 2, 0.0).sum(axis=0, dtype=np.float64) / count)
        return cls(mean.astype(np.float32), np.where(spread < FLOOR, 1.0, spread).astype(np.float32))


@dataclass(frozen=True)
class ReadResult:
    """The arrays in official files, and how many lines or records were skipped for which reason."""

    arrays: SeriesArrays
    skipped: Counter[str]
    rows: int = 0  # all rows, skipped ones included, if their number shows that a file is complete


@dataclass(frozen=True)
class SeriesSource(DataSource[SeriesArrays]):
    """One set of series. `rows` is the number of rows of a complete download, for files without a checksum."""

    files: tuple[RemoteFile, ...]
    read: Callable[[Mapping[str, Path], Progress | None], ReadResult]
    describe: Callable[[SeriesArrays], str]
    rows: int | None = None

    def _places(self, root: Path) -> dict[str, Path]:
        return {file.name: root / self.name / file.name for file in self.files}

    def _missing(self, root: Path) -> str:
        here = all(is_file(place) for place in self._places(root).values())
        return "downloaded, but not prepared yet" if here else "not downloaded yet"

    def _make(self, root: Path, downloads: Path, progress: Progress | None) -> None:
        """Read the files in `root/name/`, and download those that are missing."""
        places = self._places(root)
        for file in self.files:
            if not is_file(places[file.name]):
                places[file.name] = fetch(file, downloads / file.name, progress)
        reading = self.read(places, progress)
        downloaded = any(place.parent == downloads for place in places.values())
        if self.rows is not None and downloaded and reading.rows < self.rows:
            raise UserError(f"the download for {self.name} is incomplete ({reading.rows:,} of {self.rows:,} rows): "
                            "try again later")
        if fault := reading.arrays.fault():
            raise UserError(f"the files of {self.name} cannot be used ({fault}): get the official ones")
        save(self.path(root), reading.arrays, {"skipped": reading.skipped})

    def _read(self, path: Path) -> tuple[SeriesArrays, str]:
        arrays, notes = load(path)
        skipped = ", ".join(f"{count:,} {what}" for what, count in notes.get("skipped", {}).items() if count)
        return arrays, self.describe(arrays) + (f"; skipped: {skipped}" if skipped else "")
