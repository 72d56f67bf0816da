"""A set of series whose variables have names: its values in their own units, its parts, and the files it is kept in.

A set is a folder with two files: `set.npz` (arrays, no pickles) and `about.json` (names, units, task).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from acenode.data.folder import disk_error, read_npz, write_npz
from acenode.errors import UserError
from acenode.files import read_json, write_json

Task = Literal["forecast", "fill", "classify"]
PARTS = ("train", "validation", "test")
FORMAT = 1
MAX_VALUES = 500_000_000  # of a stored set, gaps included
FLOOR = 1e-9  # a variable that varies less than this is shifted, not scaled
ROUNDING = 1e-9  # relative, of times
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_TEXTS = ("name", "title", "note", "time_unit", "time_origin", "task")
_ARRAYS = ("ids", "offsets", "t", "values", "mask", "labels", "links", *PARTS)


@dataclass(frozen=True, eq=False)
class Record:
    """One series, or one window of a long series. Values are in their own units and 0 in gaps.

    Args:
        t: (n,) float64, strictly increasing, in the set's unit of time.
        x: (n, V) float64.
        m: (n, V) bool, False in gaps.
    """

    t: np.ndarray
    x: np.ndarray
    m: np.ndarray

    @classmethod
    def from_gaps(cls, t: np.ndarray, x: np.ndarray) -> Record:
        """Return the record of values in which NaN stands for a gap."""
        x = np.ascontiguousarray(x, np.float64)
        m = ~np.isnan(x)
        return cls(np.asarray(t, np.float64), np.where(m, x, 0.0), m)

    def seen(self, given: float) -> np.ndarray:
        """Return which points are given to a forecast, (n,): those less than `given` after the first."""
        return self.t - self.t[0] < given * (1 - ROUNDING)

    def fault(self, variables: int) -> str | None:
        """Describe what is wrong with the arrays, or return None."""
        n = len(self.t)
        if n == 0:
            return "has no points"
        if self.t.shape != (n,) or self.x.shape != (n, variables) or self.m.shape != (n, variables):
            return f"needs t (n,) and x and m (n, {variables}), not {self.t.shape}, {self.x.shape} and {self.m.shape}"
        if self.t.dtype != np.float64 or self.x.dtype != np.float64 or self.m.dtype != bool:
            return "needs t and x of float64 and m of bool"
        if not np.isfinite(self.t).all() or not (np.diff(self.t) > 0).all():
            return "has times that do not increase"
        if not np.isfinite(self.x).all():
            return "has a value that is not a finite number"
        return "has a value other than 0 in a gap" if (self.x[~self.m] != 0).any() else None


@dataclass(frozen=True, eq=False)
class NamedSet:
    """Series of V named variables with their task.

    Args:
        name: lower case letters, digits, - and _: the name of the experiment and of the folder.
        title, note: for people.
        variables: V names.
        units: V units, "" where unknown.
        time_unit: such as "hours".
        time_origin: the ISO date that t = 0 stands for, or "".
        ids: one a series.
        series: the records.
        task: "forecast" what follows the given part, "fill" held-out points, or "classify" the series.
        given: how much time of every series a forecast sees, in units of time; 0 for other tasks.
        labels: (S,) int64, or None.
        classes: the names of the labels.
        parts: indices of the series in "train", "validation" and "test".
        links: (V, V) or None, the known coupling: [i, j] > 0 if variable j drives variable i.

    Raises:
        UserError: the parts do not fit together.
    """

    name: str
    title: str
    note: str
    variables: tuple[str, ...]
    units: tuple[str, ...]
    time_unit: str
    time_origin: str
    ids: tuple[str, ...]
    series: tuple[Record, ...]
    task: Task
    given: float
    parts: Mapping[str, np.ndarray]
    labels: np.ndarray | None = None
    classes: tuple[str, ...] = ()
    links: np.ndarray | None = field(default=None)

    def __post_init__(self) -> None:
        fault = _names_fault(self) or _parts_fault(self) or _task_fault(self)
        if fault:
            raise UserError(f"{self.name or 'the set'} cannot be used: {fault}")

    def __len__(self) -> int:
        return len(self.series)

    @property
    def mean(self) -> np.ndarray:
        """The mean of every variable over the training part's observations, (V,)."""
        return self._moments[0]

    @property
    def std(self) -> np.ndarray:
        """The standard deviation of every variable over the training part's observations, (V,); never 0."""
        return self._moments[1]

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        x = np.concatenate([self.series[i].x for i in self.parts["train"]])
        m = np.concatenate([self.series[i].m for i in self.parts["train"]])
        count = m.sum(0)
        mean = x.sum(0) / count
        std = np.sqrt((np.where(m, x - mean, 0.0) ** 2).sum(0) / count)
        return mean, np.where(std > FLOOR, std, 1.0)

    @cached_property
    def duration(self) -> float:
        """The longest time that a series lasts, in units of time."""
        return max(float(r.t[-1] - r.t[0]) for r in self.series)

    @cached_property
    def fingerprint(self) -> str:
        """A short text that changes with the values, the parts and what is predicted, but not with name or title."""
        found = hashlib.blake2b(digest_size=8)
        found.update(json.dumps([self.variables, self.units, self.time_unit, self.time_origin, self.ids, self.task,
                                 self.given, self.classes]).encode())
        parts = (np.asarray(self.parts[part], np.int64) for part in PARTS)
        for array in (*(x for r in self.series for x in (r.t, r.x, r.m)), *parts, self.labels, self.links):
            if array is not None:
                found.update(f"{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return found.hexdigest()

    def save(self, folder: Path) -> None:
        """Write the set into a folder, which is made if it does not exist."""
        offsets = np.concatenate([[0], np.cumsum([len(r.t) for r in self.series])]).astype(np.int64)
        x, m = np.concatenate([r.x for r in self.series]), np.concatenate([r.m for r in self.series])
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_npz(folder / "set.npz", {
                "ids": np.array(self.ids), "offsets": offsets, "t": np.concatenate([r.t for r in self.series]),
                "values": x[m], "mask": np.packbits(m, axis=1),
                "labels": np.zeros(0, np.int64) if self.labels is None else self.labels,
                "links": np.zeros((0, 0)) if self.links is None else self.links,
                **{part: np.asarray(self.parts[part], np.int64) for part in PARTS}})
            write_json(folder / "about.json", {
                "format": FORMAT, **{key: getattr(self, key) for key in _TEXTS}, "given": self.given,
                "variables": self.variables, "units": self.units, "classes": self.classes}, indent=1)
        except OSError as error:
            raise disk_error(error, folder / "about.json") from error

    @classmethod
    def load(cls, folder: Path) -> NamedSet:
        """Read the set of a folder.

        Raises:
            UserError: a file is missing or damaged.
        """
        try:
            about, stored = read_json(folder / "about.json"), read_npz(folder / "set.npz", _ARRAYS)
            if about["format"] != FORMAT:
                raise ValueError("it was written by another version")
            return cls(**_unpacked(about, stored))
        except OSError as error:
            raise UserError(f"there is no data set in {folder}: import it again") from error
        except (KeyError, TypeError, ValueError, IndexError) as error:
            reason = str(error) if type(error) is ValueError else "its parts do not fit together"
            raise UserError(f"the data set in {folder} cannot be read ({reason}): import it again") from error


def _unpacked(about: Mapping[str, Any], stored: Mapping[str, np.ndarray]) -> dict[str, Any]:
    variables, offsets = tuple(about["variables"]), stored["offsets"]
    if len(stored["mask"]) * len(variables) > MAX_VALUES:
        raise ValueError(f"it claims {len(stored['mask']):,} rows of {len(variables):,} variables, more than "
                         f"{MAX_VALUES:,} values")
    m = np.unpackbits(stored["mask"], axis=1, count=len(variables)).astype(bool)
    x = np.zeros(m.shape)
    x[m] = stored["values"]
    cuts = [slice(int(start), int(end)) for start, end in pairwise(offsets)]
    return {**{key: str(about[key]) for key in _TEXTS}, "given": float(about["given"]), "variables": variables,
            "units": tuple(about["units"]), "classes": tuple(about["classes"]),
            "ids": tuple(str(i) for i in stored["ids"]),
            "series": tuple(Record(stored["t"][cut], x[cut], m[cut]) for cut in cuts),
            "parts": {part: stored[part] for part in PARTS},
            "labels": stored["labels"] if len(stored["labels"]) else None,
            "links": stored["links"] if stored["links"].size else None}


def check_name(name: str) -> str:
    """Return the name of a set, or raise a UserError if it cannot name a folder and an experiment."""
    if not _NAME.fullmatch(name):
        raise UserError(f"{name!r} cannot name a data set: use lower case letters, digits, - and _, at most 64")
    return name


def _names_fault(s: NamedSet) -> str | None:
    check_name(s.name)
    if len(s.variables) < 2:
        return "it needs two variables or more"
    if len(set(s.variables)) != len(s.variables) or not all(s.variables):
        return "every variable needs a name of its own"
    if len(s.units) != len(s.variables):
        return f"it has {len(s.variables)} variables and {len(s.units)} units"
    if len(s.ids) != len(s.series) or len(set(s.ids)) != len(s.ids):
        return "every series needs an id of its own"
    return next((f"series {i} {fault}" for i, r in zip(s.ids, s.series, strict=True)
                 if (fault := r.fault(len(s.variables)))), None)


def _parts_fault(s: NamedSet) -> str | None:
    if set(s.parts) != set(PARTS):
        return f"its parts must be {', '.join(PARTS)}"
    for part in PARTS:
        index = s.parts[part]
        if len(index) == 0:
            return f"the {part} part has no series"
        if index.dtype.kind != "i" or index.min() < 0 or index.max() >= len(s):
            return f"the {part} part has an index that is no series"
    index = np.concatenate([s.parts[part] for part in PARTS])
    if len(np.unique(index)) != len(index):
        return "a series is in two parts"
    observed = np.any([s.series[i].m.any(0) for i in s.parts["train"]], axis=0)
    if not observed.all():
        return f"the training part has no value of {s.variables[int(np.argmin(observed))]}"
    return None


def _task_fault(s: NamedSet) -> str | None:
    if s.task not in get_args(Task):
        return f"its task must be one of {', '.join(get_args(Task))}"
    if s.links is not None and (s.links.shape != (len(s.variables),) * 2 or not np.isfinite(s.links).all()):
        return f"links must be {len(s.variables)} by {len(s.variables)} finite numbers"
    if s.labels is not None and (s.labels.shape != (len(s),) or s.labels.dtype != np.int64
                                 or s.labels.min() < 0 or s.labels.max() >= len(s.classes)):
        return f"every series needs a label of the {len(s.classes)} classes"
    if s.task == "classify":
        if s.labels is None or len(s.classes) < 2:
            return "classification needs a label for every series and two classes or more"
        if len(np.unique(s.labels[s.parts["train"]])) < 2:
            return "all series of the training part have the same label"
    if s.task == "forecast":
        if not s.given > 0:
            return "a forecast needs the time that is given, above 0"
        for part in PARTS:
            if not any(s.series[i].m[~s.series[i].seen(s.given)].any() for i in s.parts[part]):
                return f"no series of the {part} part has a value after the given {s.given:g} {s.time_unit}".rstrip()
    return None
