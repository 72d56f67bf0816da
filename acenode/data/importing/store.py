"""The imported sets in the data folder: write, list, rename and delete them, and summarise them for people.

    <data folder>/imported/<name>/set.npz, about.json   the set
                                  import.json           how it was made of its file
                                  original.csv          the file itself, if it was to be kept

A set is written into a folder with another name and renamed, so that it is there completely or not at all.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from acenode.data.folder import disk_error, locked
from acenode.data.importing.build import ImportedTable
from acenode.data.importing.cells import SECONDS, TimeReader, date_text
from acenode.data.importing.columns import Columns
from acenode.data.importing.table import TableFile
from acenode.data.named_set import PARTS, NamedSet, check_name
from acenode.data.series import Record
from acenode.errors import UserError
from acenode.files import read_json, write_json

FOLDER = "imported"
DETAILS = "import.json"
FORMAT = 1
MAX_NAME = 40  # characters: names of studies begin with that of their set
_PART = ".part"
EXAMPLES = 6  # series to draw


@dataclass(frozen=True)
class StoredSet:
    name: str
    path: Path
    set: NamedSet | None
    error: str = ""


@dataclass(frozen=True)
class ImportDetails:
    """How a set was made of its file."""

    columns: Columns
    window: float | None  # the length of its windows, None if series are whole
    notes: tuple[str, ...]


class ImportedSets:
    """The imported sets of a data folder; `reserved` returns names that they cannot have, such as of experiments."""

    def __init__(self, root: Path, reserved: Callable[[], frozenset[str]] = frozenset) -> None:
        self.folder, self.reserved = root / FOLDER, reserved

    def path(self, name: str) -> Path:
        return self.folder / check_name(name)

    def names(self) -> list[str]:
        return sorted(path.parent.name for path in self.folder.glob("[!.]*/about.json"))

    def exists(self, name: str) -> bool:
        return name in self.names()

    def load(self, name: str) -> NamedSet:
        return NamedSet.load(self.require(name))

    def list(self) -> list[StoredSet]:
        found = []
        for name in self.names():
            try:
                found.append(StoredSet(name, self.path(name), self.load(name)))
            except UserError as error:
                found.append(StoredSet(name, self.folder / name, None, str(error)))
        return found

    def details(self, name: str) -> ImportDetails:
        """Return how a set was made of its file, to read another file in the same way."""
        path = self.require(name) / DETAILS
        try:
            values: dict[str, Any] = read_json(path)
            columns = Columns(**{**values["columns"], "variables": tuple(values["columns"]["variables"])})
            return ImportDetails(columns, values["window"], tuple(values["notes"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} cannot be read: import the file again") from error

    def check_free(self, name: str) -> None:
        check_name(name)
        if name in self.reserved():
            raise UserError(f"{name!r} is the name of an experiment, or of a set that runs were trained on: choose "
                            "another one")
        if len(name) > MAX_NAME:
            raise UserError(f"{name!r} has {len(name)} characters: use at most {MAX_NAME}")
        if self.path(name).exists():
            raise UserError(f"there is a set {name!r} already: choose another name, or delete it with "
                            f"`acenode data delete {name}`")

    def write(self, made: ImportedTable, original: TableFile | None = None) -> Path:
        """Write a set, and its original file if that is to be kept; nothing is left if that fails."""
        details = {"format": FORMAT, "columns": asdict(made.columns), "window": made.window, "notes": list(made.notes)}
        with self._new(made.set.name) as part:
            made.set.save(part)
            write_json(part / DETAILS, details, indent=1)
            if original is not None:
                ending = "parquet" if original.is_parquet else "csv"
                with original.open() as source, open(part / f"original.{ending}", "xb") as target:
                    shutil.copyfileobj(source, target)
        return self.path(made.set.name)

    def rename(self, name: str, new: str) -> Path:
        """Rename a set. Runs that were trained on it keep the old name and cannot be resumed."""
        with self._locked():
            loaded = self.load(name)
        title = new if loaded.title == name else loaded.title
        with self._new(new) as part:
            shutil.copytree(self.path(name), part)
            replace(loaded, name=new, title=title).save(part)
        self.delete(name)
        return self.path(new)

    def delete(self, name: str) -> None:
        """Delete a set with its folder; runs that were trained on it stay."""
        with self._locked():
            path, part = self.require(name), self._part(name)
            try:
                path.rename(part)  # gone at once, however long it takes to delete its files
                shutil.rmtree(part)
            except OSError as error:
                raise UserError(f"{path} cannot be deleted ({error.strerror or error})") from error

    @contextmanager
    def _new(self, name: str) -> Iterator[Path]:
        """Make a folder for a new set, which gets its name at the end."""
        with self._locked():
            self.check_free(name)
            part = self._part(name)
            try:
                yield part
                part.rename(self.path(name))
            except OSError as error:
                raise disk_error(error, self.path(name)) from error
            finally:
                shutil.rmtree(part, ignore_errors=True)

    def _part(self, name: str) -> Path:
        return self.folder / f".{name}.{secrets.token_hex(4)}{_PART}"

    def require(self, name: str) -> Path:
        if self.exists(name):
            return self.path(name)
        known = f"choose one of {', '.join(self.names())}" if self.names() else (
            "there are none yet, see `acenode data import --help`")
        raise UserError(f"there is no imported set {name!r}: {known}")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the folder's lock; remove what a killed process left."""
        with locked(self.folder.parent / f".{FOLDER}.lock"):
            for part in self.folder.glob(f".*{_PART}"):
                with contextlib.suppress(OSError):
                    shutil.rmtree(part)
            yield


