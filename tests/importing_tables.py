"""Small tables in memory, for tests of importing."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence

from acenode.data.importing.table import TableFile


def csv(rows: Iterable[Sequence[object]], separator: str = ",") -> str:
    """Write rows as CSV; None is blank."""
    return "".join(separator.join("" if cell is None else str(cell) for cell in row) + "\n" for row in rows)


def table(text: str | bytes, name: str = "mine.csv") -> TableFile:
    """Return a table with this content."""
    return TableFile(io.BytesIO(text.encode() if isinstance(text, str) else text), name)


def wide(rows: int = 240, gap: int = 7) -> str:
    """Return one long series of two coupled variables, hour by hour, with gaps in the second."""
    lines: list[Sequence[object]] = [("time", "wind (m/s)", "power (kW)")]
    for i in range(rows):
        day, hour = divmod(i, 24)
        month, day = divmod(day, 28)
        stamp = f"2024-{month + 1:02d}-{day + 1:02d} {hour:02d}:00"
        wind = round(5 + 3 * math.sin(i / 6), 4)
        lines.append((stamp, wind, None if i % gap == 0 else round(10 * wind + math.cos(i / 3), 4)))
    return csv(lines)


def long(series: int = 24, times: int = 8) -> str:
    """Return many series of two variables, one value a row, with times as numbers."""
    lines: list[Sequence[object]] = [("patient", "hour", "variable", "value")]
    for s in range(series):
        for i in range(times):
            lines.append((f"p{s}", i, "pulse", round(60 + s + math.sin(i), 3)))
            if i % 3:
                lines.append((f"p{s}", i, "pressure", round(100 - s + math.cos(i), 3)))
    return csv(lines)


def labelled(series: int = 24, times: int = 5) -> str:
    """Return many wide series with a label each."""
    return csv([("id", "day", "a", "b", "label"), *(
        (s, i, s % 2 + i / 10, i - s / 10, "ill" if s % 2 else "well") for s in range(series) for i in range(times))])
