"""Write texts so that a spreadsheet shows them and computes nothing."""

from __future__ import annotations

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # a spreadsheet computes texts that start so


def as_text(text: str) -> str:
    """Return a text for a cell of a CSV file, after an apostrophe if it looks like a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text
