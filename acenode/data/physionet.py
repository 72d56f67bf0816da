"""Read PhysioNet 2012: 41 variables over the first two days of 8,000 stays in intensive care, and for set a which
patients died in hospital."""

from __future__ import annotations

import gzip
import math
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from acenode.data import variables
from acenode.data.series import ReadResult, SeriesArrays, SeriesSource, usable_rows
from acenode.data.source import Progress, RemoteFile, lines_of
from acenode.errors import UserError

if TYPE_CHECKING:
    from pandas import DataFrame

VARIABLES = tuple(variables.PHYSIONET)
CLASSES = ("survived", "died")
HOURS = 48.0
QUANTUM = 0.016  # hours, about one minute: times are rounded to multiples of it
RECORD_HEADER = "Time,Parameter,Value"
OUTCOME_HEADER = "RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death"

_COLUMN = {name: column for column, name in enumerate(VARIABLES)}
_MEMBER = re.compile(r"(?:\./)?set-[ab]/(\d{1,9})\.txt")
_LARGEST = 1 << 20  # bytes of a record; real ones have a few thousand

OVERSIZED = "records that are too large"
UNKNOWN, MALFORMED, NOT_A_NUMBER = "unknown variables", "malformed lines", "values that are not numbers"
OUT_OF_ORDER, EMPTY, DUPLICATE = "times out of order", "empty records", "duplicate records"
OUTCOMES = "malformed outcomes"


def read_records(texts: Mapping[str, str], skipped: Counter[str]) -> DataFrame:
    """Return the usable lines of records by id: time in quanta (tick), index of the variable (column) and value.

    A ValueError names a text that is no record.
    """
    import pandas as pd

    lines = {name: text.splitlines() for name, text in texts.items() if text.strip()}
    for name, own in lines.items():
        if own[0].strip() != RECORD_HEADER:
            raise ValueError(f"record {name} cannot be used (its first line is not {RECORD_HEADER})")
    rows = pd.Series({name: own[1:] for name, own in lines.items()}, dtype=object).explode().dropna().astype(str)
    table = rows[rows.str.strip() != ""].str.split(",", expand=True).reindex(columns=range(4))
    table.columns = ["tick", "variable", "value", "more"]
    whole = table.value.notna() & table.more.isna()
    table["tick"] = table.tick.map({clock: _quanta(clock) for clock in table.tick.unique()})
    table = table[usable_rows({MALFORMED: ~whole | table.tick.isna()}, skipped)]
    table = table[table.variable != "RecordID"]
    table = table.assign(value=table.value.map({text: _number(text) for text in table.value.unique()}),
                         column=table.variable.map(_COLUMN))
    table = table[usable_rows({UNKNOWN: table.column.isna(), NOT_A_NUMBER: table.value.isna()}, skipped)]
    table = table[usable_rows({OUT_OF_ORDER: table.tick < table.groupby(level=0).tick.cummax()}, skipped)]
    skipped[EMPTY] += len(texts) - table.index.nunique()
    return table[["tick", "column", "value"]].astype({"tick": int, "column": int, "value": float})


def _quanta(clock: str) -> int | None:
    """Return HH:MM as a number of quanta; None if it is malformed or after the two days."""
    found = re.fullmatch(r"(\d\d):([0-5]\d)", clock.strip())
    hours = int(found[1]) + int(found[2]) / 60 if found else math.inf
    return round(hours / QUANTUM) if hours <= HOURS else None


