"""Read times: numbers, or dates in one of several forms; and choose the unit in which dates are counted."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

import numpy as np

from acenode.data.importing import cells
from acenode.errors import UserError

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


def guess_form(texts: Sequence[str]) -> TimeForm | None:
    """Return the form of these times, or None if they have no common form.

    Raises:
        UserError: they are dates in which day and month cannot be told apart.
    """
    if not texts:
        return None
    if _all_read(texts, cells.number):
        return "number"
    if _all_read(texts, _date):
        return "date"
    fits = [form for form in ("day-first", "month-first") if _all_read(texts, _ordered(form == "day-first"))]
    if len(fits) == 2:
        raise UserError(f"the dates such as {texts[0]} can be read with the day or the month first: choose one "
                        "(--dates day-first or month-first), or write dates as 2024-01-31")
    return fits[0] if fits else None  # type: ignore[return-value]


def _all_read(texts: Sequence[str], read: Callable[[str], object]) -> bool:
    try:
        for text in texts:
            read(text)
    except (ValueError, OverflowError):
        return False
    return True


class TimeReader:
    """Reads the cells of a time column: numbers as they are, dates as seconds since 1970 (UTC)."""

    def __init__(self, form: TimeForm) -> None:
        self.form = form
        self._zoned: bool | None = None  # True if dates have time zones, once the first one was read
        self._read = {"number": None, "date": _date, "day-first": _ordered(True), "month-first": _ordered(False)}[form]

    @property
    def is_date(self) -> bool:
        """True if the times are dates."""
        return self.form != "number"

    def __call__(self, cell: str) -> float:
        """Return the time in a cell. A ValueError says what is wrong with it."""
        if cells.is_gap(cell):
            raise ValueError("the time is missing: fill it in, or remove the row")
        if self._read is None:
            return cells.number(cell)
        try:
            found = self._read(cell)
        except (ValueError, OverflowError):
            example = {"date": "2024-01-31 15:30", "day-first": "31/01/2024", "month-first": "01/31/2024"}[self.form]
            raise ValueError(f"{cells.shown(cell)} is not a date: write it as {example}") from None
        zoned = found.tzinfo is not None
        if self._zoned is None:
            self._zoned = zoned
        elif self._zoned != zoned:
            raise ValueError(f"{cells.shown(cell)} has {'a' if zoned else 'no'} time zone, unlike the rows before: "
                             "write all times in one way")
        try:
            plain = found.astimezone(UTC).replace(tzinfo=None) if zoned else found
        except OverflowError:
            raise ValueError(f"{cells.shown(cell)} is outside the years 1 to 9999 in UTC: correct it") from None
        return (plain - _EPOCH).total_seconds()


def _date(text: str) -> datetime:
    """Read a date as ISO 8601 writes it, or with the name of the month."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        for form in _NAMED_FORMATS:
            try:
                return datetime.strptime(text, form)
            except ValueError:
                continue
        raise


def _ordered(day_first: bool) -> Callable[[str], datetime]:
    """Return a function that reads dates such as 31/01/2024 15:30 or 1/31/24 3:30 PM."""

    def read(text: str) -> datetime:
        found = _NUMERIC_DATE.fullmatch(text)
        if found is None:
            raise ValueError(text)
        first, second, year, hour, minute, second_of_minute, half = found.groups()
        day, month = (first, second) if day_first else (second, first)
        full_year = int(year) + (0 if len(year) == 4 else 2000 if int(year) < 70 else 1900)
        hours = int(hour or 0)
        if half:
            if not 1 <= hours <= 12:
                raise ValueError(text)
            hours = hours % 12 + 12 * (half[0] in "pP")
        at = datetime(full_year, int(month), int(day), hours, int(minute or 0))
        seconds = float(second_of_minute or 0)
        if seconds >= 60:
            raise ValueError(text)
        return at + timedelta(seconds=seconds)

    return read


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
    if (found.hour, found.minute, found.second, found.microsecond) == (0, 0, 0, 0):
        return found.date().isoformat()
    return found.isoformat(" ", "minutes" if found.second == 0 and not found.microsecond else "seconds")
