"""Read one cell: a number, a gap or a text. A ValueError says what is wrong with it."""

from __future__ import annotations

import math

GAPS = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none"})  # in lower case
LARGEST = 1e30
MAX_TEXT = 200  # characters of an id or a label
MAX_CELLS = 60_000_000  # of a table


def is_gap(cell: str) -> bool:
    """Return True if a cell is blank or says that there is no value."""
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
        raise ValueError(_not_a_number(cell)) from None
    if math.isnan(value):
        return value
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


def is_formula(cell: str) -> bool:
    """Return True if a spreadsheet would compute the cell: it begins with =, @, + or -, and is not a number."""
    if not cell or cell[0] not in "=@+-":
        return False
    try:
        plain_float(cell)
    except ValueError:
        return cell != "-"
    return False


def shown(cell: str) -> str:
    """Return a cell in quotes, shortened."""
    return repr(cell if len(cell) <= 40 else f"{cell[:40]}…")


def _not_a_number(cell: str) -> str:
    if is_formula(cell):
        return f"{shown(cell)} is a formula: replace it by its value"
    plain = cell.replace(" ", "")
    if plain.replace(",", "").replace(".", "").lstrip("+-").isdigit():
        return f"{shown(cell)} is not a number: write it with a decimal point and without separators, such as 1234.5"
    return f"{shown(cell)} is not a number: correct it, or leave it blank for a gap"
