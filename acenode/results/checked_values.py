"""Pieces of a result that anybody may have written: what is not what it should be is left out, nothing raises."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from acenode.results.metric_records import to_float

POINTS = 4000  # the most of a line that is drawn

T = TypeVar("T")
Numbers = list[float]
Gappy = list[float | None]  # None where there is no number to draw


def items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def text(value: Any, most: int = 60) -> str:
    return str(value)[:most] if isinstance(value, str | int | float) and not isinstance(value, bool) else ""


def finite(value: Any) -> float | None:
    found = to_float(value)
    return found if found is not None and math.isfinite(found) else None


def whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**53 else None


def gappy(value: Any) -> Gappy | None:
    """Numbers, with gaps where one is not finite; None where something is no number at all."""
    if not isinstance(value, list) or any(to_float(v) is None for v in value):
        return None
    return [finite(v) for v in value]


def columns(value: Any, one: str, other: str) -> tuple[Gappy, Gappy] | None:
    """Two lists of one length, not empty."""
    if not isinstance(value, dict):
        return None
    a, b = gappy(value.get(one)), gappy(value.get(other))
    return (a, b) if a and b and len(a) == len(b) else None


def pairs(value: Any, one: str, other: str) -> tuple[Numbers, Numbers]:
    """Points that have both numbers; none where the lists do not belong together."""
    found = columns(value, one, other)
    points = [(a, b) for a, b in zip(*found, strict=True) if a is not None and b is not None] if found else []
    return [a for a, _ in points], [b for _, b in points]


def counts(value: Any, length: int) -> list[int | None]:
    given = items(value)
    return [whole(n) for n in given] if len(given) == length else [None] * length


def thin(values: list[T]) -> list[T]:
    """Few enough to draw, the last one among them."""
    every = -(-len(values) // POINTS) or 1
    return values if every == 1 else [*values[:-1:every], values[-1]]
