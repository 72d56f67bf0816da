"""Read all rows of a table as observations: the series, time and values of each row, with errors that name the cell."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from acenode.data.importing import cells
from acenode.data.importing.cells import MAX_CELLS
from acenode.data.importing.columns import Columns, split_unit
from acenode.data.importing.table import TableFile
from acenode.data.importing.times import TimeReader
from acenode.errors import UserError

MAX_VARIABLES = 200
ONE_SERIES = "series"  # the id if there is no id column

Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class Observations:
    """The rows of a table, sorted by series and time.

    Args:
        ids: the series in the order of their first row.
        variables, units: V names and units.
        series: (N,) the index of each row's series.
        t: (N,) times as read: numbers, or seconds since 1970.
        x: (N, V) with NaN in gaps.
        is_date: True if times are dates.
        names: V names of columns, or of variables in a long table, with their units.
        labels: the class of each series, empty without a label column.
    """

    ids: tuple[str, ...]
    variables: tuple[str, ...]
    units: tuple[str, ...]
    series: np.ndarray
    t: np.ndarray
    x: np.ndarray
    is_date: bool
    names: tuple[str, ...]
    labels: tuple[str, ...] = ()


@dataclass
class _Rows:
    """What is collected while a table is read."""

    ids: dict[str, int] = field(default_factory=dict)
    labels: dict[int, tuple[str, int]] = field(default_factory=dict)  # of a series: its class, and the row that says it
    series: array = field(default_factory=lambda: array("q"))
    t: array = field(default_factory=lambda: array("d"))
    values: array = field(default_factory=lambda: array("d"))
    rows: array = field(default_factory=lambda: array("q"))


def read_observations(table: TableFile, columns: Columns) -> Observations:
    """Read all rows.

    Args:
        table: the table.
        columns: what its columns mean, as `checked_columns` returns them.

    Raises:
        UserError: a cell is wrong; the message names its row and column.
    """
    assert columns.form is not None
    time = TimeReader(columns.form)
    names, found, which = _read(table, columns, time)
    if not found.t:
        raise UserError(f"{table.name} has no rows with values")
    _check_labels(found, columns)
    series, t, rows = (np.frombuffer(part, kind) for part, kind in
                       ((found.series, np.int64), (found.t, np.float64), (found.rows, np.int64)))
    values = np.frombuffer(found.values, np.float64)
    if which is None:
        series, t, x = _sorted_wide(series, t, rows, values.reshape(len(t), -1), columns)
    else:
        series, t, x = _sorted_long(series, t, rows, values, np.frombuffer(which, np.int64), names, columns)
    labels = tuple(found.labels[i][0] for i in range(len(found.ids))) if columns.label else ()
    split = [split_unit(name) for name in names]
    if len({name for name, _ in split}) < len(split):  # equal without their units
        split = [(name, "") for name in names]
    return Observations(tuple(found.ids), tuple(name for name, _ in split), tuple(unit for _, unit in split), series, t,
                        x, time.is_date, tuple(names), labels)


def _read(table: TableFile, columns: Columns, time: TimeReader) -> tuple[list[str], _Rows, array | None]:
    """Return the variables, the rows, and for a long table the variable of each row."""
    place = {column: i for i, column in enumerate(table.columns)}
    found, names = _Rows(), {name: i for i, name in enumerate(columns.variables)}
    wide = [(place[name], name) for name in columns.variables] if not columns.is_long else []
    which = array("q") if columns.is_long else None
    most = MAX_CELLS // max(1, len(wide))
    for count, (row, line) in enumerate(table.rows(), 1):
        if count > most:
            raise UserError(f"{table.name} has more than {most:,} rows: import at most {MAX_CELLS:,} values, for "
                            "example fewer rows or columns")
        if which is not None:
            assert columns.variable is not None
            assert columns.value is not None
            name = _at(row, columns.variable, _required, line[place[columns.variable]])
            if columns.variables and name not in names:
                continue
            which.append(names.setdefault(name, len(names)))
            if len(names) > MAX_VARIABLES:
                raise UserError(f"column {columns.variable!r} has more than {MAX_VARIABLES} variables: is it the right "
                                "column? Or choose some of them (--variables)")
            found.values.append(_at(row, columns.value, cells.number, line[place[columns.value]]))
        else:
            found.values.extend(_numbers(row, line, wide))
        found.t.append(_at(row, columns.time, time, line[place[columns.time]]))
        series = 0
        if columns.id is None:
            found.ids.setdefault(ONE_SERIES, 0)
        else:
            id = _at(row, columns.id, _required, line[place[columns.id]])
            series = found.ids.setdefault(id, len(found.ids))
        found.series.append(series)
        found.rows.append(row)
        if columns.label is not None:
            _add_label(found, row, columns.label, line[place[columns.label]], series)
    for name in columns.variables if columns.is_long else ():
        if names[name] not in (which or ()):
            raise UserError(f"column {columns.variable!r} has no variable {name!r}: choose others (--variables)")
    return list(names), found, which


def _numbers(row: int, line: list[str], wide: list[tuple[int, str]]) -> list[float]:
    """Return the values of a wide row; a row without gaps takes the short way."""
    try:
        values = [cells.plain_float(line[i]) for i, _ in wide]
        if all(-cells.LARGEST < value < cells.LARGEST for value in values):
            return values
    except ValueError:
        pass
    return [_at(row, name, cells.number, line[i]) for i, name in wide]


def _at(row: int, column: str, read: Callable[[str], Value], cell: str) -> Value:
    try:
        return read(cell)
    except ValueError as error:
        raise UserError(f"row {row}, column {column!r}: {error}") from None


def _required(cell: str) -> str:
    if not cell:
        raise ValueError("the cell is blank: fill it in, or remove the row")
    return cells.text(cell)


def _add_label(found: _Rows, row: int, column: str, cell: str, series: int) -> None:
    if cells.is_gap(cell):
        return
    label = _at(row, column, cells.text, cell)
    before = found.labels.setdefault(series, (label, row))
    if before[0] != label:
        raise UserError(f"row {row}, column {column!r}: the label is {cells.shown(label)}, but "
                        f"{cells.shown(before[0])} in row {before[1]} of the same series: give every series one label")


def _check_labels(found: _Rows, columns: Columns) -> None:
    if columns.label is None:
        return
    for id, series in found.ids.items():
        if series not in found.labels:
            row = found.rows[found.series.index(series)]
            raise UserError(f"row {row}, column {columns.label!r}: series {cells.shown(id)} has no label: fill it in, "
                            "or remove the series")


def _sorted_wide(series: np.ndarray, t: np.ndarray, rows: np.ndarray, x: np.ndarray,
                 columns: Columns) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if x.size > MAX_CELLS:
        raise UserError(f"the table has {x.size:,} values: import at most {MAX_CELLS:,}, for example fewer columns")
    order = np.lexsort((rows, t, series))
    series, t, rows = series[order], t[order], rows[order]
    _refuse_twice((series[1:] == series[:-1]) & (t[1:] == t[:-1]), rows, columns, "time")
    return series, t, x[order]


def _sorted_long(series: np.ndarray, t: np.ndarray, rows: np.ndarray, values: np.ndarray, which: np.ndarray,
                 names: list[str], columns: Columns) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Collect the values of one series and time in one row."""
    if len(names) < 2:
        raise UserError(f"attention needs two variables or more, and column {columns.variable!r} has only "
                        f"{names[0]!r}: choose another column")
    order = np.lexsort((rows, which, t, series))
    series, t, rows, values, which = (part[order] for part in (series, t, rows, values, which))
    same = (series[1:] == series[:-1]) & (t[1:] == t[:-1])
    _refuse_twice(same & (which[1:] == which[:-1]), rows, columns, "time and variable")
    point = np.concatenate([[0], np.cumsum(~same)])
    if (int(point[-1]) + 1) * len(names) > MAX_CELLS:
        raise UserError(f"the table has {point[-1] + 1:,} times of {len(names)} variables: import fewer")
    x = np.full((int(point[-1]) + 1, len(names)), np.nan)
    x[point, which] = values
    first = np.concatenate([[True], ~same])
    return series[first], t[first], x


def _refuse_twice(twice: np.ndarray, rows: np.ndarray, columns: Columns, what: str) -> None:
    if twice.any():
        i = int(np.argmax(twice))
        where = "in the same series" if columns.id else "of the same series (--id names the column of the series)"
        raise UserError(f"row {rows[i + 1]}, column {columns.time!r}: row {rows[i]} {where} has the same {what}: keep "
                        "one of the two")
