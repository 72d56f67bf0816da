"""Read PhysioNet 2012: 41 variables over the first two days of 8,000 stays in intensive care, and for set a which
patients died in hospital."""

import gzip
import math
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from acenode.data.download import Progress, RemoteFile
from acenode.data.series import ReadResult, SeriesArrays, SeriesSource
from acenode.errors import UserError

VARIABLES = (
    "Age", "Gender", "Height", "ICUType", "Weight", "Albumin", "ALP", "ALT", "AST", "Bilirubin", "BUN", "Cholesterol",
    "Creatinine", "DiasABP", "FiO2", "GCS", "Glucose", "HCO3", "HCT", "HR", "K", "Lactate", "Mg", "MAP", "MechVent",
    "Na", "NIDiasABP", "NIMAP", "NISysABP", "PaCO2", "PaO2", "pH", "Platelets", "RespRate", "SaO2", "SysABP", "Temp",
    "TroponinI", "TroponinT", "Urine", "WBC",
)
CLASSES = ("survived", "died")
HOURS = 48.0
QUANTUM = 0.016  # hours, about one minute: times are rounded to multiples of it
RECORD_HEADER = "Time,Parameter,Value"
OUTCOME_HEADER = "RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death"

_COLUMN = {name: column for column, name in enumerate(VARIABLES)}
_CLOCK = re.compile(r"(\d\d):([0-5]\d)")
_MEMBER = re.compile(r"(?:\./)?set-[ab]/(\d{1,9})\.txt")
_LARGEST = 1 << 20  # bytes of a record; real ones have a few thousand

OVERSIZED = "records that are too large"
UNKNOWN, MALFORMED, NOT_A_NUMBER = "unknown variables", "malformed lines", "values that are not numbers"
OUT_OF_ORDER, EMPTY, DUPLICATE = "times out of order", "empty records", "duplicate records"
OUTCOMES = "malformed outcomes"


@dataclass(frozen=True)
class PatientRecord:
    """One stay: the time of each row, and the row, variable and value of each reading."""

    t: np.ndarray  # (R,) hours, 0 first
    row: list[int]
    column: list[int]  # index of the variable
    value: list[float]


def read_record(text: str, q: float, skipped: Counter[str]) -> PatientRecord | None:
    """Group the lines of a record into rows of equal rounded time. Return None if no line can be used.

    Raises:
        ValueError: The text is not a record.
    """
    lines = text.splitlines()
    if not lines or not text.strip():
        return None
    if lines[0].strip() != RECORD_HEADER:
        raise ValueError(f"its first line is not {RECORD_HEADER}")
    ticks, row, column, value = [0], [], [], []  # times in quanta; row 0 always exists
    known: dict[str, int | None] = {}
    for line in lines[1:]:
        fields = line.split(",")
        if len(fields) != 3:
            if line.strip():
                skipped[MALFORMED] += 1
            continue
        clock, name, number = fields
        if clock not in known:
            known[clock] = _quanta(clock, q)
        tick = known[clock]
        if tick is None:
            skipped[MALFORMED] += 1
        elif name == "RecordID":
            continue
        elif name not in _COLUMN:
            skipped[UNKNOWN] += 1
        elif (reading := _number(number)) is None:
            skipped[NOT_A_NUMBER] += 1
        elif tick < ticks[-1]:
            skipped[OUT_OF_ORDER] += 1
        else:
            if tick > ticks[-1]:
                ticks.append(tick)
            row.append(len(ticks) - 1)
            column.append(_COLUMN[name])
            value.append(reading)
    return PatientRecord(np.array(ticks) * q, row, column, value) if value else None


def _quanta(clock: str, q: float) -> int | None:
    """Round HH:MM to a multiple of q hours and return the factor; None if it is malformed or after the two days."""
    found = _CLOCK.fullmatch(clock.strip())
    if found is None:
        return None
    hours = int(found[1]) + int(found[2]) / 60
    return round(hours / q) if hours <= HOURS else None


