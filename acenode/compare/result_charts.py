"""Chart data from result.json: confusion matrix, t-SNE, and the charts of time series with their records.

Anybody may have written the file: malformed data is left out, and nothing here raises.

A time that occurs twice in a row on the grid of a record is a jump of the state, with the predictions before and after
it. Values are in the variable's own unit if the result says how they were normalised, times in days if it says how long
a unit is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from acenode.compare.influence import CouplingScore, incoming_shares, score
from acenode.compare.metrics import finite, to_float
from acenode.data import variables
from acenode.player.attention import equal_rows_note

POINTS = 4000  # most points of a line
RECORDS, VARIABLES, NAMES = 8, 6, 64  # most records, variables of a record, and variables of a matrix that are drawn
AGREE = 0.6  # rank correlation of attention and influence from which they are called alike
ERRORS = {"MSE": "mse", "Share of error (%)": "share", "MAE": "mae", "Median squared error": "median",
          "Winsorised MSE": "winsorised", "Share of largest 1% (%)": "largest"}  # columns, and their keys in a result
NORMALISED = "scaled values"  # of a variable whose shift and scale the result does not have
_DAYS = re.compile(r"one unit is (\d+(?:\.\d+)?) days\.?")

Numbers = list[float]
OptionalNumbers = list[float | None]  # None is a gap in a line


@dataclass(frozen=True)
class SeriesVariable:
    """One variable of a record: observed values, held-out values, and predictions on a grid."""

    name: str
    t: Numbers
    x: Numbers
    target_t: Numbers
    target_x: Numbers
    grid: Numbers
    mean: OptionalNumbers
    low: OptionalNumbers  # empty if the predictions have no band
    high: OptionalNumbers
    title: str = ""  # the name with its meaning
    unit: str = ""  # of the values; empty if it is not known


@dataclass(frozen=True)
class SeriesRecord:
    id: str
    unit: str
    cut: float | None  # where the forecast begins
    variables: list[SeriesVariable]
    jumps: Numbers = field(default_factory=list)  # times at which the state jumped
    band: str = ""  # what the band shows; if empty, the spread over samples
    unit_note: str = ""  # the length of a unit of time, if the times are not in days
    total: int = 0  # variables that the result has; `variables` are the first of them


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
        return {side: [[None if np.isnan(v) else round(float(v), 5) for v in row] for row in shares]
                for side, shares in self._shares().items()}

    def _shares(self) -> dict[str, np.ndarray]:
        found = {"known": None if self.known is None else np.abs(_matrix(self.known)),
                 "learned": None if self.learned is None else _matrix(self.learned) + 1 / len(self.names),
                 "influence": None if self.influence is None else _matrix(self.influence)}
        return {side: incoming_shares(flow) for side, flow in found.items() if flow is not None}

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
        shares, apart = self._shares(), ~np.eye(len(self.names), dtype=bool)
        ranks = [np.argsort(np.argsort(np.nan_to_num(shares[side][apart]), kind="stable"))
                 for side in ("learned", "influence")]
        agreement = float(np.corrcoef(ranks[0], ranks[1])[0, 1])
        if agreement >= AGREE:
            return f"Attention and influence agree on which pairs are coupled (rank correlation {agreement:.2f})."
        return (f"Attention and influence differ on which pairs are coupled (rank correlation {agreement:.2f}): what a "
                "variable attends to is then not what changes it, and influence is the one to believe.")


@dataclass(frozen=True)
class ErrorSummary:
    """Errors of forecasts by variable and of all together, and the 95% interval of the mean squared error."""

    table: pd.DataFrame
    low: float | None
    high: float | None


@dataclass(frozen=True)
class ResultCharts:
    """Data that is ready to draw; a chart that is None or empty is missing, for which `no_confusion` and `no_tsne` have
    the reason."""

    classes: list[str] = field(default_factory=list)
    confusion: dict[str, Any] | None = None
    no_confusion: str = "This experiment's result has no classes."
    tsne: dict[str, Any] | None = None
    no_tsne: str = "The result has no t-SNE: the run was trained with analysis=false."
    silhouettes: dict[str, float | None] = field(default_factory=dict)
    roc: Roc | None = None
    calibration: Calibration | None = None
    over_time: OverTime | None = None
    records: list[SeriesRecord] = field(default_factory=list)
    bands: list[Band] = field(default_factory=list)
    coupling: Coupling | None = None
    errors: ErrorSummary | None = None


def read(result: dict[str, Any] | None, state: str = "finished") -> ResultCharts:
    """Read the chart data of a result; `state` is the state of a run that has none."""
    if result is None:
        why = f"The run is {state} and has no result: the test set is read once, after the last epoch."
        return ResultCharts(no_confusion=why, no_tsne=why)

    def part(key: str) -> dict[str, Any]:
        return found if isinstance(found := result.get(key), dict) else {}

    cut, records, classes = finite(result.get("cut")), _dicts(result.get("records")), _items(result.get("classes"))
    note = next((n for one in records if (n := _text(one.get("unit_note")))), "")
    return ResultCharts(
        classes=list(map(str, classes)), confusion=_confusion(result.get("confusion"), len(classes)),
        tsne=_tsne(part("tsne")), silhouettes={str(k): to_float(v) for k, v in part("silhouette").items()},
        roc=_roc(part("roc")), calibration=_calibration(part("calibration")),
        over_time=_over_time(part("over_time"), cut, note),
        records=[one for one in (_record(record, cut) for record in records) if one][:RECORDS],
        bands=[one for one in map(_band, _dicts(result.get("bands"))) if one][:RECORDS],
        coupling=_coupling(part("coupling"), part("row_distance"), "variables" in result),
        errors=_errors(part("errors")))


def _confusion(matrix: Any, count: int) -> dict[str, Any] | None:
    """Return the counts and the accuracy of each class (None for a class without samples)."""
    if not isinstance(matrix, list) or count == 0 or len(matrix) != count:
        return None
    if not all(isinstance(row, list) and len(row) == count and all(type(n) is int and n >= 0 for n in row)
               for row in matrix):
        return None
    return {"counts": matrix, "accuracy": [row[i] / sum(row) if sum(row) else None for i, row in enumerate(matrix)]}


def _tsne(points: dict[str, Any]) -> dict[str, Any] | None:
    """Return the t-SNE points with labels and indices, or None if they are malformed."""
    x, y, label = (points.get(k) for k in ("x", "y", "label"))
    if not (isinstance(x, list) and isinstance(y, list) and isinstance(label, list)) or not x:
        return None
    if not len(x) == len(y) == len(label) or not all(type(n) is int and n >= 0 for n in label):
        return None
    if not all(isinstance(v, int | float) for v in (*x, *y)):
        return None
    index = points.get("index")
    whole = isinstance(index, list) and len(index) == len(x) and all(type(n) is int for n in index)
    return {"x": [round(v, 2) for v in x], "y": [round(v, 2) for v in y], "label": label,
            "index": index if whole else list(range(len(x)))}


def _roc(value: dict[str, Any]) -> Roc | None:
    fpr, tpr = _points(value, "fpr", "tpr")
    if len(fpr) < 2 or not all(-1e-9 <= v <= 1 + 1e-9 for v in (*fpr, *tpr)):
        return None
    every = -(-len(fpr) // POINTS)
    kept = [*range(0, len(fpr) - 1, every), len(fpr) - 1]
    return Roc([fpr[i] for i in kept], [tpr[i] for i in kept], finite(value.get("auc")))


def _calibration(value: dict[str, Any]) -> Calibration | None:
    predicted, observed = _columns(value, "predicted", "observed")
    rows = [(p, o, n) for p, o, n in zip(predicted, observed, _counts(value, len(predicted)), strict=True)
            if p is not None and o is not None]
    return Calibration([p for p, _, _ in rows], [o for _, o, _ in rows], [n for _, _, n in rows]) if rows else None


def _over_time(value: dict[str, Any], cut: float | None, note: str) -> OverTime | None:
    t, mse = _columns(value, "t", "mse")
    kept = sorted((at, i) for i, at in enumerate(t) if at is not None)
    if not kept or all(v is None for v in mse):
        return None
    count, negll = _counts(value, len(t)), _numbers(value.get("negll"))
    has_negll = len(negll) == len(t) and any(v is not None for v in negll)
    time, unit, note = _clock(value, _text(value.get("unit_note")) or note)
    return OverTime([time(at) for at, _ in kept], [mse[i] for _, i in kept], [count[i] for _, i in kept], unit,
                    [negll[i] for _, i in kept] if has_negll else [], None if cut is None else time(cut), note)


def _band(value: dict[str, Any]) -> Band | None:
    t = [at for v in _items(value.get("t")) if (at := finite(v)) is not None]
    guess, truth = ([_whole(v) for v in _items(value.get(key))] for key in ("predicted", "true"))
    if not len(t) == len(_items(value.get("t"))) == len(guess) or len(truth) not in (0, len(t)) or not any(
            v is not None for v in guess):
        return None
    order, truth = sorted(range(len(t)), key=lambda i: t[i]), truth or [None] * len(t)
    times, guess, truth = [t[i] for i in order], [guess[i] for i in order], [truth[i] for i in order]
    known = [a == b for a, b in zip(guess, truth, strict=True) if b is not None]
    return Band(_text(value.get("id")), _text(value.get("unit"), 12), _intervals(times, truth),
                _intervals(times, guess), sum(known) / len(known) if known else None)


def _intervals(t: Numbers, classes: Sequence[int | None]) -> list[tuple[float, float, int]]:
    """Join points of one class into intervals; each point extends halfway to its neighbours."""
    half = (t[-1] - t[0]) / (2 * (len(t) - 1)) if t[-1] > t[0] else 0.5
    edges = [t[0] - half, *((a + b) / 2 for a, b in pairwise(t)), t[-1] + half]
    found: list[tuple[float, float, int]] = []
    for (begin, end), kind in zip(pairwise(edges), classes, strict=True):
        if kind is not None and found and found[-1][1:] == (begin, kind):
            begin = found.pop()[0]
        if kind is not None:
            found.append((begin, end, kind))
    return found[:POINTS]


def _coupling(value: dict[str, Any], distance: dict[str, Any], named: bool) -> Coupling | None:
    names = [_text(name, 40) for name in _items(value.get("names"))]
    if not 0 < len(names) <= NAMES:
        return None
    known, learned, influence = (_square(value.get(key), len(names)) for key in ("known", "learned", "influence"))
    if not (known or learned):
        return None
    found, acts = (score(_matrix(known), _matrix(x)) if known and x else None for x in (learned, influence))
    return Coupling(names, known, learned, _text(value.get("how"), 300), [variables.title(n) for n in names], found,
                    finite(distance.get("value")), named, influence, acts)


def _matrix(rows: list[OptionalNumbers]) -> np.ndarray:
    return np.array([[np.nan if v is None else v for v in row] for row in rows])


def _square(value: Any, side: int) -> list[OptionalNumbers] | None:
    rows = [_numbers(row) for row in _items(value)]
    good = len(rows) == side and all(len(row) == side for row in rows)
    return rows if good and any(v is not None for row in rows for v in row) else None


def _errors(value: dict[str, Any]) -> ErrorSummary | None:
    found = _dicts(value.get("by_variable"))[:NAMES]
    if all(finite(one.get("mse")) is None for one in found):
        return None
    titles = [*(variables.title(_text(one.get("name"), 40)) for one in found), "All"]
    table = pd.DataFrame([{"Variable": title, "Targets": _whole(one.get("count")), **{
        head: finite(one.get(key)) for head, key in ERRORS.items()}}
        for title, one in zip(titles, [*found, {**value, "share": 1.0}], strict=True)])
    for head in (head for head in ERRORS if head.endswith("(%)")):
        table[head] = (100 * table[head].astype(float)).round(1)
    return ErrorSummary(table.round(3), finite(value.get("mse_low")), finite(value.get("mse_high")))


# Records ------------------------------------------------------------------------------------------------------------

def days_of(note: str) -> float | None:
    """Return the days of a unit of time, from a note such as `one unit is 7.45 days.`; None if it has none."""
    found = _DAYS.fullmatch(note.strip())
    return float(found[1]) if found and float(found[1]) > 0 else None


def _clock(value: dict[str, Any], note: str) -> tuple[Callable[[float], float], str, str]:
    """Return what brings times to days if the note says how long their unit is, with their unit and what is to note."""
    days = days_of(note)
    return (lambda t: round(days * t, 3), "d", "") if days else (lambda t: t, _text(value.get("unit"), 12), note)


def _record(value: dict[str, Any], cut: float | None) -> SeriesRecord | None:
    """Read a record; `cut` is used if the record has no cut of its own."""
    time, unit, note = _clock(value, _text(value.get("unit_note")))
    whole = _text(value.get("value_unit")).removeprefix("in ")
    found = [v for v in (_variable(one, time, whole) for one in _dicts(value.get("variables"))) if v]
    jumps = sorted(t for t in _numbers(value.get("jumps")) if t is not None)[:POINTS]
    cut = finite(value["cut"]) if "cut" in value else cut
    return SeriesRecord(_text(value.get("id")), unit, None if cut is None else time(cut), found[:VARIABLES],
                        list(map(time, jumps)), _text(value.get("band")), note, len(found)) if found else None


def _variable(value: dict[str, Any], time: Callable[[float], float], unit: str) -> SeriesVariable | None:
    """Read a variable; `unit` is that of all variables of the record if it is known.

    Older results of PhysioNet do not say how values were normalised.
    """
    (t, x), (target_t, target_x) = _points(value, "t", "x"), _points(value, "target_t", "target_x")
    grid, mean = _columns(value, "grid", "mean")
    if None in grid:
        grid, mean = [], []
    low, high = _columns(value, "low", "high")
    if len(low) != len(grid):
        low, high = [], []
    if not (t or target_t or any(v is not None for v in mean)):
        return None
    name = _text(value.get("name"))
    shift, scale = finite(value.get("shift")), finite(value.get("scale"))

    def own(values: Iterable[float | None]) -> list[Any]:
        if shift is None or scale is None or (shift, scale) == (0.0, 1.0):
            return list(values)
        return [None if v is None else float(f"{v * scale + shift:.6g}") for v in values]

    if not unit:
        unit = _text(value["unit"], 24) if "unit" in value else \
            NORMALISED if name in variables.PHYSIONET else variables.unit(name)
    times = [float(v or 0) for v in grid]
    kept = kept_points(times)
    mean, low, high = (own(values[i] for i in kept if values) for values in (mean, low, high))
    return SeriesVariable(name, list(map(time, t)), own(x), list(map(time, target_t)), own(target_x),
                          [time(times[i]) for i in kept], mean, low, high, variables.title(name), unit)


def kept_points(grid: Sequence[float], most: int = POINTS) -> list[int]:
    """Choose the indices of at most about `most` points, with the last; both sides of a jump are kept or neither."""
    every = -(-len(grid) // most) or 1
    chosen = {*range(0, len(grid), every), *range(len(grid))[-1:]}
    if every > 1:
        chosen |= {j for i in chosen for j in (i - 1, i + 1) if 0 <= j < len(grid) and grid[j] == grid[i]}
    return sorted(chosen)


def caption(records: Sequence[SeriesRecord]) -> str:
    """Explain what the charts of these records show."""
    def first(name: str) -> str:
        return next((value for r in records if (value := getattr(r, name))), "")

    band, note = first("band"), first("unit_note")
    units = {v.unit for r in records for v in r.variables}
    lines = f"Lines: the model's mean, with a band of {band}" if band else \
        "Lines: the mean over the latent samples, with their spread as a band"
    if not any(v.low for r in records for v in r.variables):
        lines = "Lines: the model's predictions"
    cut = "; the forecast begins at the dotted line." if any(r.cut is not None for r in records) else "."
    parts = ["Filled points were observed, open points were held out.", lines + cut]
    if fewer := max((r for r in records if r.total > len(r.variables)), key=lambda r: r.total, default=None):
        parts.append(f"{len(fewer.variables)} of {fewer.total} variables are drawn.")
    if any(r.jumps for r in records):
        parts.append("Ticks along the bottom: times of observations, at which the state jumped.")
    parts += ["Values are standardised: in standard deviations from the mean."] * (variables.STANDARDISED in units)
    parts += ["Values are scaled as for the model; this result does not say by how much."] * (NORMALISED in units)
    parts += [time_note(note)] * bool(note)
    return " ".join(parts)


def time_note(note: str) -> str:
    """Write the length of a unit of time as a sentence; empty if it is unknown."""
    return f"Time: {note.rstrip('.')}." if note else ""


# Checked values -----------------------------------------------------------------------------------------------------

def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in _items(value) if isinstance(one, dict)]


def _text(value: Any, most: int = 60) -> str:
    """Return a text or number as a text of at most so many characters; empty for anything else."""
    return str(value)[:most] if isinstance(value, str | int | float) and not isinstance(value, bool) else ""


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**53 else None


def _numbers(value: Any) -> OptionalNumbers:
    """Return numbers, with None for those that are not finite; none if the list holds anything else."""
    return [] if any(to_float(v) is None for v in _items(value)) else [finite(v) for v in _items(value)]


def _columns(value: dict[str, Any], one: str, other: str) -> tuple[OptionalNumbers, OptionalNumbers]:
    """Return two lists of the same length; empty ones if they are missing or malformed."""
    a, b = _numbers(value.get(one)), _numbers(value.get(other))
    return (a, b) if len(a) == len(b) else ([], [])


def _points(value: dict[str, Any], one: str, other: str) -> tuple[Numbers, Numbers]:
    """Return the points that have both numbers."""
    points = [(a, b) for a, b in zip(*_columns(value, one, other), strict=True) if a is not None and b is not None]
    return [a for a, _ in points], [b for _, b in points]


def _counts(value: dict[str, Any], length: int) -> list[int | None]:
    """Return the counts, with None for what is not a count."""
    given = _items(value.get("count"))
    return [_whole(n) for n in given] if len(given) == length else [None] * length
