"""Read all rows of a table as observations, with errors that name the cell, and cut series into windows.

Many series are split into training, validation and test by series. Few long ones are split by time: the first 64% of
the times are for training, the next 16% for validation and the rest for test, and no window reaches into two of them,
so that the future never leaks.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from acenode.data.importing import cells
from acenode.data.importing.cells import TimeReader
from acenode.data.importing.columns import Columns, split_unit
from acenode.data.importing.table import MAX_CELLS, TableFile
from acenode.data.splits import Parts, record_split, stratified_holdout
from acenode.errors import UserError

MAX_VARIABLES = 200

MIN_SERIES = 20  # series or windows of a set
OVERLAP = 4  # a window begins every quarter of its length, unless given otherwise,
ENOUGH, PLENTY = 200, 5000  # or more or less often, if that makes fewer or more windows than these
MAX_WINDOWS = 200_000
SHARES = (0.64, 0.8)  # of the times: where validation and test begin
SEED = 42  # of the split by series


@dataclass(frozen=True, eq=False)
class Observations:
    """The rows of a table, sorted by series and time."""

    ids: tuple[str, ...]  # the series in the order of their first row
    variables: tuple[str, ...]
    units: tuple[str, ...]
    series: np.ndarray  # (N,) the index of each row's series
    t: np.ndarray  # (N,) times as read: numbers, or seconds since 1970
    x: np.ndarray  # (N, V) with NaN in gaps
    is_date: bool
    names: tuple[str, ...]  # V names of columns, or of variables in a long table, with their units
    labels: tuple[str, ...] = ()  # the class of each series, if there is a column of them

    def pieces(self) -> list[Piece]:
        bounds = pairwise(np.searchsorted(self.series, np.arange(len(self.ids) + 1)))
        return [Piece(self.ids[i], i, self.t[a:b], self.x[a:b]) for i, (a, b) in enumerate(bounds)]


@dataclass(frozen=True, eq=False)
class Piece:
    """A series, or a window of one: t (n,) and x (n, V) with NaN in gaps."""

    id: str
    source: int  # the index of its series
    t: np.ndarray
    x: np.ndarray


def read_observations(table: TableFile, columns: Columns) -> Observations:
    """Read all rows. `columns` are as `checked_columns` returns them. Errors name the row and column of the cell."""
    assert columns.form is not None
    wanted = (columns.value,) if columns.value else columns.variables
    place = {name: i for i, name in enumerate(table.columns)}
    most, time = MAX_CELLS // len(wanted), TimeReader(columns.form)
    rows, which, owner, t, x = array("q"), array("q"), array("q"), array("d"), array("d")
    variables, ids, labels = dict[str, int](), dict[str, int](), dict[int, tuple[int, str]]()
    for row, line in table.rows():
        if columns.variable and columns.variables and not _is_text_of(line[place[columns.variable]], columns.variables):
            continue  # in rows of other variables, only the name of the variable is checked
        if len(rows) == most:
            raise UserError(f"{table.name} has more than {most:,} rows: import at most {MAX_CELLS:,} values, for "
                            "example fewer rows or columns")
        column: str | None = columns.variable
        try:
            variable = cells.required(line[place[column]]) if column else ""
            for column in wanted:
                x.append(cells.number(line[place[column]]))
            column = columns.time
            t.append(time(line[place[column]]))
            column = columns.id
            series = ids.setdefault(cells.required(line[place[column]]) if column else "series", len(ids))
            column = columns.label
            if column and not cells.is_gap(line[place[column]]):
                _add_label(labels, series, row, cells.text(line[place[column]]))
        except ValueError as error:
            raise UserError(f"row {row}, column {column!r}: {error}") from None
        rows.append(row)
        which.append(variables.setdefault(variable, len(variables)))
        owner.append(series)
        if len(variables) > MAX_VARIABLES:
            raise UserError(f"column {columns.variable!r} has more than {MAX_VARIABLES} variables: is it the right "
                            "column? Or choose some of them (--variables)")
    for name in columns.variables if columns.is_long else ():
        if name not in variables:
            raise UserError(f"column {columns.variable!r} has no variable {name!r}: choose others (--variables)")
    if not rows:
        raise UserError(f"{table.name} has no rows with values")
    for id, series in ids.items() if columns.label else ():
        if series not in labels:
            row = rows[owner.index(series)]
            raise UserError(f"row {row}, column {columns.label!r}: series {cells.shown(id)} has no label: fill it in, "
                            "or remove the series")
    names = columns.variables or tuple(variables)
    if len(names) < 2:
        raise UserError(f"attention needs two variables or more, and column {columns.variable!r} has only "
                        f"{names[0]!r}: choose another column")
    order = np.array([names.index(name) if name else 0 for name in variables])  # one entry in a wide table
    arrays = _sorted(np.array(rows), np.array(owner), np.array(t), order[np.array(which)],
                     np.array(x).reshape(-1, len(wanted)), names, columns)
    split = [split_unit(name) for name in names]
    if len({name for name, _ in split}) < len(split):  # equal without their units
        split = [(name, "") for name in names]
    return Observations(tuple(ids), tuple(name for name, _ in split), tuple(unit for _, unit in split), *arrays,
                        time.is_date, names, tuple(labels[i][1] for i in sorted(labels)))


def _add_label(labels: dict[int, tuple[int, str]], series: int, row: int, label: str) -> None:
    """Add the label of a row; all rows of a series that have one must have the same."""
    first, before = labels.setdefault(series, (row, label))
    if label != before:
        raise ValueError(f"the label is {cells.shown(label)}, but {cells.shown(before)} in row {first} of the same "
                         "series: give every series one label")


def _is_text_of(cell: str, wanted: Sequence[str]) -> bool:
    """Return True if a cell has one of these texts, or cannot be read at all."""
    with suppress(ValueError):
        return cells.required(cell) in wanted
    return True


def _sorted(row: np.ndarray, series: np.ndarray, t: np.ndarray, which: np.ndarray, x: np.ndarray,
            names: Sequence[str], columns: Columns) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort by series and time; collect the values of a long table's rows at one time in one row."""
    order = np.lexsort((row, which, t, series))
    row, series, t, which, x = (part[order] for part in (row, series, t, which, x))
    same = (series[1:] == series[:-1]) & (t[1:] == t[:-1])
    for i in np.flatnonzero(same & (which[1:] == which[:-1]))[:1]:
        where = "in the same series" if columns.id else "of the same series (--id names the column of the series)"
        raise UserError(f"row {row[i + 1]}, column {columns.time!r}: row {row[i]} {where} has the same "
                        f"{'time and variable' if columns.is_long else 'time'}: keep one of the two")
    if not columns.is_long:
        return series, t, x
    first = np.concatenate([[True], ~same])
    if (times := int(first.sum())) * len(names) > MAX_CELLS:
        raise UserError(f"the table has {times:,} times of {len(names)} variables: import fewer")
    wide = np.full((times, len(names)), np.nan)
    wide[first.cumsum() - 1, which] = x[:, 0]
    return series[first], t[first], wide


