"""Chart data from result.json: confusion matrix and t-SNE, or why they are missing, and the charts of time series."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from acenode.compare import series_charts
from acenode.compare.metric_records import to_float
from acenode.compare.series_charts import SeriesCharts


@dataclass(frozen=True)
class ResultCharts:
    """Data that is ready to draw; `no_confusion` and `no_tsne` say why something is missing."""

    classes: list[str]
    confusion: dict[str, Any] | None
    no_confusion: str | None
    tsne: dict[str, Any] | None
    no_tsne: str | None
    silhouettes: dict[str, float | None]
    series: SeriesCharts = field(default_factory=SeriesCharts)


def read(result: dict[str, Any] | None, state: str) -> ResultCharts:
    """Read the chart data of a result; `state` is the state of a run that has none."""
    if result is None:
        why = f"The run is {state} and has no result: the test set is read once, after the last epoch."
        return ResultCharts([], None, why, None, why, {})
    names = result.get("classes")
    classes = [str(name) for name in names] if isinstance(names, list) else []
    confusion, tsne = _confusion(result.get("confusion"), len(classes)), _tsne(result.get("tsne"))
    silhouettes = result.get("silhouette")
    return ResultCharts(
        classes, confusion, None if confusion else "This experiment's result has no classes.",
        tsne, None if tsne else "The result has no t-SNE: the run was trained with analysis=false.",
        {str(k): to_float(v) for k, v in silhouettes.items()} if isinstance(silhouettes, dict) else {},
        series_charts.read(result),
    )


def _confusion(matrix: Any, count: int) -> dict[str, Any] | None:
    """Return the counts and the accuracy of each class (None for a class without samples)."""
    if not isinstance(matrix, list) or count == 0 or len(matrix) != count:
        return None
    if not all(isinstance(row, list) and len(row) == count and all(type(n) is int and n >= 0 for n in row)
               for row in matrix):
        return None
    return {"counts": matrix, "accuracy": [row[i] / sum(row) if sum(row) else None for i, row in enumerate(matrix)]}


def _tsne(points: Any) -> dict[str, Any] | None:
    """Return the t-SNE points with labels and indices, or None if they are malformed."""
    if not isinstance(points, dict):
        return None
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