def _number(text: str) -> float | None:
    """Return the number, or None if the text is not a finite float32 number."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < np.finfo(np.float32).max else None  # False for NaN


def read_archive(path: Path, skipped: Counter[str], progress: Progress | None = None) -> DataFrame:
    """Read the records of a set from its archive, without extracting it; members with other names are ignored."""
    texts: dict[str, str] = {}
    try:
        for name, text in _members(path, skipped, progress):
            skipped[DUPLICATE] += name in texts
            texts.setdefault(name, text)
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise UserError(f"{path} is incomplete or not the official archive: delete it and get it again") from error
    try:
        records = read_records(texts, skipped)
    except ValueError as error:
        raise UserError(f"{path}: {error}: get the official file") from error
    if not len(records):
        raise UserError(f"{path} has no records in it: delete it and get the official archive")
    return records


def _members(path: Path, skipped: Counter[str], progress: Progress | None) -> Iterator[tuple[str, str]]:
    """Iterate over the ids and texts of the records in an archive, and verify that the archive is complete."""
    size = path.stat().st_size
    with open(path, "rb") as raw, gzip.open(raw, "rb") as stream:
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            for number, member in enumerate(archive):  # in the order of the archive: seeking backwards in gzip is slow
                found = _MEMBER.fullmatch(member.name)
                if found and member.isfile() and member.size > _LARGEST:
                    skipped[OVERSIZED] += 1
                elif found and member.isfile() and (entry := archive.extractfile(member)):
                    yield found[1], entry.read().decode("utf-8", errors="replace")
                if progress is not None and number % 100 == 0:
                    progress(raw.tell(), size, f"reading {path.name}")
            stream.seek(archive.offset)  # where the reader found no further member
        while tail := stream.read(1 << 20):  # to the end of the file, where gzip verifies its checksum
            if any(tail):
                raise tarfile.ReadError("a member is incomplete")
    if progress is not None:
        progress(size, size, f"reading {path.name}")


def read_outcomes(path: Path, skipped: Counter[str]) -> dict[str, float]:
    """Read the outcome of each record by id: 1 if the patient died in hospital, else 0."""
    lines = lines_of(path)
    if next(lines, "") != OUTCOME_HEADER:
        raise UserError(f"{path} does not begin with {OUTCOME_HEADER}: delete it and get the official file")
    width, outcomes = OUTCOME_HEADER.count(",") + 1, {}
    for line in lines:
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == width and fields[0].isdecimal() and fields[-1] in ("0", "1"):
            outcomes[fields[0]] = float(fields[-1])
        else:
            skipped[OUTCOMES] += 1
    return outcomes


def assemble(sets: Sequence[DataFrame], outcomes: Mapping[str, float]) -> SeriesArrays:
    """Join the sets, sorted by id: a row for each time, with readings of one variable at one time averaged.

    Every record begins at time 0. Outcomes belong to the first set; `group` is the index of each record's set.
    """
    group = {name: number for number, records in enumerate(sets) for name in records.index.unique()}
    ids, D, most = sorted(group), len(VARIABLES), round(HOURS / QUANTUM) + 1
    column, value = (np.concatenate([records[name] for records in sets]) for name in ("column", "value"))
    start = {name: i * most for i, name in enumerate(ids)}  # of the ticks of a record in one row of all ticks
    place = np.concatenate([records.tick + records.index.map(start) for records in sets])
    points, row = np.unique(np.concatenate([list(start.values()), place]), return_inverse=True)
    cell = row[len(ids):] * D + column
    count = np.bincount(cell, minlength=len(points) * D)
    mean = np.bincount(cell, value, minlength=len(points) * D) / np.maximum(count, 1)
    owner, tick = np.divmod(points, most)
    label = [outcomes.get(name, math.nan) if group[name] == 0 else math.nan for name in ids]
    return SeriesArrays.from_points(
        ids, owner, tick * QUANTUM, mean.reshape(-1, D), count.reshape(-1, D) > 0, VARIABLES, horizon=HOURS, unit="h",
        label=np.array(label, np.float32), classes=CLASSES, group=np.array([group[name] for name in ids], np.int64))


def read(files: Mapping[str, Path], progress: Progress | None = None) -> ReadResult:
    """Read both sets and the outcomes of set a from the official files."""
    skipped: Counter[str] = Counter()
    outcomes = read_outcomes(files["Outcomes-a.txt"], skipped)
    first, second = (read_archive(files[name], skipped, progress) for name in ("set-a.tar.gz", "set-b.tar.gz"))
    both = second.index.isin(first.index)
    skipped[DUPLICATE] += second.index[both].nunique()
    return ReadResult(assemble([first, second[~both]], outcomes), +skipped)


def describe(arrays: SeriesArrays) -> str:
    first = arrays.group == 0
    unknown = int(np.isnan(arrays.label[first]).sum())
    without = f", {unknown:,} without an outcome," if unknown else ""
    return (f"{len(arrays):,} records, {first.sum():,} of set a with {np.nansum(arrays.label):,.0f} deaths{without} "
            f"and {(~first).sum():,} of set b")


def load_labelled(root: Path) -> SeriesArrays:
    arrays = PHYSIONET.load(root)
    return arrays.take(arrays.group == 0)


PHYSIONET = SeriesSource(
    name="physionet2012",
    title="PhysioNet 2012 intensive care",
    files=tuple(RemoteFile(name, (f"https://physionet.org/files/challenge-2012/1.0.0/{name}?download",),
                           ("sha256", sha256)) for name, sha256 in (
        ("set-a.tar.gz", "8cb250f179cd0952b4b9ebcf8954b63d70383131670fac1cfee13deaa13ca920"),
        ("set-b.tar.gz", "b1637a2a423a8e76f8f087896cfc5fdf28f88519e1f4e874fbda69b2a64dac30"),
        ("Outcomes-a.txt", "2613ea60ccda29f87571a7d6b09ad130858a8ccd66325bd073365925026883c2"))),
    read=read, describe=describe)
