"""Read USHCN daily: five weather variables of 1,114 stations in the United States, observed sporadically over four
years."""

import csv
import io
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from acenode.data.series import ReadResult, SeriesArrays, SeriesSource
from acenode.data.source import Progress, RemoteFile, lines_of
from acenode.data.splits import two_sided
from acenode.errors import UserError

FILE = "small_chunked_sporadic.csv"
VARIABLES = ("PRCP", "SNOW", "SNWD", "TMAX", "TMIN")  # Value_0 to Value_4, as the recipe orders them
_COLUMNS = ["ID", "Time", *(f"{kind}_{k}" for kind in ("Value", "Mask") for k in range(len(VARIABLES)))]
HEADER = ",".join(_COLUMNS)
SERIES = 1_114
REBUILT_SERIES = 1_100  # at least so many in a set that was built again from all station files, see `rebuilt_note`
END = 200.0  # last time of every series, in units of DAYS days
CUT = 150.0  # models read up to this time and forecast what follows
DAYS = 18_627 / 2_500

MALFORMED, NOT_A_NUMBER = "malformed rows", "rows with a value that is not a number"
OUTSIDE, EMPTY = f"rows outside time 0 to {END:g}", "rows with nothing observed"
DUPLICATE = "rows at the same time as an earlier one"

_MASK = {"0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0}


def read(files: Mapping[str, Path], progress: Progress | None = None) -> ReadResult:
    """Read the series of the published file, or of one built from other years or stations.

    Rows are sorted by series and time; of two rows of a series at one time, the first is kept.
    """
    import pandas as pd

    path, skipped = files[FILE], Counter[str]()
    lines = lines_of(path, progress)
    if next(lines, "") != HEADER:
        raise UserError(f"{path} does not begin with {HEADER}: delete it and get it again")
    rows = list(lines)
    complete = "\n".join(row for row in rows if row.count(",") == len(_COLUMNS) - 1)
    table = pd.read_csv(io.StringIO(complete), header=None, names=_COLUMNS, dtype=object, na_filter=False,
                        quoting=csv.QUOTE_NONE, lineterminator="\n")  # fields as text, so that every fault is seen
    skipped[MALFORMED] += len(rows) - len(table)
    number, t = (pd.to_numeric(table[name], errors="coerce").to_numpy(float) for name in ("ID", "Time"))
    mask = np.stack([table[f"Mask_{k}"].str.strip().map(_MASK).to_numpy(float) for k in range(len(VARIABLES))], axis=1)
    values = np.stack([pd.to_numeric(table[f"Value_{k}"], errors="coerce") for k in range(len(VARIABLES))], axis=1)
    m = mask == 1
    x = np.where(m, values, 0.0)
    reasons = {  # the first that applies counts; comparisons with NaN are False
        MALFORMED: (~((number >= 0) & (number < 2**53) & (number == np.floor(number)))
                    | np.isnan(t) | np.isnan(mask).any(axis=1)),
        NOT_A_NUMBER: ~(np.abs(x) < np.finfo(np.float32).max).all(axis=1),
        OUTSIDE: ~((t >= 0) & (t <= END)),
        EMPTY: ~m.any(axis=1),
    }
    usable = np.ones(len(table), bool)
    for reason, found in reasons.items():
        skipped[reason] += int((usable & found).sum())
        usable &= ~found
    if not usable.any():
        raise UserError(f"{path} has no rows that can be used: delete it and get it again")
    number, t, x, m = number[usable].astype(np.int64), t[usable].astype(np.float32), x[usable], m[usable]
    order = np.lexsort((t, number))  # stable
    repeated = np.concatenate([[False], (np.diff(number[order]) == 0) & (np.diff(t[order]) == 0)])
    skipped[DUPLICATE] += int(repeated.sum())
    order = order[~repeated]
    ids, record = np.unique(number[order], return_inverse=True)
    arrays = SeriesArrays.from_points(ids.astype(str), record, t[order], x[order], m[order], VARIABLES, horizon=END)
    if not two_sided(arrays, CUT).any():
        raise UserError(f"{path} has no series with rows on both sides of time {CUT:g}: there is nothing to forecast")
    return ReadResult(arrays, +skipped, len(rows))


def describe(arrays: SeriesArrays) -> str:
    """Describe the prepared set in a few words."""
    words = f"{len(arrays):,} series, {arrays.m.sum():,} observations at {len(arrays.t):,} times"
    if one_sided := int((~two_sided(arrays, CUT)).sum()):
        words += f"; {one_sided:,} used for training only, without rows before or after time {CUT:g}"
    if note := rebuilt_note(arrays):
        words += f"; {note}"
    return words


def is_complete(arrays: SeriesArrays) -> bool:
    """Return True for the published file, or one that was built again from all station files."""
    return len(arrays) >= REBUILT_SERIES


def rebuilt_note(arrays: SeriesArrays) -> str:
    """Describe a complete set that is not the published file; empty for that file.

    Stations are kept by how many of their randomly drawn observations fall after the cut, so that another draw keeps
    a few stations more or less.
    """
    if len(arrays) == SERIES or not is_complete(arrays):
        return ""
    return f"rebuilt from the station files: {len(arrays):,} stations, the published file has {SERIES:,}"


USHCN = SeriesSource(
    name="ushcn",
    title="USHCN daily climate",
    files=(RemoteFile(
        FILE,
        (f"https://raw.githubusercontent.com/edebrouwer/gru_ode_bayes/master/gru_ode_bayes/datasets/Climate/{FILE}",),
        sha256="671eb8d121522e98891c84197742a6c9e9bb5015e42b328a93ebdf2cfd393ecf",
    ),),
    read=read, describe=describe)
