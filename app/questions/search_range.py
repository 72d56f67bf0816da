"""Ranges of a search from the fields of the form, with errors in the form's words."""

from __future__ import annotations

from acenode.config import SETTINGS
from acenode.config.ranges import BETWEEN, LOG, MAX_VALUES, SearchRange, read_range
from acenode.config.vocabulary import parse
from acenode.errors import UserError

from .. import labels


def interval(name: str, low: str, high: str, *, log: bool) -> SearchRange:
    """Read the fields From and To.

    Raises:
        UserError: a field is no value of the setting, or From is not below To.
    """
    ends = {"From": low.strip(), "To": high.strip()}
    for field, text in ends.items():
        if log and _number(text) <= 0:
            raise UserError(f"{field} must be above 0 on a logarithmic scale")
        _check(name, text, field)
    if not _number(ends["From"]) < _number(ends["To"]):
        raise UserError("From must be smaller than To")
    return read_range(name, f"{LOG if log else ''}{ends['From']}{BETWEEN}{ends['To']}")


def listed(name: str, text: str) -> SearchRange:
    """Read the field Values.

    Raises:
        UserError: a value is none of the setting's, or there are too few or too many.
    """
    values = [value.strip() for value in text.split(",") if value.strip()]
    if any(BETWEEN in value or value.startswith(LOG) for value in values):
        raise UserError("Values are single numbers, separated by commas: for a range, choose Logarithmic or Linear")
    different = {_check(name, value, "Values") for value in values}
    if len(different) < 2:
        raise UserError("Give at least two values, separated by commas, or choose Logarithmic or Linear for a range")
    if len(different) > MAX_VALUES:
        raise UserError(f"Give at most {MAX_VALUES} values, or choose Logarithmic or Linear for a range")
    return read_range(name, ",".join(values))


def _check(name: str, text: str, field: str) -> object:
    """Return the value of a setting; an error names the field and the setting's title."""
    if not text:
        raise UserError(f"{field}: enter {'a whole number' if SETTINGS[name].type is int else 'a number'}")
    try:
        return parse(name, text)
    except UserError as error:
        raise UserError(f"{field}: {str(error).replace(name, labels.setting(name).lower(), 1)}") from None


def _number(text: str) -> float:
    """Return the number that a text is; infinity if it is none, which `_check` reports."""
    try:
        return float(text)
    except ValueError:
        return float("inf")
