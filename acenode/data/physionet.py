"""Read PhysioNet 2012: 41 variables over the first two days of 8,000 stays in intensive care, and for set a which
patients died in hospital."""

import gzip
import math
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from acenode.data import variables
from acenode.data.series import ReadResult, SeriesArrays, SeriesSource
from acenode.data.source import Progress, RemoteFile, lines_of
from acenode.errors import UserError

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


class Readings(NamedTuple):
    """The readings of a stay in the order of time."""

    tick: list[int]  # times in quanta
    column: list[int]  # index of the variable
    value: list[float]


def read_record(text: str, skipped: Counter[str]) -> Readings | None:
    """Read the lines of a record. Return None if no line can be used; a ValueError says that it is not a record."""
    lines = text.splitlines()
    if not text.strip():
        return None
    if lines[0].strip() != RECORD_HEADER:
        raise ValueError(f"its first line is not {RECORD_HEADER}")
    found, last = Readings([], [], []), 0
    for line in lines[1:]:
        clock, name, number = fields if len(fields := line.split(",")) == 3 else ("", "", "")
        tick = _quanta(clock)
        if tick is None:
            skipped[MALFORMED] += bool(line.strip())
        elif name == "RecordID":
            continue
        elif name not in _COLUMN:
            skipped[UNKNOWN] += 1
        elif (reading := _number(number)) is None:
            skipped[NOT_A_NUMBER] += 1
        elif tick < last:
            skipped[OUT_OF_ORDER] += 1
        else:
            last = tick
            found.tick.append(tick)
            found.column.append(_COLUMN[name])
            found.value.append(reading)
    return found if found.value else None


@lru_cache(maxsize=10_000)
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


def read_archive(path: Path, skipped: Counter[str], progress: Progress | None = None) -> dict[str, Readings]:
    """Read the records of a set by id from its archive, without extracting it; members with other names are ignored."""
    records: dict[str, Readings] = {}
    try:
        for name, text in _members(path, skipped, progress):
            if name in records:
                skipped[DUPLICATE] += 1
                continue
            try:
                record = read_record(text, skipped)
            except ValueError as error:
                raise UserError(f"{path}: record {name} cannot be used ({error}): get the official file") from error
            if record is None:
                skipped[EMPTY] += 1
            else:
                records[name] = record
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise UserError(f"{path} is incomplete or not the official archive: delete it and get it again") from error
    if not records:
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


def assemble(sets: list[dict[str, Readings]], outcomes: Mapping[str, float]) -> SeriesArrays:
    """Join the sets, sorted by id: a row for each time, with readings of one variable at one time averaged.

    Every record begins at time 0. Outcomes belong to the first set; `group` is the index of each record's set.
    """
    found = sorted((name, number) for number, records in enumerate(sets) for name in records)
    records = [sets[number][name] for name, number in found]
    each = [np.unique([0, *record.tick], return_inverse=True) for record in records]
    lengths, readings = [len(ticks) for ticks, _ in each], [len(record.value) for record in records]
    P, D = sum(lengths), len(VARIABLES)
    row = np.concatenate([row[1:] for _, row in each]) + np.repeat(np.cumsum(lengths) - lengths, readings)
    cell = row * D + np.fromiter((i for record in records for i in record.column), np.int64, sum(readings))
    value = np.fromiter((v for record in records for v in record.value), np.float64, sum(readings))
    count = np.bincount(cell, minlength=P * D)
    mean = np.bincount(cell, value, minlength=P * D) / np.maximum(count, 1)
    label = [outcomes.get(name, math.nan) if number == 0 else math.nan for name, number in found]
    return SeriesArrays.from_points(
        [name for name, _ in found], np.repeat(np.arange(len(found)), lengths),
        np.concatenate([ticks * QUANTUM for ticks, _ in each]), mean.reshape(P, D), count.reshape(P, D) > 0, VARIABLES,
        horizon=HOURS, unit="h", label=np.array(label, np.float32), classes=CLASSES,
        group=np.array([number for _, number in found], np.int64))


def read(files: Mapping[str, Path], progress: Progress | None = None) -> ReadResult:
    """Read both sets and the outcomes of set a from the official files."""
    skipped: Counter[str] = Counter()
    outcomes = read_outcomes(files["Outcomes-a.txt"], skipped)
    sets = [read_archive(files[name], skipped, progress) for name in ("set-a.tar.gz", "set-b.tar.gz")]
    for name in sets[0].keys() & sets[1].keys():
        del sets[1][name]
        skipped[DUPLICATE] += 1
    return ReadResult(assemble(sets, outcomes), +skipped)


def describe(arrays: SeriesArrays) -> str:
    """Describe the prepared set in a few words."""
    first = arrays.group == 0
    unknown = int(np.isnan(arrays.label[first]).sum())
    without = f", {unknown:,} without an outcome," if unknown else ""
    return (f"{len(arrays):,} records, {first.sum():,} of set a with {np.nansum(arrays.label):,.0f} deaths{without} "
            f"and {(~first).sum():,} of set b")


def load_labelled(root: Path) -> SeriesArrays:
    """Load the prepared records of set a, which have outcomes."""
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
