"""Checked values of a result file that anybody may have written: malformed values are left out, nothing raises."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from acenode.compare.metric_records import to_float

POINTS = 4000  # most points of a line

T = TypeVar("T")
Numbers = list[float]
OptionalNumbers = list[float | None]  # None is a gap in a line


def items(value: Any) -> list[Any]:
    """Return a list, empty if the value is not one."""
    return value if isinstance(value, list) else []


def text(value: Any, most: int = 60) -> str:
    """Return a text or number as a text of at most so many characters; empty for anything else."""
    return str(value)[:most] if isinstance(value, str | int | float) and not isinstance(value, bool) else ""


def finite(value: Any) -> float | None:
    """Return a finite number, or None."""
    found = to_float(value)
    return found if found is not None and math.isfinite(found) else None


def whole(value: Any) -> int | None:
    """Return a non-negative integer, or None."""
    return value if type(value) is int and 0 <= value < 2**53 else None


def optional_numbers(value: Any) -> OptionalNumbers | None:
    """Return numbers, with None for those that are not finite; None if the list holds anything else."""
    if not isinstance(value, list) or any(to_float(v) is None for v in value):
        return None
    return [finite(v) for v in value]


def columns(value: Any, one: str, other: str) -> tuple[OptionalNumbers, OptionalNumbers] | None:
    """Return two lists of the same length, or None if they are empty or malformed."""
    if not isinstance(value, dict):
        return None
    a, b = optional_numbers(value.get(one)), optional_numbers(value.get(other))
    return (a, b) if a and b and len(a) == len(b) else None


def pairs(value: Any, one: str, other: str) -> tuple[Numbers, Numbers]:
    """Return the points that have both numbers; none if the lists are malformed."""
    found = columns(value, one, other)
    points = [(a, b) for a, b in zip(*found, strict=True) if a is not None and b is not None] if found else []
    return [a for a, _ in points], [b for _, b in points]


def counts(value: Any, length: int) -> list[int | None]:
    """Return a list of counts of this length, with None for what is not a count."""
    given = items(value)
    return [whole(n) for n in given] if len(given) == length else [None] * length


def downsample(values: list[T]) -> list[T]:
    """Return at most about POINTS of the values, evenly spaced, with the last."""
    every = -(-len(values) // POINTS) or 1
    return values if every == 1 else [*values[:-1:every], values[-1]]
