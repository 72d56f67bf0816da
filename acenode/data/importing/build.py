"""Make a set of named series of a table: read, check, cut and split it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from acenode.data.importing import cutting, times
from acenode.data.importing.columns import Columns, checked_columns, guess_columns, split_unit
from acenode.data.importing.cutting import MIN_SERIES, Piece
from acenode.data.importing.observations import MAX_VARIABLES, Observations, read_observations
from acenode.data.importing.table import TableFile
from acenode.data.named_set import PARTS, NamedSet, Record, Task, check_name
from acenode.data.splits import Parts
from acenode.errors import UserError

MAX_CLASSES = 20
MIN_OF_CLASS = 5  # series


@dataclass(frozen=True)
class ImportRequest:
    """What is to be made of a table.

    Args:
        name: the name of the set.
        columns: what the columns mean; guessed if None.
        task: forecast, fill or classify; guessed from the label if None.
        given: how much time of each series a forecast sees; half of the typical length if None.
        window: cut series into windows of this length, in units of time; if None, one long series is cut into windows
            of 24 typical steps, and several series are left as they are.
        stride: time between the starts of two windows; chosen if None.
        time_unit: the unit of times; guessed if empty.
        title: for people; the name if empty.
    """

    name: str
    columns: Columns | None = None
    task: Task | None = None
    given: float | None = None
    window: float | None = None
    stride: float | None = None
    time_unit: str = ""
    title: str = ""


@dataclass(frozen=True, eq=False)
class ImportedTable:
    """A set that was made of a table, with what it took to make it."""

    set: NamedSet
    columns: Columns
    window: float | None  # the length of its windows, None if series are whole
    notes: tuple[str, ...]  # what was left out
    ignored: tuple[str, ...] = ()  # columns that are not used


def import_table(table: TableFile, request: ImportRequest) -> ImportedTable:
    """Make a set of a table. Nothing is written.

    Raises:
        UserError: the table cannot be used; the message names the row and column where there is one.
    """
    check_name(request.name)
    head = table.head()
    columns = checked_columns(request.columns or guess_columns(head), head)
    found = read_observations(table, columns)
    _check_values(found)
    unit, origin, scaled = _in_units(found, columns, request.time_unit)
    pieces, notes = _pieces(scaled)
    task = request.task or ("classify" if columns.label else "forecast")
    if task == "classify" and not columns.label:
        raise UserError("classification needs a label for each series: choose the column of the labels (--label)")
    labels, classes = _labels(found, pieces) if task == "classify" else (None, ())
    window = request.window
    if window is None and len(pieces) == 1:
        window = cutting.default_window(pieces)
    if window is not None:
        if task == "classify":
            raise UserError("series with labels are not cut into windows: leave out the window, and give every series "
                            "a label and an id (--id)")
        pieces, parts = cutting.cut_windows(pieces, window, request.stride)
        pieces = _with_start_times(pieces, found, origin, unit)
        _check_count(len(pieces), "window", "give a longer series, or a shorter window (--window)")
    else:
        _check_count(len(pieces), f"series by column {columns.id!r}", "choose the column that names the series "
                     "(--id), cut them into windows (--window), or import more")
        parts = cutting.split_series([piece.id for piece in pieces], labels)
    given = _given(pieces, request.given, window) if task == "forecast" else 0.0
    if task == "forecast":
        pieces, parts, short = _that_can_be_forecast(pieces, parts, given)
        notes += [f"{short:,} {'windows' if window else 'series'} without values before or after the forecast's "
                  "start were left out"] * (short > 0)
        _check_count(len(pieces), "window" if window else "series", "check what is given (--given)")
    _check_training(pieces, parts, found.variables)
    made = NamedSet(
        name=request.name, title=request.title or request.name, note=_note(table, window, unit, notes),
        variables=found.variables, units=found.units, time_unit=unit, time_origin=origin,
        ids=tuple(piece.id for piece in pieces), series=tuple(Record.from_gaps(p.t, p.x) for p in pieces), task=task,
        given=given, labels=labels, classes=classes,
        parts=dict(zip(PARTS, (parts.train, parts.validation, parts.test), strict=True)))
    used = replace(columns, variables=found.names)
    return ImportedTable(made, used, window, tuple(notes), used.unused(head.columns))


def read_series(table: TableFile, columns: Columns, unit: str, origin: str) -> tuple[Observations, list[Piece]]:
    """Read the series of another table with the same columns, in a set's unit and from its origin of time.

    Rows without values stay; labels are not read.
    """
    head = table.head()
    found = read_observations(table, checked_columns(replace(columns, form=None, label=None), head))
    if found.is_date != bool(origin):
        raise UserError(f"column {columns.time!r} has {'dates' if found.is_date else 'numbers'}, but the set has "
                        f"{'dates' if origin else 'numbers'}: write times in the same way")
    if found.is_date:
        start = times.TimeReader("date")(origin)
        found = replace(found, t=(found.t - start) / times.SECONDS[unit])
    return found, cut_by_series(found)


def _in_units(found: Observations, columns: Columns, wanted: str) -> tuple[str, str, Observations]:
    """Return the unit of time, the date of t = 0 or an empty text, and the observations with times in that unit."""
    unit = times.check_unit(wanted)
    if not found.is_date:
        plain, written = split_unit(columns.time)
        return unit or times.unit_in(written) or written or times.unit_in(plain), "", found
    if unit and unit not in times.SECONDS:
        raise UserError(f"dates cannot be counted in {unit!r}: choose one of {', '.join(times.SECONDS)}")
    same = found.series[1:] == found.series[:-1]
    steps = np.diff(found.t)[same]
    unit = unit or times.fitting_unit(float(np.median(steps)) if len(steps) else 1.0)
    start = float(found.t.min())
    return unit, times.date_text(start), replace(found, t=(found.t - start) / times.SECONDS[unit])


def cut_by_series(found: Observations) -> list[Piece]:
    """Return the series."""
    starts = np.searchsorted(found.series, np.arange(len(found.ids) + 1))
    return [Piece(id, i, found.t[a:b], found.x[a:b]) for i, (id, a, b) in
            enumerate(zip(found.ids, starts[:-1], starts[1:], strict=True))]


def _pieces(found: Observations) -> tuple[list[Piece], list[str]]:
    """Return the series with two times or more, without rows in which nothing was observed, and what was left out."""
    observed = ~np.isnan(found.x).all(1)
    pieces = cut_by_series(replace(found, series=found.series[observed], t=found.t[observed], x=found.x[observed]))
    kept = [piece for piece in pieces if len(piece.t) >= 2]
    if not kept:
        raise UserError("no series has two times: choose the column that names the series (--id), or none if all rows "
                        "are one series")
    short = len(pieces) - len(kept)
    return kept, [f"{short:,} series with fewer than two times were left out"] * (short > 0)


def _check_values(found: Observations) -> None:
    if len(found.variables) > MAX_VARIABLES:
        raise UserError(f"the table has {len(found.variables)} variables: choose at most {MAX_VARIABLES} "
                        "(--variables)")
    for i, name in enumerate(found.variables):
        values = found.x[:, i]
        values = values[~np.isnan(values)]
        if not len(values):
            raise UserError(f"column {name!r} has no values: leave it out (--variables)")
        if values.min() == values.max():
            raise UserError(f"column {name!r} has the value {values[0]:g} everywhere: leave it out (--variables)")


def _labels(found: Observations, pieces: Sequence[Piece]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the classes of the series as numbers, and their names in order."""
    own = [found.labels[piece.source] for piece in pieces]
    classes = tuple(sorted(set(own)))
    if len(classes) < 2:
        raise UserError(f"all series have the label {classes[0]!r}: classification needs two classes or more")
    if len(classes) > MAX_CLASSES:
        raise UserError(f"the labels have {len(classes)} classes: use at most {MAX_CLASSES}; is it the right column?")
    rare = min(classes, key=own.count)
    if own.count(rare) < MIN_OF_CLASS:
        raise UserError(f"class {rare!r} has {own.count(rare)} series: every class needs {MIN_OF_CLASS} or more")
    return np.array([classes.index(label) for label in own], np.int64), classes


