"""What the columns of a table mean: which one is the time, which name series, labels and variables.

A wide table has a column for each variable. A long table has a row for each value, with one column for the name of the
variable and one for the value. Roles are guessed from names and first rows, and corrected by those that a user names.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from acenode.data.importing import cells
from acenode.data.importing.cells import TimeForm
from acenode.data.importing.table import TableHead
from acenode.errors import UserError

TIMES = {"time", "t", "date", "datetime", "timestamp", "when", "ds", *cells.UNIT_WORDS, "month", "period"}
IDS = {"id", "series", "seriesid", "sid", "patient", "patientid", "subject", "subjectid", "station", "case", "record",
       "recordid", "uniqueid", "trajectory", "unit", "run", "group", "key"}
LABELS = {"label", "class", "target", "outcome", "died", "death", "diagnosis", "category", "y"}
VARIABLES = {"variable", "var", "parameter", "channel", "sensor", "measure", "measurement", "feature", "signal",
             "metric", "item", "name", "quantity"}
VALUES = {"value", "val", "values", "reading", "result", "measurement", "amount", "x"}
NONE = "none"  # instead of a column: there is no such column
MAX_NAMES = 200  # variables of a long table, when columns are guessed
_UNIT = re.compile(r"(.+?)\s*[\(\[]([^()\[\]]{1,20})[\)\]]")


@dataclass(frozen=True)
class Columns:
    time: str  # empty if it is not known yet
    variables: tuple[str, ...] = ()  # of a wide table; of a long one, those that are kept, all if there are none
    id: str | None = None  # names the series; without it all rows are one series
    label: str | None = None  # has the class of each series
    variable: str | None = None  # of a long table, which has a value too
    value: str | None = None
    form: TimeForm | None = None  # how times are written; guessed if None

    @property
    def is_long(self) -> bool:
        return self.variable is not None

    def unused(self, columns: Sequence[str]) -> tuple[str, ...]:
        used = {self.time, self.id, self.label, self.variable, self.value, *(() if self.is_long else self.variables)}
        return tuple(column for column in columns if column not in used)


def split_unit(column: str) -> tuple[str, str]:
    """Return a column's name without its unit, and the unit: `speed (km/h)` gives `speed` and `km/h`."""
    found = _UNIT.fullmatch(column)
    return (found[1], found[2].strip()) if found else (column, "")


def find_column(columns: Sequence[str], wanted: str) -> str:
    """Return the column of that name; its unit may be left out, and upper and lower case are the same."""
    for same in (lambda c: c == wanted, lambda c: c.lower() == wanted.lower(),
                 lambda c: split_unit(c)[0].lower() == wanted.lower()):
        found = [column for column in columns if same(column)]
        if len(found) == 1:
            return found[0]
    names = ", ".join(columns[:12]) + (", …" if len(columns) > 12 else "")
    raise UserError(f"there is no column {wanted!r}: choose one of {names}")


def guess_columns(head: TableHead) -> Columns:
    """Guess what the columns mean from their names and first rows. What cannot be guessed is left empty."""
    kinds = {column: _kind(head.cells(column)) for column in head.columns}
    free = [column for column in head.columns if kinds[column] != "blank"]

    def named(names: set[str], *taken: str | None, number: bool = False) -> str | None:
        return next((c for c in free if c not in taken and _plain(c) in names
                     and (not number or kinds[c] == "number")), None)

    timed = [c for c in free if kinds[c] in ("number", "date")]
    called = [c for c in timed if _plain(c) in TIMES or cells.unit_in(split_unit(c)[1])]
    dates = [c for c in timed if kinds[c] == "date"]
    begins = [c for c in timed if _plain(c).startswith(("time", "date"))]
    time = next(iter([*(c for c in called if c in dates), *called, *dates, *begins]), "")
    free = [column for column in free if column != time]
    variable, value = named(VARIABLES), named(VALUES, number=True)
    if variable == value:
        value = named(VALUES, variable, number=True)
    id = named(IDS, variable, value) or next(
        (c for c in free if _plain(c).endswith("id") and c not in (variable, value)), None)
    label = named(LABELS, variable, value, id)
    numbers, texts = ([c for c in free if kinds[c] == kind and c not in (id, label)] for kind in ("number", "text"))
    if variable is None and len(numbers) == 1 and texts and _is_repeated(head.cells(texts[-1])):
        variable, value = texts.pop(), numbers[0]  # a wide table would have one variable only
    if variable is not None and (value or len(numbers) == 1):
        id = id or next((c for c in texts if c != variable), None)
        return Columns(time, (), id, label, variable, value or numbers[0])
    id = id or next((c for c in texts if _is_repeated(head.cells(c))), None)
    counters = [c for c in numbers if c.startswith("column ") and (own := head.cells(c))[0] in ("0", "1")
                and own == [str(i + int(own[0])) for i in range(len(own))]]
    variables = tuple(c for c in numbers if c not in counters and len(set(head.cells(c))) > 1)
    return Columns(time or next(iter(counters), ""), variables, id, label)