@dataclass(frozen=True)
class VariableSummary:
    name: str
    unit: str
    observed: int
    gaps: float  # share of the times at which it has no value
    low: float
    mean: float
    high: float


@dataclass(frozen=True)
class SetSummary:
    series: int
    parts: dict[str, int]  # number of series by part
    times: int  # of all series; overlapping windows count the same time several times
    values: int
    gaps: float  # share of values that are missing
    typical_times: int  # of one series
    typical_length: float  # in units of time
    step: float  # median time between two rows
    variables: tuple[VariableSummary, ...]
    classes: dict[str, int]  # number of series by class
    examples: tuple[int, ...]  # indices of series to draw, of all parts


def summarise(found: NamedSet) -> SetSummary:
    x, m = found.observations()
    lengths = [len(record.t) for record in found.series]
    steps = [np.diff(record.t) for record in found.series if len(record.t) > 1]
    variables = tuple(
        VariableSummary(name, unit, len(own), float(1 - seen.mean()), float(own.min()), float(own.mean()),
                        float(own.max()))
        for name, unit, values, seen in zip(found.variables, found.units, x.T, m.T, strict=True)
        for own in (values[seen],))
    return SetSummary(
        series=len(found), parts={part: len(found.parts[part]) for part in PARTS}, times=len(x), values=int(m.sum()),
        gaps=float(1 - m.mean()), typical_times=int(np.median(lengths)),
        typical_length=float(np.median([record.t[-1] - record.t[0] for record in found.series])),
        step=float(np.median(np.concatenate(steps))) if steps else 0.0, variables=variables,
        classes={} if found.labels is None else {
            name: int((found.labels == i).sum()) for i, name in enumerate(found.classes)},
        examples=tuple(int(i) for i in np.unique(np.linspace(0, len(found) - 1, min(EXAMPLES, len(found))).round())))


def summary_text(summary: SetSummary, time_unit: str, *, windows: bool = False) -> str:
    """Say in one line how large a set is: `240 series of about 24 times in 23 hours, 5 variables, 4% gaps`."""
    share = 100 * summary.gaps
    gaps = "no gaps" if share == 0 else f"{share:.0f}% gaps" if share >= 1 else f"{share:.1g}% gaps"
    length = f"{summary.typical_length:,.4g} {time_unit}".rstrip()
    what = "windows" if windows else "series"
    return (f"{summary.series:,} {what} of about {summary.typical_times:,} times in {length}, "
            f"{len(summary.variables)} variables, {gaps}")


def windows_text(found: NamedSet, length: float) -> str:
    """Say how the windows of a set, of this length, overlap, and that they are not as many independent series."""
    starts = np.array([record.t[0] for record in found.series])
    steps = np.concatenate([np.diff(starts[part]) for part in found.parts.values()])
    steps = steps[steps > 0]
    stride = float(np.median(steps)) if len(steps) else length
    times = round(length / stride)
    long = f"A window is {_amount(length, found.time_unit)} long"
    if times < 2:
        return f"{long}, and windows do not overlap."
    later, count = _amount(stride, found.time_unit), f"{len(found):,}"
    return (f"{long} and the next one starts {later} later, so windows overlap: most rows of the file are in about "
            f"{times} windows, and {count} windows are not {count} independent series.")


def split_text(found: NamedSet, *, windows: bool) -> str:
    """Say how a set, whose series may be windows of longer ones, is split into training, validation and test."""
    train, test = ([found.series[i] for i in found.parts[part]] for part in ("train", "test"))
    if windows and max(record.t[-1] for record in train) < min(record.t[0] for record in test):
        return ("Split by time: the first 64% of the time is for training, the next 16% for validation, the latest 20% "
                "for test. No window reaches into two parts, so models are tested on times after all that they saw.")
    whole = ": all windows of a series are in the same part" if windows else ""
    classes = ", in proportion to the classes" if found.labels is not None else ""
    return f"Split by series: 64% for training, 16% for validation, 20% for test, at random{classes}{whole}."


def _amount(time: float, unit: str) -> str:
    number = f"{time:.4g}"
    return f"{number} {unit[:-1] if number == '1' and unit in SECONDS else unit}".rstrip()


def plain_times(found: NamedSet, record: Record) -> list[str] | list[float]:
    """Return the times of a record for people: dates if the set has dates, else numbers in its unit."""
    if not found.time_origin or found.time_unit not in SECONDS:
        return [float(t) for t in record.t]
    start = TimeReader("date")(found.time_origin)
    return [date_text(start + t * SECONDS[found.time_unit]) for t in record.t]