def _with_start_times(pieces: Sequence[Piece], found: Observations, origin: str, unit: str) -> list[Piece]:
    """Name windows by the series, if there are several, and by the time at which they start."""
    start = times.TimeReader("date")(origin) if origin else 0.0

    def name(piece: Piece) -> str:
        first = float(piece.t[0])
        at = times.date_text(start + first * times.SECONDS[unit]) if origin else f"{first:.10g}"
        return at if len(found.ids) == 1 else f"{found.ids[piece.source]} {at}"

    named = [replace(piece, id=name(piece)) for piece in pieces]
    seen: dict[str, int] = {}
    for i, piece in enumerate(named):  # windows over a gap can begin with the same row
        count = seen[piece.id] = seen.get(piece.id, 0) + 1
        if count > 1:
            named[i] = replace(piece, id=f"{piece.id} ({count})")
    return named


def _check_count(count: int, word: str, advice: str) -> None:
    if count < MIN_SERIES:
        plural = word if word.startswith("series") else f"{word}{'s' * (count != 1)}"
        raise UserError(f"there are {count} {plural}, and {MIN_SERIES} are needed: {advice}")


def _given(pieces: Sequence[Piece], wanted: float | None, window: float | None) -> float:
    """Return how much time a forecast sees: what is wanted, or half of the typical length."""
    length = window or float(np.median([piece.t[-1] - piece.t[0] for piece in pieces]))
    if wanted is None:
        return length / 2
    if not 0 < wanted < max(length, max(float(piece.t[-1] - piece.t[0]) for piece in pieces)):
        raise UserError(f"a forecast sees {wanted:g} of each series, which typically lasts {length:g}: choose a time "
                        "between 0 and that (--given)")
    return wanted