def corrected_columns(head: TableHead, *, time: str | None = None, id: str | None = None, label: str | None = None,
                      variables: Sequence[str] = (), long: tuple[str, str] | None = None,
                      form: TimeForm | None = None) -> Columns:
    """Guess what columns mean, except for those that are given.

    Args:
        time, id, label: names of columns; `none` for id or label: the table has none.
        variables: columns of a wide table, or variables of a long one.
        long: the columns of variables' names and of values, of a long table.
        form: how times are written.
    """
    names = head.columns
    given_time = find_column(names, time) if time else None
    given_id, given_label = (find_column(names, name) if name and name != NONE else None for name in (id, label))
    pair = tuple(find_column(names, name) for name in long or ())
    guess = guess_columns(head)
    wide = not pair and not guess.is_long
    with suppress(UserError):  # some are no columns
        wide = wide or (not pair and bool(variables) and all(find_column(names, name) for name in variables))
    if wide:
        guess = replace(guess, variable=None, value=None)
    if pair:
        guess = replace(guess, variable=pair[0], value=pair[1], variables=())
    chosen = tuple(find_column(names, name) for name in variables) if wide else tuple(variables)
    taken = {given_time, given_id, given_label, *(chosen if wide else pair)} - {None}
    if {guess.variable, guess.value} & (taken - set(pair)):
        raise UserError("columns of a long table are chosen for something else: say which column has the names of the "
                        "variables and which the values (--long VARIABLE VALUE)")
    if wide and not variables:
        chosen = tuple(c for c in guess.variables if c not in taken)
    return Columns(
        time=given_time or (guess.time if guess.time not in taken else ""), variables=chosen,
        id=given_id or (None if id == NONE or guess.id in taken else guess.id),
        label=given_label or (None if label == NONE or guess.label in taken else guess.label),
        variable=guess.variable, value=guess.value, form=form)


def checked_columns(columns: Columns, head: TableHead) -> Columns:
    """Return the columns with their full names and the form of the times, or raise a UserError if they do not fit."""
    if not columns.time:
        raise UserError("no column looks like the time: choose one (--time)")
    all_columns = head.columns
    time, id, label, variable, value = (
        find_column(all_columns, name) if name else None
        for name in (columns.time, columns.id, columns.label, columns.variable, columns.value))
    assert time is not None
    if (variable is None) != (value is None):
        raise UserError("a long table needs the column of the variables' names and that of the values: choose both")
    kept = columns.variables if variable else tuple(find_column(all_columns, name) for name in columns.variables)
    used: dict[str, str] = {}
    for role, column in (("time", time), ("id", id), ("label", label), ("variable", variable), ("value", value),
                         *(("variable", name) for name in kept if not variable)):
        if column in used:
            raise UserError(f"column {column!r} is chosen as {used[column]} and as {role}: choose another one")
        if column is not None:
            used[column] = role
    if not variable and len(kept) < 2:
        found = f"only {kept[0]!r}" if kept else "none"
        raise UserError(f"attention needs two variables or more, and {found} was chosen or found: choose columns with "
                        f"numbers (--variables){_text_among_numbers(head, used)}")
    form = columns.form
    if form is None:
        times = [text for text in head.cells(time) if not cells.is_gap(text)]
        # if one of them is wrong, the form of the first finds it when all rows are read
        form = cells.guess_form(times) or (cells.guess_form(times[:1]) if times else "number")
    if form is None:
        row, line = head.rows[0]
        text = cells.shown(line[all_columns.index(time)])
        raise UserError(f"row {row}, column {time!r}: {text} is neither a number nor a date: choose another time "
                        "column (--time), or write dates as 2024-01-31")
    return Columns(time, kept, id, label, variable, value, form)


def _text_among_numbers(head: TableHead, used: Container[str]) -> str:
    """Name the first cell that keeps an unused column from being one of numbers; empty if there is none."""
    for i, column in enumerate(head.columns):
        filled = [(row, line[i]) for row, line in head.rows if line[i] and not cells.is_gap(line[i])]
        wrong = [(row, text) for row, text in filled if not _fits(text, "number")]
        if column not in used and 0 < len(wrong) < len(filled):
            row, text = wrong[0]
            return f". Row {row}, column {column!r}: {cells.shown(text)} is not a number"
    return ""


def _plain(column: str) -> str:
    """Return a column's name in lower case, without its unit, blanks and punctuation."""
    return re.sub(r"[\W_]", "", split_unit(column)[0].lower())


def _kind(texts: list[str]) -> str:
    """Return what most of these cells are: number, date, text or blank. A few wrong ones do not change it."""
    sample = [text for text in texts if not cells.is_gap(text)][:200]
    if not sample:
        return "blank"
    return next((kind for kind in ("number", "date")
                 if sum(_fits(text, kind) for text in sample) > 0.8 * len(sample)), "text")


def _fits(text: str, kind: str) -> bool:
    try:
        return cells.guess_form([text]) in (("number",) if kind == "number" else cells.FORMS[1:])
    except UserError:  # a date of which day and month cannot be told apart
        return kind == "date"


def _is_repeated(texts: list[str]) -> bool:
    return len(set(texts)) <= min(MAX_NAMES, len(texts) / 2)