def _number(text: str) -> float | None:
    """Return the number, or None if the text is not a finite float32 number."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < np.finfo(np.float32).max else None  # False for NaN


def read_archive(
    path: Path, q: float = QUANTUM, skipped: Counter[str] | None = None, progress: Progress | None = None
) -> dict[str, PatientRecord]:
    """Read the records of a set by id from its archive, without extracting it; members with other names are ignored."""
    skipped = Counter() if skipped is None else skipped
    records: dict[str, PatientRecord] = {}
    try:
        for name, text in _members(path, skipped, progress):
            if name in records:
                skipped[DUPLICATE] += 1
                continue
            try:
                record = read_record(text, q, skipped)
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


def read_outcomes(path: Path, skipped: Counter[str] | None = None) -> dict[str, float]:
    """Read the outcome of each record by id: 1 if the patient died in hospital, else 0."""
    skipped = Counter() if skipped is None else skipped
    try:
        lines = path.read_bytes().decode("utf-8", errors="replace").splitlines()
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror or error})") from error
    if not lines or lines[0].strip() != OUTCOME_HEADER:
        raise UserError(f"{path} does not begin with {OUTCOME_HEADER}: delete it and get the official file")
    width, outcomes = OUTCOME_HEADER.count(",") + 1, {}
    for line in lines[1:]:
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == width and fields[0].isdecimal() and fields[-1] in ("0", "1"):
            outcomes[fields[0]] = float(fields[-1])
        elif line.strip():
            skipped[OUTCOMES] += 1
    return outcomes


def assemble(sets: list[dict[str, PatientRecord]], outcomes: Mapping[str, float]) -> SeriesArrays:
    """Join the sets, sorted by id. Outcomes belong to the first set; `group` is the index of each record's set."""
    found = sorted((name, number) for number, records in enumerate(sets) for name in records)
    records = [sets[number][name] for name, number in found]
    offsets = np.concatenate([[0], np.cumsum([len(r.t) for r in records])]).astype(np.int64)
    P, D = int(offsets[-1]), len(VARIABLES)
    readings = [len(r.value) for r in records]
    row = np.fromiter((i for r in records for i in r.row), np.int64, sum(readings)) + np.repeat(offsets[:-1], readings)
    cell = row * D + np.fromiter((i for r in records for i in r.column), np.int64, sum(readings))
    value = np.fromiter((v for r in records for v in r.value), np.float64, sum(readings))
    count = np.bincount(cell, minlength=P * D)
    mean = np.bincount(cell, value, minlength=P * D) / np.maximum(count, 1)  # of the readings of one variable in a row
    label = [outcomes.get(name, math.nan) if number == 0 else math.nan for name, number in found]
    return SeriesArrays(
        ids=np.array([name for name, _ in found]), offsets=offsets,
        t=np.concatenate([r.t for r in records]).astype(np.float32),
        x=mean.reshape(P, D).astype(np.float32), m=count.reshape(P, D) > 0,
        label=np.array(label, np.float32), names=VARIABLES, classes=CLASSES,
        group=np.array([number for _, number in found], np.int64), unit="h", horizon=HOURS,
    )


def read(files: Mapping[str, Path], progress: Progress | None = None, q: float = QUANTUM) -> ReadResult:
    """Read both sets and the outcomes of set a from the official files."""
    skipped: Counter[str] = Counter()
    outcomes = read_outcomes(files["Outcomes-a.txt"], skipped)
    sets = [read_archive(files[name], q, skipped, progress) for name in ("set-a.tar.gz", "set-b.tar.gz")]
    for name in sets[0].keys() & sets[1].keys():
        del sets[1][name]
        skipped[DUPLICATE] += 1
    return ReadResult(assemble(sets, outcomes), skipped)


def describe(arrays: SeriesArrays) -> str:
    """Describe the prepared set in a few words."""
    first = arrays.group == 0
    unknown = int(np.isnan(arrays.label[first]).sum())
    without = f", {unknown:,} without an outcome," if unknown else ""
    deaths = f"{np.nansum(arrays.label):,.0f} deaths{without}"
    return f"{len(arrays):,} records, {first.sum():,} of set a with {deaths} and {(~first).sum():,} of set b"


def load(root: Path, sets: str = "ab", source: SeriesSource | None = None) -> SeriesArrays:
    """Load the prepared records of set a, or of both sets."""
    if sets not in ("a", "ab"):
        raise UserError(f"there are the sets a and ab, not {sets!r}")
    arrays = (source or PHYSIONET).load(root)
    return arrays.take(np.flatnonzero(arrays.group == 0)) if sets == "a" else arrays


def _file(name: str, sha256: str) -> RemoteFile:
    return RemoteFile(name, (f"https://physionet.org/files/challenge-2012/1.0.0/{name}?download",), sha256=sha256)


PHYSIONET = SeriesSource(
    name="physionet2012",
    title="PhysioNet 2012 intensive care",
    files=(
        _file("set-a.tar.gz", "8cb250f179cd0952b4b9ebcf8954b63d70383131670fac1cfee13deaa13ca920"),
        _file("set-b.tar.gz", "b1637a2a423a8e76f8f087896cfc5fdf28f88519e1f4e874fbda69b2a64dac30"),
        _file("Outcomes-a.txt", "2613ea60ccda29f87571a7d6b09ad130858a8ccd66325bd073365925026883c2"),
    ),
    read=read,
    describe=describe,
)