def typical_step(pieces: Sequence[Piece]) -> float:
    return float(np.median(np.concatenate([np.diff(piece.t) for piece in pieces])))


def cut_windows(pieces: Sequence[Piece], length: float, stride: float | None = None) -> tuple[list[Piece], Parts]:
    """Cut series into windows and split them: by time if there are fewer than 20 series, else by series.

    Args:
        length: of a window; it has the times from its start up to, not including, start + length.
        stride: between the starts of two windows; if None, a quarter of the length, less for 200 windows, more for at
            most about 5,000, and at least the typical step.
    """
    if not 0 < length < math.inf:
        raise UserError(f"a window must be longer than 0, not {length:g} (--window)")
    step = typical_step(pieces)
    if length < 2 * step:
        raise UserError(f"a window of {length:g} has fewer than two times, which are {step:g} apart: use a longer one "
                        "(--window)")
    duration = sum(float(piece.t[-1] - piece.t[0]) for piece in pieces)
    if stride is None:
        stride = max(min(length / OVERLAP, duration / ENOUGH), duration / PLENTY, step)
    if not 0 < stride < math.inf:
        raise UserError(f"windows must start more than 0 apart, not {stride:g} (--stride)")
    if duration / stride > MAX_WINDOWS:
        raise UserError(f"that makes {duration / stride:,.0f} windows: use longer windows or strides (--window, "
                        "--stride)")
    if len(pieces) >= MIN_SERIES:
        windows = [window for piece in pieces for window in _windows(piece, piece.t[0], piece.t[-1], length, stride)]
        owner = np.array([window.source for window in windows])
        parts = split_series([piece.id for piece in pieces])
        return windows, Parts(*(np.flatnonzero(np.isin(owner, part)) for part in parts))
    t = np.sort(np.concatenate([piece.t for piece in pieces]))
    bounds = [float(t[0]), *(float(t[int(share * len(t))]) for share in SHARES), float(t[-1])]
    found = [[window for piece in pieces for window in _windows(piece, start, end, length, stride, end == bounds[-1])]
             for start, end in pairwise(bounds)]
    cuts = np.cumsum([len(part) for part in found])
    return [window for part in found for window in part], Parts(*np.split(np.arange(cuts[-1]), cuts[:-1]))


def _windows(piece: Piece, start: float, end: float, length: float, stride: float, last: bool = True) -> list[Piece]:
    """Return the windows between two times; the end itself belongs to the last part only."""
    found, slack = [], 1e-9 * stride
    stop = end + typical_step([piece]) if last else end  # the last row stands for one more step
    for k in range(int((stop - start - length) / stride + 1e-9) + 1 if stop - start >= length - slack else 0):
        begin = start + k * stride
        rows = slice(*np.searchsorted(piece.t, [begin - slack, begin + length - slack]))
        if rows.stop - rows.start >= 2:
            found.append(Piece(f"{piece.id}/{k}", piece.source, piece.t[rows], piece.x[rows]))
    return found


def split_series(ids: Sequence[str], labels: np.ndarray | None = None) -> Parts:
    """Split by series, in proportion to the classes if there are labels: 64%, 16% and 20%."""
    if labels is None:
        return record_split(list(ids), SEED)
    rest, test = stratified_holdout(labels, round(len(ids) / 5), SEED)
    train, validation = stratified_holdout(labels[rest], round(len(rest) / 5), SEED)
    return Parts(rest[train], rest[validation], test)
