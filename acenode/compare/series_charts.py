"""Chart data of time series from result.json: ROC, calibration, error over time, records, classes, coupling.

Malformed data is left out; nothing here raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from acenode.compare import checked_values, series_records
from acenode.compare.checked_values import (
    Numbers,
    OptionalNumbers,
    columns,
    counts,
    downsample,
    finite,
    items,
    optional_numbers,
    pairs,
    text,
    whole,
)
from acenode.compare.coupling_score import CouplingScore, incoming_shares, score
from acenode.compare.series_records import SeriesRecord
from acenode.data import variables
from acenode.player.attention import equal_rows_note

AGREE = 0.6  # rank correlation of attention and influence from which they are called alike
RECORDS, NAMES = 8, 64  # most records and variables that are drawn


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
    mse: OptionalNumbers
    count: list[int | None]
    unit: str
    negll: OptionalNumbers = field(default_factory=list)  # empty if the result has none
    cut: float | None = None
    unit_note: str = ""


@dataclass(frozen=True)
class Band:
    """Classes over time as intervals (start, end, class). Unlabelled times have no true class."""

    id: str
    unit: str
    true: list[tuple[float, float, int]]
    predicted: list[tuple[float, float, int]]
    accuracy: float | None  # on the labelled points


@dataclass(frozen=True)
class Coupling:
    names: list[str]
    known: list[OptionalNumbers] | None
    learned: list[OptionalNumbers] | None
    how: str
    titles: list[str]  # the names with their meaning
    score: CouplingScore | None = None  # against the known coupling
    row_distance: float | None = None  # mean distance between two rows of softmax(a)
    named: bool = False  # its rows are the variables, and the distance is a mean over time; else it is at the end
    influence: list[OptionalNumbers] | None = None  # |∂ḣ_i/∂h_j|
    influence_score: CouplingScore | None = None

    def shares(self) -> dict[str, list[OptionalNumbers]]:
        """Return the known and the learned coupling in one unit: shares of the incoming flow, relative to uniform."""
        found = {"known": None if self.known is None else np.abs(_matrix(self.known)),
                 "learned": None if self.learned is None else _matrix(self.learned) + 1 / len(self.names),
                 "influence": None if self.influence is None else _matrix(self.influence)}
        return {side: [[None if np.isnan(v) else round(float(v), 5) for v in row] for row in incoming_shares(flow)]
                for side, flow in found.items() if flow is not None}

    def words(self) -> list[str]:
        """Return the score, or why there is none, and a note if the rows of the attention have become equal."""
        has_both = self.known is not None and self.learned is not None
        score = self.score.text if self.score else "No score: every pair of variables is linked, or none." * has_both
        acts = f"Influence: {self.influence_score.text}" if self.influence_score else ""
        equal = equal_rows_note(self.row_distance, *(("variable", "on average over time") if self.named else
                                                   ("coordinate", "at the end of the series")))
        return [text for text in (score, acts, self._agreement(), equal) if text]

    def _agreement(self) -> str:
        """Say whether attention and influence agree on which pairs are coupled."""
        if self.learned is None or self.influence is None or len(self.names) < 3:
            return ""
        shares = [incoming_shares(flow) for flow in (_matrix(self.learned) + 1 / len(self.names),
                                                     _matrix(self.influence))]
        apart = ~np.eye(len(self.names), dtype=bool)
        ranks = [np.argsort(np.argsort(np.nan_to_num(s[apart]), kind="stable")) for s in shares]
        agreement = float(np.corrcoef(ranks[0], ranks[1])[0, 1])
        if agreement >= AGREE:
            return f"Attention and influence agree on which pairs are coupled (rank correlation {agreement:.2f})."
        return (f"Attention and influence differ on which pairs are coupled (rank correlation {agreement:.2f}): what a "
                "variable attends to is then not what changes it, and influence is the one to believe.")


@dataclass(frozen=True)
class ErrorRow:
    """Errors of one variable's forecasts, or of all."""

    title: str
    count: int | None  # of targets
    mse: float | None
    mae: float | None
    median: float | None  # of the squared errors
    winsorised: float | None  # mean squared error, cut off at the 99th percentile
    largest: float | None  # share of the squared error in the 1% of targets with the largest
    share: float | None  # of the squared error of all variables


@dataclass(frozen=True)
class ErrorSummary:
    """Errors by variable and of all together, with the 95% interval of the mean squared error."""

    rows: list[ErrorRow]
    low: float | None
    high: float | None


@dataclass(frozen=True)
class SeriesCharts:
    """Data that is ready to draw; a chart that is None or empty is missing."""

    roc: Roc | None = None
    calibration: Calibration | None = None
    over_time: OverTime | None = None
    records: list[SeriesRecord] = field(default_factory=list)
    bands: list[Band] = field(default_factory=list)
    coupling: Coupling | None = None
    errors: ErrorSummary | None = None

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__dataclass_fields__)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def read(result: dict[str, Any] | None) -> SeriesCharts:
    """Read the charts of a result."""
    found = result or {}
    cut = finite(found.get("cut"))
    records = _several(found.get("records"), lambda one: series_records.read(one, cut))
    note = next((n for one in items(found.get("records")) if isinstance(one, dict)
                 and (n := text(one.get("unit_note")))), "")
    return SeriesCharts(_roc(found.get("roc")), _calibration(found.get("calibration")),
                  _over_time(found.get("over_time"), cut, note), records, _several(found.get("bands"), _band),
                  _coupling(found.get("coupling"), found.get("row_distance"), "variables" in found),
                  _errors(found.get("errors")))


