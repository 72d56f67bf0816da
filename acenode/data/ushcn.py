"""Read USHCN daily: five weather variables of 1,114 stations in the United States, observed sporadically over four
years."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from acenode.data.data_source import Progress, RemoteFile
from acenode.data.folds import two_sided
from acenode.data.series import SeriesArrays
from acenode.data.series_source import ReadResult, SeriesSource
from acenode.data.text_lines import lines_of
from acenode.errors import UserError

FILE = "small_chunked_sporadic.csv"
VARIABLES = ("PRCP", "SNOW", "SNWD", "TMAX", "TMIN")  # Value_0 to Value_4, as the recipe orders them
HEADER = ",".join(["ID", "Time", *(f"{kind}_{k}" for kind in ("Value", "Mask") for k in range(len(VARIABLES)))])
SERIES = 1_114
END = 200.0  # last time of every series, in units of DAYS days
CUT = 150.0  # models read up to this time and forecast what follows
DAYS = 18_627 / 2_500

MALFORMED, NOT_A_NUMBER = "malformed rows", "rows with a value that is not a number"
OUTSIDE, EMPTY = f"rows outside time 0 to {END:g}", "rows with nothing observed"
DUPLICATE = "rows at the same time as an earlier one"

_D = len(VARIABLES)
_LARGEST = float(np.finfo(np.float32).max)
_MASK = {"0": False, "1": True, "0.0": False, "1.0": True}

Row = tuple[int, float, list[float], list[bool]]  # series, time, values and mask of the variables


def read_row(line: str) -> Row | str:
    """Parse a row of the file; return the reason if it cannot be used."""
    fields = line.split(",")
    if len(fields) != 2 + 2 * _D:
        return MALFORMED
    try:
        number, time = float(fields[0]), float(fields[1])
        mask = [_MASK[field.strip()] for field in fields[2 + _D:]]
    except (ValueError, KeyError):
        return MALFORMED
    if not 0 <= number < 2**53 or number != int(number) or time != time:
        return MALFORMED
    try:
        values = [float(field) if seen else 0.0 for field, seen in zip(fields[2:], mask, strict=False)]
    except ValueError:
        return NOT_A_NUMBER
    if not all(-_LARGEST < value < _LARGEST for value in values):  # False for NaN
        return NOT_A_NUMBER
    if not 0 <= time <= END:
        return OUTSIDE
    return (int(number), time, values, mask) if any(mask) else EMPTY


def read_rows(path: Path, skipped: Counter[str], progress: Progress | None = None) -> tuple[list[Row], int]:
    """Return the rows that can be used, and the number of all rows."""
    found: list[Row] = []
    lines, rows = lines_of(path, progress), 0
    if next(lines, "") != HEADER:
        raise UserError(f"{path} does not begin with {HEADER}: delete it and get it again")
    for line in lines:
        rows += 1
        row = read_row(line)
        if isinstance(row, str):
            skipped[row] += 1
        else:
            found.append(row)
    if not found:
        raise UserError(f"{path} has no rows that can be used: delete it and get it again")
    return found, rows


def assemble(rows: list[Row], skipped: Counter[str]) -> SeriesArrays:
    """Sort the rows by series and time; of two rows of a series at one time, keep the first."""
    number = np.array([row[0] for row in rows], np.int64)
    t = np.array([row[1] for row in rows], np.float32)
    order = np.lexsort((t, number))  # stable
    number, t = number[order], t[order]
    again = np.zeros(len(order), bool)
    again[1:] = (np.diff(number) == 0) & (np.diff(t) == 0)
    if again.any():
        skipped[DUPLICATE] += int(again.sum())
    order, number, t = order[~again], number[~again], t[~again]
    ids, lengths = np.unique(number, return_counts=True)
    return SeriesArrays(
        ids=ids.astype(str), offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), t=t,
        x=np.array([row[2] for row in rows], np.float32)[order], m=np.array([row[3] for row in rows], bool)[order],
        label=np.full(len(ids), np.nan, np.float32), names=VARIABLES, classes=(), group=np.zeros(len(ids), np.int64),
        unit="", horizon=END,
    )


def read(files: Mapping[str, Path], progress: Progress | None = None) -> ReadResult:
    """Read the series of the published file, or of one built from other years or stations."""
    skipped: Counter[str] = Counter()
    rows, count = read_rows(files[FILE], skipped, progress)
    arrays = assemble(rows, skipped)
    if not two_sided(arrays, CUT).any():
        raise UserError(f"{files[FILE]} has no series with rows on both sides of time {CUT:g}: there is nothing to "
                        "forecast")
    return ReadResult(arrays, skipped, count)


def describe(arrays: SeriesArrays) -> str:
    """Describe the prepared set in a few words."""
    words = f"{len(arrays):,} series, {arrays.m.sum():,} observations at {len(arrays.t):,} times"
    if one_sided := int((~two_sided(arrays, CUT)).sum()):
        words += f"; {one_sided:,} used for training only, without rows before or after time {CUT:g}"
    return words


def load(root: Path, source: SeriesSource | None = None) -> SeriesArrays:
    """Load the prepared series."""
    return (source or USHCN).load(root)


USHCN = SeriesSource(
    name="ushcn",
    title="USHCN daily climate",
    files=(RemoteFile(
        FILE,
        (f"https://raw.githubusercontent.com/edebrouwer/gru_ode_bayes/master/gru_ode_bayes/datasets/Climate/{FILE}",),
        sha256="671eb8d121522e98891c84197742a6c9e9bb5015e42b328a93ebdf2cfd393ecf",
    ),),
    read=read,
    describe=describe,
)
