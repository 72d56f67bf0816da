"""Write texts so that a spreadsheet shows them and computes nothing."""

from __future__ import annotations

from acenode.data.importing.cells import plain_float

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # a spreadsheet computes texts that start so


def as_text(text: str) -> str:
    """Return a text for a cell of a CSV file, after an apostrophe if it looks like a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text


def name_as_text(name: str) -> str:
    """Return a name from a user's data for a cell; numbers such as the id -5 stay as they are."""
    try:
        plain_float(name)
    except ValueError:
        return as_text(name)
    return name
