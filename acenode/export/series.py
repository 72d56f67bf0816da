"""What result.json holds of a time series: ROC, calibration, error over time, records, activities, coupling.

Whatever is not what it should be is left out; nothing here raises.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

from acenode.export.records import number

RECORDS, VARIABLES, POINTS, NAMES = 8, 6, 4000, 64  # the most of each that is drawn

T = TypeVar("T")
Numbers = list[float]
Gappy = list[float | None]  # None where there is no number to draw


@dataclass(frozen=True)
class Roc:
    fpr: Numbers
    tpr: Numbers
    auc: float | None


@dataclass(frozen=True)
class Calibration:
    predicted: Numbers
    observed: Numbers
    count: list[int | None]


@dataclass(frozen=True)
class OverTime:
    t: Numbers
    mse: Gappy
    count: list[int | None]
    unit: str


@dataclass(frozen=True)
class Variable:
    """One variable of a record: what was seen, what was held out, and what the model makes of it on a grid."""

    name: str
    t: Numbers
    x: Numbers
    target_t: Numbers
    target_x: Numbers
    grid: Numbers
    mean: Gappy
    low: Gappy  # empty where there is no spread
    high: Gappy


@dataclass(frozen=True)
class Record:
    id: str
    unit: str
    cut: float | None
    variables: list[Variable]


@dataclass(frozen=True)
class Band:
    """Classes over time, stretches of one class as (from, to, class); nobody knows the truth everywhere."""

    id: str
    unit: str
    true: list[tuple[float, float, int]]
    predicted: list[tuple[float, float, int]]
    right: float | None  # the share of the labelled points that is right


@dataclass(frozen=True)
class Coupling:
    names: list[str]
    known: list[Gappy] | None
    learned: list[Gappy] | None
    how: str


@dataclass(frozen=True)
class Series:
    """Ready to draw; what is None or empty is not there."""

    roc: Roc | None = None
    calibration: Calibration | None = None
    over_time: OverTime | None = None
    records: list[Record] = field(default_factory=list)
    bands: list[Band] = field(default_factory=list)
    coupling: Coupling | None = None

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__dataclass_fields__)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def gather(result: dict[str, Any] | None) -> Series:
    found = result or {}
    return Series(_roc(found.get("roc")), _calibration(found.get("calibration")), _over_time(found.get("over_time")),
                  _several(found.get("records"), _record), _several(found.get("bands"), _band),
                  _coupling(found.get("coupling")))


def _roc(value: Any) -> Roc | None:
    fpr, tpr = _pairs(value, "fpr", "tpr")
    if len(fpr) < 2 or not all(-1e-9 <= v <= 1 + 1e-9 for v in (*fpr, *tpr)):
        return None
    return Roc(_thin(fpr), _thin(tpr), _finite(value.get("auc")))


def _calibration(value: Any) -> Calibration | None:
    columns = _columns(value, "predicted", "observed")
    if columns is None:
        return None
    count = _counts(value.get("count"), len(columns[0]))
    kept = [(p, o, n) for p, o, n in zip(*columns, count, strict=True) if p is not None and o is not None]
    if not kept:
        return None
    return Calibration([p for p, _, _ in kept], [o for _, o, _ in kept], [n for _, _, n in kept])


def _over_time(value: Any) -> OverTime | None:
    columns = _columns(value, "t", "mse")
    if columns is None or all(v is None for v in columns[1]):
        return None
    count = _counts(value.get("count"), len(columns[0]))
    kept = sorted((t, i) for i, t in enumerate(columns[0]) if t is not None)
    return OverTime([t for t, _ in kept], [columns[1][i] for _, i in kept], [count[i] for _, i in kept],
                    _text(value.get("unit"), 12)) if kept else None


def _record(value: dict[str, Any]) -> Record | None:
    variables = [v for v in map(_variable, _list(value.get("variables"))) if v][:VARIABLES]
    if not variables:
        return None
    return Record(_text(value.get("id")), _text(value.get("unit"), 12), _finite(value.get("cut")), variables)


def _variable(value: Any) -> Variable | None:
    if not isinstance(value, dict):
        return None
    t, x = _pairs(value, "t", "x")
    target_t, target_x = _pairs(value, "target_t", "target_x")
    columns = _columns(value, "grid", "mean")
    grid, mean, low, high = Numbers(), Gappy(), Gappy(), Gappy()
    if columns and None not in columns[0]:
        grid, mean = [float(v or 0) for v in columns[0]], columns[1]
        edges = _columns(value, "low", "high")
        low, high = edges if edges and len(edges[0]) == len(grid) else ([], [])
    if not (t or target_t or any(v is not None for v in mean)):
        return None
    return Variable(_text(value.get("name")), t, x, target_t, target_x, _thin(grid), _thin(mean), _thin(low),
                    _thin(high))


def _band(value: dict[str, Any]) -> Band | None:
    times, predicted, true = (_list(value.get(k)) for k in ("t", "predicted", "true"))
    t = [_finite(v) for v in times]
    if not t or None in t or len(predicted) != len(t) or len(true) not in (0, len(t)):
        return None
    guess, truth = [_class(v) for v in predicted], [_class(v) for v in true] or [None] * len(t)
    if all(v is None for v in guess):
        return None
    order = sorted(range(len(t)), key=lambda i: t[i] or 0.0)
    at = [t[i] or 0.0 for i in order]
    known = [(a, b) for a, b in zip(guess, truth, strict=True) if b is not None]
    return Band(_text(value.get("id")), _text(value.get("unit"), 12), _stretches(at, [truth[i] for i in order]),
                _stretches(at, [guess[i] for i in order]),
                sum(a == b for a, b in known) / len(known) if known else None)


def _stretches(t: Numbers, classes: Sequence[int | None]) -> list[tuple[float, float, int]]:
    """A point holds from halfway to the one before it to halfway to the next."""
    half = (t[-1] - t[0]) / (2 * (len(t) - 1)) if t[-1] > t[0] else 0.5
    edges = [t[0] - half, *((a + b) / 2 for a, b in pairwise(t)), t[-1] + half]
    found: list[tuple[float, float, int]] = []
    for (begin, end), kind in zip(pairwise(edges), classes, strict=True):
        if kind is None:
            continue
        if found and found[-1][2] == kind and found[-1][1] == begin:
            found[-1] = (found[-1][0], end, kind)
        else:
            found.append((begin, end, kind))
    return found[:POINTS]


def _coupling(value: Any) -> Coupling | None:
    if not isinstance(value, dict):
        return None
    names = [_text(name, 40) for name in _list(value.get("names"))]
    if not 0 < len(names) <= NAMES:
        return None
    known, learned = (_square(value.get(k), len(names)) for k in ("known", "learned"))
    return Coupling(names, known, learned, _text(value.get("how"), 300)) if known or learned else None


def _square(value: Any, side: int) -> list[Gappy] | None:
    rows = [_gappy(row) for row in _list(value)]
    good = [row for row in rows if row is not None and len(row) == side]
    return good if len(rows) == len(good) == side and any(v is not None for row in good for v in row) else None


# Pieces -------------------------------------------------------------------------------------------------------------


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _several(value: Any, read: Any) -> list[Any]:
    found = [read(one) for one in _list(value) if isinstance(one, dict)]
    return [one for one in found if one is not None][:RECORDS]


def _text(value: Any, most: int = 60) -> str:
    return str(value)[:most] if isinstance(value, str | int | float) and not isinstance(value, bool) else ""


def _finite(value: Any) -> float | None:
    found = number(value)
    return found if found is not None and math.isfinite(found) else None


def _gappy(value: Any) -> Gappy | None:
    """Numbers, with gaps where one is not finite; None where something is no number at all."""
    if not isinstance(value, list) or any(number(v) is None for v in value):
        return None
    return [_finite(v) for v in value]


def _columns(value: Any, one: str, other: str) -> tuple[Gappy, Gappy] | None:
    """Two lists of one length, not empty."""
    if not isinstance(value, dict):
        return None
    a, b = _gappy(value.get(one)), _gappy(value.get(other))
    return (a, b) if a and b and len(a) == len(b) else None


def _pairs(value: Any, one: str, other: str) -> tuple[Numbers, Numbers]:
    """Points that have both numbers; none where the lists do not belong together."""
    columns = _columns(value, one, other)
    points = [(a, b) for a, b in zip(*columns, strict=True) if a is not None and b is not None] if columns else []
    return [a for a, _ in points], [b for _, b in points]


def _counts(value: Any, length: int) -> list[int | None]:
    given = _list(value)
    return [_class(n) for n in given] if len(given) == length else [None] * length


def _class(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**53 else None


def _thin(values: list[T]) -> list[T]:
    """Few enough to draw, the last one among them."""
    every = -(-len(values) // POINTS) or 1
    return values if every == 1 else [*values[:-1:every], values[-1]]
