"""Make a set of named series of a table: read, check, cut and split it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from acenode.data.importing import cells, observations
from acenode.data.importing.columns import Columns, checked_columns, guess_columns, split_unit
from acenode.data.importing.observations import MAX_VARIABLES, MIN_SERIES, Observations, Piece, read_observations
from acenode.data.importing.table import TableFile
from acenode.data.named_set import NamedSet, Task, check_name
from acenode.data.series import Record
from acenode.data.splits import Parts
from acenode.errors import UserError

MAX_CLASSES = 20
MIN_OF_CLASS = 5  # series


@dataclass(frozen=True)
class ImportRequest:
    """What is to be made of a table; what is not given is guessed from the table.

    `window` is the length in units of time of the windows that series are cut into. If None, one long series is cut
    into windows of 24 typical steps, and several series are left as they are.
    """

    name: str
    columns: Columns | None = None
    task: Task | None = None
    given: float | None = None  # how much time of each series a forecast sees; half of the typical length if None
    window: float | None = None
    stride: float | None = None  # time between the starts of two windows
    time_unit: str = ""
    title: str = ""  # for people; the name if empty


@dataclass(frozen=True, eq=False)
class ImportedTable:
    """A set that was made of a table, with what it took to make it."""

    set: NamedSet
    columns: Columns
    window: float | None  # the length of its windows, None if series are whole
    notes: tuple[str, ...]  # what was left out
    ignored: tuple[str, ...] = ()  # columns that are not used


def import_table(table: TableFile, request: ImportRequest) -> ImportedTable:
    """Make a set of a table. Nothing is written. Errors name the row and column where there is one."""
    check_name(request.name)
    head = table.head()
    columns = checked_columns(request.columns or guess_columns(head), head)
    found = read_observations(table, columns)
    if len(found.variables) > MAX_VARIABLES:
        raise UserError(f"the table has {len(found.variables)} variables: choose at most {MAX_VARIABLES} "
                        "(--variables)")
    for name, values in zip(found.variables, found.x.T, strict=True):
        if state := _constant(values):
            raise UserError(f"column {name!r} {state}: leave it out (--variables)")
    unit, origin, scaled = _in_units(found, columns, request.time_unit)
    pieces, notes = _pieces(scaled)
    task = request.task or ("classify" if columns.label else "forecast")
    if task == "classify" and not columns.label:
        raise UserError("classification needs a label for each series: choose the column of the labels (--label)")
    labels, classes = _labels(found, pieces) if task == "classify" else (None, ())
    window = request.window
    if window is None and len(pieces) == 1:  # 24 typical steps, fewer if the series is short
        window = observations.typical_step(pieces) * min(24, max(4, len(pieces[0].t) // 12))
    if window is not None:
        if task == "classify":
            raise UserError("series with labels are not cut into windows: leave out the window, and give every series "
                            "a label and an id (--id)")
        pieces, parts = observations.cut_windows(pieces, window, request.stride)
        pieces = _with_start_times(pieces, found, origin, unit)
        _check_count(len(pieces), "window", "give a longer series, or a shorter window (--window)")
    else:
        _check_count(len(pieces), f"series by column {columns.id!r}", "choose the column that names the series "
                     "(--id), cut them into windows (--window), or import more")
        parts = observations.split_series([piece.id for piece in pieces], labels)
    given = 0.0
    if task == "forecast":
        lengths = [float(piece.t[-1] - piece.t[0]) for piece in pieces]
        length = window or float(np.median(lengths))
        given = length / 2 if request.given is None else request.given
        if not 0 < given < max(length, *lengths):
            raise UserError(f"a forecast sees {given:g} of each series, which typically lasts {length:g}: choose a "
                            "time between 0 and that (--given)")
        usable = np.array([0 < np.searchsorted(p.t, p.t[0] + given) < len(p.t) for p in pieces], bool)
        new, short = np.cumsum(usable) - 1, int((~usable).sum())
        pieces, parts = [pieces[i] for i in np.flatnonzero(usable)], Parts(*(new[p[usable[p]]] for p in parts))
        notes += [f"{short:,} {'windows' if window else 'series'} without values before or after the forecast's "
                  "start were left out"] * (short > 0)
        _check_count(len(pieces), "window" if window else "series", "check what is given (--given)")
    for name, part in parts._asdict().items():
        if not len(part):
            raise UserError(f"the {name} part has no series or windows: give more rows, or a shorter window (--window)")
    for name, values in zip(found.variables, np.concatenate([pieces[i].x for i in parts.train]).T, strict=True):
        if state := _constant(values):
            raise UserError(f"variable {name!r} {state} in the training part, the first 64% of the data: leave it out "
                            "(--variables)")
    cut = [f"cut into windows of {window:g} {unit}".rstrip()] if window else []
    made = NamedSet(
        name=request.name, title=request.title or request.name,
        note="; ".join([f"Imported from {table.name}", *cut, *notes]), variables=found.variables, units=found.units,
        time_unit=unit, time_origin=origin, ids=tuple(piece.id for piece in pieces),
        series=tuple(Record.from_gaps(p.t, p.x) for p in pieces), task=task, given=given, labels=labels,
        classes=classes, parts=parts._asdict())
    used = replace(columns, variables=found.names)
    return ImportedTable(made, used, window, tuple(notes), used.unused(head.columns))


def read_series(table: TableFile, columns: Columns, unit: str, origin: str) -> tuple[Observations, list[Piece]]:
    """Read the series of another table with the same columns, in a set's unit and from its origin of time.

    Rows without values stay; labels are not read.
    """
    found = read_observations(table, checked_columns(replace(columns, form=None, label=None), table.head()))
    if found.is_date != bool(origin):
        raise UserError(f"column {columns.time!r} has {'dates' if found.is_date else 'numbers'}, but the set has "
                        f"{'dates' if origin else 'numbers'}: write times in the same way")
    if found.is_date:
        found = replace(found, t=(found.t - cells.TimeReader("date")(origin)) / cells.SECONDS[unit])
    return found, found.pieces()


def _in_units(found: Observations, columns: Columns, wanted: str) -> tuple[str, str, Observations]:
    """Return the unit of time, the date of t = 0 or an empty text, and the observations with times in that unit."""
    unit = cells.check_unit(wanted)
    if not found.is_date:
        plain, written = split_unit(columns.time)
        return unit or cells.unit_in(written) or written or cells.unit_in(plain), "", found
    if unit and unit not in cells.SECONDS:
        raise UserError(f"dates cannot be counted in {unit!r}: choose one of {', '.join(cells.SECONDS)}")
    steps = np.diff(found.t)[found.series[1:] == found.series[:-1]]
    unit = unit or cells.fitting_unit(float(np.median(steps)) if len(steps) else 1.0)
    start = float(found.t.min())
    return unit, cells.date_text(start), replace(found, t=(found.t - start) / cells.SECONDS[unit])


def _pieces(found: Observations) -> tuple[list[Piece], list[str]]:
    """Return the series with two times or more, without rows in which nothing was observed, and what was left out."""
    observed = ~np.isnan(found.x).all(1)
    pieces = replace(found, series=found.series[observed], t=found.t[observed], x=found.x[observed]).pieces()
    kept = [piece for piece in pieces if len(piece.t) >= 2]
    if not kept:
        raise UserError("no series has two times: choose the column that names the series (--id), or none if all rows "
                        "are one series")
    short = len(pieces) - len(kept)
    return kept, [f"{short:,} series with fewer than two times were left out"] * (short > 0)


def _constant(values: np.ndarray) -> str:
    """Say that there are no values, or only one; an empty text if they vary."""
    values = values[~np.isnan(values)]
    if not len(values):
        return "has no values"
    return "" if values.min() < values.max() else f"has the value {values[0]:g} everywhere"


def _labels(found: Observations, pieces: Sequence[Piece]) -> tuple[np.ndarray, tuple[str, ...]]:
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
    start = cells.TimeReader("date")(origin) if origin else 0.0
    named, seen = [], dict[str, int]()
    for piece in pieces:
        first = float(piece.t[0])
        name = cells.date_text(start + first * cells.SECONDS[unit]) if origin else f"{first:.10g}"
        name = name if len(found.ids) == 1 else f"{found.ids[piece.source]} {name}"
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:  # windows over a gap can begin with the same row
            name = f"{name} ({seen[name]})"
        named.append(replace(piece, id=name))
    return named


def _check_count(count: int, word: str, advice: str) -> None:
    if count < MIN_SERIES:
        plural = word if word.startswith("series") else f"{word}{'s' * (count != 1)}"
        raise UserError(f"there are {count} {plural}, and {MIN_SERIES} are needed: {advice}")


