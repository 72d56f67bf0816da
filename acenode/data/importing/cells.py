"""Read one cell: a number, a gap, a text or a time. A ValueError says what is wrong with it.

Times are numbers, or dates in one of several forms, which are counted in a unit that fits their step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import numpy as np

from acenode.errors import UserError

GAPS = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none"})  # in lower case
LARGEST = 1e30
MAX_TEXT = 200  # characters of an id or a label

TimeForm = Literal["number", "date", "day-first", "month-first"]
FORMS: tuple[TimeForm, ...] = ("number", "date", "day-first", "month-first")
SECONDS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0, "weeks": 604800.0, "years": 31557600.0}
UNIT_WORDS = {"s": "seconds", "sec": "seconds", "second": "seconds", "min": "minutes", "minute": "minutes",
              "h": "hours", "hr": "hours", "hour": "hours", "d": "days", "day": "days", "week": "weeks",
              "year": "years", **{unit: unit for unit in SECONDS}}
_EPOCH = datetime(1970, 1, 1)
_NUMERIC_DATE = re.compile(r"(\d{1,2})[/.\-](\d{1,2})[/.\-](\d{4}|\d{2})"
                           r"(?:[ T]+(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?\s*([AaPp]\.?[Mm]\.?)?)?")
_NAMED_FORMATS = ("%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y", "%d %b %Y %H:%M", "%Y-%m", "%Y/%m/%d",
                  "%Y/%m/%d %H:%M", "%Y/%m/%d %H:%M:%S", "%d%b%Y", "%d-%b-%y")


def is_gap(cell: str) -> bool:
    return cell.lower() in GAPS


def plain_float(cell: str) -> float:
    """Read a number in ASCII without underscores, both of which `float` would accept."""
    if "_" in cell or not cell.isascii():
        raise ValueError(cell)
    return float(cell)


def number(cell: str) -> float:
    """Return the number in a cell, NaN for a gap."""
    try:
        value = plain_float(cell)
    except ValueError:
        if is_gap(cell):
            return math.nan
        if is_formula(cell):
            fault = "a formula: replace it by its value"
        elif re.sub(r"[ ,.]", "", cell).lstrip("+-").isdigit():
            fault = "not a number: write it with a decimal point and without separators, such as 1234.5"
        else:
            fault = "not a number: correct it, or leave it blank for a gap"
        raise ValueError(f"{shown(cell)} is {fault}") from None
    if math.isinf(value):
        raise ValueError(f"{shown(cell)} is infinite: correct it, or leave it blank for a gap")
    if abs(value) > LARGEST:
        raise ValueError(f"{shown(cell)} is larger than {LARGEST:g}: use another unit")
    return value


def text(cell: str) -> str:
    """Return the text in a cell that is an id, a label or the name of a variable."""
    if is_formula(cell):
        raise ValueError(f"{shown(cell)} is a formula: replace it by a value")
    if len(cell) > MAX_TEXT:
        raise ValueError(f"the text has {len(cell)} characters: use at most {MAX_TEXT}")
    if not cell.isprintable():
        raise ValueError(f"{shown(cell)} has control characters: remove them")
    return cell


def required(cell: str) -> str:
    if not cell:
        raise ValueError("the cell is blank: fill it in, or remove the row")
    return text(cell)


def is_formula(cell: str) -> bool:
    """Return True if a spreadsheet would compute the cell: it begins with =, @, + or -, and is not a number."""
    if not cell or cell[0] not in "=@+-" or cell == "-":
        return False
    with suppress(ValueError):
        plain_float(cell)
        return False
    return True


def shown(cell: str) -> str:
    return repr(cell if len(cell) <= 40 else f"{cell[:40]}…")


class TimeReader:
    """Reads the cells of a time column: numbers as they are, dates as seconds since 1970 (UTC)."""

    def __init__(self, form: TimeForm) -> None:
        self.form, self.is_date = form, form != "number"
        self._zoned: bool | None = None  # True if dates have time zones, once the first one was read

    def __call__(self, cell: str) -> float:
        """Return the time in a cell. A ValueError says what is wrong with it."""
        if is_gap(cell):
            raise ValueError("the time is missing: fill it in, or remove the row")
        if not self.is_date:
            return number(cell)
        try:
            found = _READERS[self.form](cell)
        except (ValueError, OverflowError):
            example = {"date": "2024-01-31 15:30", "day-first": "31/01/2024", "month-first": "01/31/2024"}[self.form]
            raise ValueError(f"{shown(cell)} is not a date: write it as {example}") from None
        zoned = found.tzinfo is not None
        self._zoned = zoned if self._zoned is None else self._zoned
        if self._zoned != zoned:
            raise ValueError(f"{shown(cell)} has {'a' if zoned else 'no'} time zone, unlike the rows before: "
                             "write all times in one way")
        try:
            plain = found.astimezone(UTC).replace(tzinfo=None) if zoned else found
        except OverflowError:
            raise ValueError(f"{shown(cell)} is outside the years 1 to 9999 in UTC: correct it") from None
        return (plain - _EPOCH).total_seconds()


def _date(text: str) -> datetime:
    """Read a date as ISO 8601 writes it, or with the name of the month."""
    with suppress(ValueError):
        return datetime.fromisoformat(text)
    for form in _NAMED_FORMATS:
        with suppress(ValueError):
            return datetime.strptime(text, form)
    raise ValueError(text)


def _ordered(text: str, day_first: bool) -> datetime:
    """Read a date such as 31/01/2024 15:30 or 1/31/24 3:30 PM."""
    found = _NUMERIC_DATE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    first, second, year, hour, minute, seconds, half = found.groups()
    day, month = (first, second) if day_first else (second, first)
    full_year = int(year) + (0 if len(year) == 4 else 2000 if int(year) < 70 else 1900)
    hours = int(hour or 0)
    if float(seconds or 0) >= 60 or (half and not 1 <= hours <= 12):
        raise ValueError(text)
    if half:
        hours = hours % 12 + 12 * (half[0] in "pP")
    return datetime(full_year, int(month), int(day), hours, int(minute or 0)) + timedelta(seconds=float(seconds or 0))


_READERS: dict[TimeForm, Callable[[str], Any]] = {
    "number": number, "date": _date, "day-first": lambda text: _ordered(text, True),
    "month-first": lambda text: _ordered(text, False)}


def guess_form(texts: Sequence[str]) -> TimeForm | None:
    """Return the form of these times, None if they have none in common; day and month must be told apart."""
    if not texts:
        return None
    for form in FORMS[:2]:  # most texts are one of these
        if _all_read(texts, _READERS[form]):
            return form
    fits = [form for form in FORMS[2:] if _all_read(texts, _READERS[form])]
    if len(fits) == 2:
        raise UserError(f"the dates such as {texts[0]} can be read with the day or the month first: choose one "
                        "(--dates day-first or month-first), or write dates as 2024-01-31")
    return fits[0] if fits else None


def _all_read(texts: Sequence[str], read: Callable[[str], Any]) -> bool:
    with suppress(ValueError, OverflowError):
        for text in texts:
            read(text)
        return True
    return False


def unit_in(name: str) -> str:
    """Return the unit of time that a column's name or unit stands for, or an empty text: `minutes`, `day`, `h`."""
    return UNIT_WORDS.get(name.lower().strip(), "")


def check_unit(unit: str) -> str:
    """Return the full name of a unit of time; any short text is a unit of numbers that are not time of day."""
    if len(unit) > 20 or not unit.isprintable():
        raise UserError(f"{unit[:20]!r} cannot be a unit of time: use one such as {', '.join(SECONDS)}")
    return unit_in(unit) or unit


def fitting_unit(step: float) -> str:
    """Return the unit in which steps of this many seconds are easy to read."""
    if step >= 300 * SECONDS["days"]:
        return "years"
    if math.isclose(step, SECONDS["weeks"]):
        return "weeks"
    return next((unit for unit in ("days", "hours", "minutes") if step >= SECONDS[unit]), "seconds")


def date_text(seconds: float) -> str:
    """Write seconds since 1970 as an ISO date, with the time of day only if it is not midnight."""
    found = _EPOCH + timedelta(seconds=float(np.round(seconds, 3)))
    if found.time() == datetime.min.time():
        return found.date().isoformat()
    return found.isoformat(" ", "minutes" if found.second == 0 and not found.microsecond else "seconds")