def _that_can_be_forecast(pieces: Sequence[Piece], parts: Parts, given: float) -> tuple[list[Piece], Parts, int]:
    """Return the series with values before and after the start of the forecast, their parts, and how many have not."""
    usable = np.array([0 < np.searchsorted(p.t, p.t[0] + given) < len(p.t) for p in pieces], bool)
    new = np.cumsum(usable) - 1
    kept = Parts(*(new[part[usable[part]]] for part in (parts.train, parts.validation, parts.test)))
    return [p for p, use in zip(pieces, usable, strict=True) if use], kept, int((~usable).sum())


def _check_training(pieces: Sequence[Piece], parts: Parts, variables: Sequence[str]) -> None:
    """Raise an error if a part is empty or a variable does not vary in the training part."""
    for name, part in zip(PARTS, (parts.train, parts.validation, parts.test), strict=True):
        if not len(part):
            raise UserError(f"the {name} part has no series or windows: give more rows, or a shorter window (--window)")
    x = np.concatenate([pieces[i].x for i in parts.train])
    for i, name in enumerate(variables):
        values = x[:, i][~np.isnan(x[:, i])]
        if not len(values) or values.min() == values.max():
            state = f"has the value {values[0]:g} everywhere" if len(values) else "has no values"
            raise UserError(f"variable {name!r} {state} in the training part, the first 64% of the data: leave it out "
                            "(--variables)")


def _note(table: TableFile, window: float | None, unit: str, notes: Sequence[str]) -> str:
    cut = [f"cut into windows of {window:g} {unit}".rstrip()] if window else []
    return "; ".join([f"Imported from {table.name}", *cut, *notes])