def _roc(value: Any) -> Roc | None:
    fpr, tpr = pairs(value, "fpr", "tpr")
    if len(fpr) < 2 or not all(-1e-9 <= v <= 1 + 1e-9 for v in (*fpr, *tpr)):
        return None
    return Roc(downsample(fpr), downsample(tpr), finite(value.get("auc")))


def _calibration(value: Any) -> Calibration | None:
    found = columns(value, "predicted", "observed")
    if found is None:
        return None
    count = counts(value.get("count"), len(found[0]))
    kept = [(p, o, n) for p, o, n in zip(*found, count, strict=True) if p is not None and o is not None]
    if not kept:
        return None
    return Calibration([p for p, _, _ in kept], [o for _, o, _ in kept], [n for _, _, n in kept])


def _over_time(value: Any, cut: float | None, note: str) -> OverTime | None:
    read = columns(value, "t", "mse")
    if read is None or all(v is None for v in read[1]):
        return None
    t, mse = read
    kept = [i for _, i in sorted((at, i) for i, at in enumerate(t) if at is not None)]
    if not kept:
        return None
    count, other = counts(value.get("count"), len(t)), optional_numbers(value.get("negll")) or []
    has_negll = len(other) == len(t) and any(v is not None for v in other)
    note = text(value.get("unit_note")) or note
    days = series_records.days_of(note)
    found = OverTime([t[i] or 0.0 for i in kept], [mse[i] for i in kept], [count[i] for i in kept],
                     text(value.get("unit"), 12), [other[i] for i in kept] if has_negll else [], cut, note)
    return found if not days else replace(found, t=[round(days * v, 3) for v in found.t], unit="d", unit_note="",
                                          cut=None if cut is None else round(days * cut, 3))


def _band(value: dict[str, Any]) -> Band | None:
    times, predicted, true = (items(value.get(k)) for k in ("t", "predicted", "true"))
    t = [finite(v) for v in times]
    if not t or None in t or len(predicted) != len(t) or len(true) not in (0, len(t)):
        return None
    guess, truth = [whole(v) for v in predicted], [whole(v) for v in true] or [None] * len(t)
    if all(v is None for v in guess):
        return None
    order = sorted(range(len(t)), key=lambda i: t[i] or 0.0)
    at = [t[i] or 0.0 for i in order]
    known = [(a, b) for a, b in zip(guess, truth, strict=True) if b is not None]
    return Band(text(value.get("id")), text(value.get("unit"), 12), _intervals(at, [truth[i] for i in order]),
                _intervals(at, [guess[i] for i in order]),
                sum(a == b for a, b in known) / len(known) if known else None)


def _intervals(t: Numbers, classes: Sequence[int | None]) -> list[tuple[float, float, int]]:
    """Join points of one class into intervals; each point extends halfway to its neighbours."""
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
    return found[:checked_values.POINTS]


def _coupling(value: Any, distance: Any, named: bool) -> Coupling | None:
    if not isinstance(value, dict):
        return None
    names = [text(name, 40) for name in items(value.get("names"))]
    if not 0 < len(names) <= NAMES:
        return None
    known, learned = (_square(value.get(k), len(names)) for k in ("known", "learned"))
    if not (known or learned):
        return None
    influence = _square(value.get("influence"), len(names))
    found, acts = (score(_matrix(known), _matrix(x)) if known and x else None for x in (learned, influence))
    return Coupling(names, known, learned, text(value.get("how"), 300), [variables.title(n) for n in names], found,
                    finite(distance.get("value")) if isinstance(distance, dict) else None, named, influence, acts)


def _matrix(rows: list[OptionalNumbers]) -> np.ndarray:
    return np.array([[np.nan if v is None else v for v in row] for row in rows])


def _errors(value: Any) -> ErrorSummary | None:
    if not isinstance(value, dict):
        return None
    found = [one for one in items(value.get("by_variable")) if isinstance(one, dict)][:NAMES]
    rows = [_error_row(variables.title(text(one.get("name"), 40)), one) for one in found]
    if not any(row.mse is not None for row in rows):
        return None
    whole_row = _error_row("All", {**value, "share": 1.0})
    return ErrorSummary([*rows, whole_row], finite(value.get("mse_low")), finite(value.get("mse_high")))


def _error_row(title: str, value: dict[str, Any]) -> ErrorRow:
    numbers = (finite(value.get(k)) for k in ("mse", "mae", "median", "winsorised", "largest", "share"))
    return ErrorRow(title, whole(value.get("count")), *numbers)


def _square(value: Any, side: int) -> list[OptionalNumbers] | None:
    rows = [optional_numbers(row) for row in items(value)]
    good = [row for row in rows if row is not None and len(row) == side]
    return good if len(rows) == len(good) == side and any(v is not None for row in good for v in row) else None


def _several(value: Any, read: Any) -> list[Any]:
    found = [read(one) for one in items(value) if isinstance(one, dict)]
    return [one for one in found if one is not None][:RECORDS]
