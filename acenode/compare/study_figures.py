"""The figures of a study: every run by group, differences to the baseline, and validation over the epochs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from html import escape
from statistics import mean

import numpy as np
import plotly.graph_objects as go

from acenode.compare.colours import NEUTRAL, PALETTE
from acenode.compare.figures import add_band
from acenode.compare.metrics import axis_index, finite, read_records
from acenode.compare.study_answer import StudyReport
from acenode.compare.study_grid import GridRow
from acenode.files import Stamp, stamp
from acenode.runs.questions import MAX_RUNS
from acenode.runs.store import Run

RUNS, MEANS = "#3b7dd8", "#c2541b"
ROW, AROUND = 34, 110  # pixels of a group, and above and below the plot
LEGEND = {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"}
Curve = list[tuple[int, float, float, float]]  # epoch, mean, smallest, largest


@dataclass(frozen=True)
class StudyFigure:
    """A figure with the end of its file's name."""

    name: str
    title: str
    figure: go.Figure


def study_figures(found: StudyReport) -> list[StudyFigure]:
    """Draw the figures for which there are values."""
    made = (("results", "Every run by group", results(found)),
            ("differences", f"Difference to {found.grid.baseline.name}", differences(found)),
            ("curves", "Validation during training", curves(found)))
    return [StudyFigure(name, title, figure) for name, title, figure in made if figure is not None]


def results(found: StudyReport) -> go.Figure | None:
    """Draw every run of every group as a dot, the means, and the trivial references that are near them."""
    measure, rows = found.grid.measure, found.grid.rows
    points = [(value * measure.scale, escape(row.name)) for row in rows for value in row.values.values()]
    if not points:
        return None
    means = [(row.mean * measure.scale, escape(row.name)) for row in rows if row.mean is not None]
    figure = go.Figure()
    for name, shown, marker in (("Runs", points, {"size": 11, "color": RUNS, "opacity": 0.75}),
                                ("Means", means, {"symbol": "line-ns-open", "size": 22, "color": MEANS,
                                                  "line": {"width": 3, "color": MEANS}})):
        figure.add_scatter(x=[x for x, _ in shown], y=[y for _, y in shown], mode="markers", name=name, marker=marker,
                           hovertemplate="%{y}: %{x:.4g}<extra></extra>")
    low, high = min(points)[0], max(points)[0]
    spread = (high - low) or abs(high) or 1.0
    for reference in found.references:
        at = reference.value * measure.scale
        if low - spread <= at <= high + spread:
            line = {"color": NEUTRAL, "dash": "dash"}
            figure.add_vline(x=at, line=line)
            figure.add_scatter(x=[None], y=[None], mode="lines", name=escape(reference.name), line=line)
    return _by_group(figure, [row.name for row in rows], f"Test {measure.heading}")


def differences(found: StudyReport) -> go.Figure | None:
    """Draw the difference of every group to the baseline with its 95% interval."""
    measure = found.grid.measure
    shown = {c.name: np.array([c.difference, *c.interval]) * measure.scale for c in found.answer.comparisons
             if c.difference is not None and c.interval is not None}
    if not shown:
        return None
    middle, low, high = np.array(list(shown.values())).T
    figure = go.Figure(go.Scatter(
        x=middle.tolist(), y=list(map(escape, shown)), mode="markers", marker={"size": 11, "color": RUNS},
        hovertemplate="%{y}: %{x:.4g}<extra></extra>", error_x={
            "array": (high - middle).tolist(), "arrayminus": (middle - low).tolist(), "symmetric": False,
            "color": RUNS, "thickness": 3, "width": 0}))
    figure.add_vline(x=0, line={"color": NEUTRAL, "width": 1.5})
    unit = " in points" if measure.unit == "%" else f" ({measure.unit.strip()})" if measure.unit.strip() else ""
    return _by_group(figure, list(shown),
                     f"Difference of test {measure.title}{unit}, with 95% interval")


def curves(found: StudyReport) -> go.Figure | None:
    """Draw the validation metric of every group over the epochs: the mean over runs, and a band of their range."""
    measure = found.grid.measure
    shown = {row.name: curve for row in found.grid.rows if (curve := validation_curve(row, measure.name))}
    if max((curve[-1][0] for curve in shown.values()), default=0) < 2:
        return None
    figure = go.Figure()
    for i, (name, curve) in enumerate(shown.items()):
        colour = PALETTE[i % len(PALETTE)]
        epochs, *values = zip(*curve, strict=True)
        middle, low, high = ([v * measure.scale for v in column] for column in values)
        add_band(figure, epochs, low, high, colour, name, 0.18)
        figure.add_scatter(x=epochs, y=middle, mode="lines", name=escape(name), legendgroup=name,
                           line={"color": colour, "width": 2.5}, hovertemplate="%{y:.4g}")
    figure.update_layout(height=420, margin={"l": 64, "r": 24, "t": 60, "b": 50}, legend=LEGEND, showlegend=True,
                         hovermode="x unified")
    figure.update_xaxes(title="Epoch")
    return figure.update_yaxes(title=f"Validation {measure.heading}, mean and range of runs")


def _by_group(figure: go.Figure, names: list[str], title: str) -> go.Figure:
    figure.update_layout(height=AROUND + ROW * len(names), margin={"l": 20, "r": 24, "t": 44, "b": 50}, legend=LEGEND,
                         showlegend=len(figure.data) > 1)
    figure.update_xaxes(title=title, zeroline=False)
    return figure.update_yaxes(categoryorder="array", categoryarray=[escape(name) for name in reversed(names)],
                               type="category", showgrid=False, automargin=True)


def validation_curve(row: GridRow, metric: str) -> Curve:
    """Return mean, smallest and largest validation value of a group's runs by epoch, as far as all runs have it."""
    files = ("metrics.jsonl", "metrics.jsonl.gz")
    every = [_by_epoch(run, f"validation_{metric}", tuple(stamp(run.path / name) for name in files))
             for run in (entry.run for entry in row.entries)]
    runs = [run for run in every if run]
    shared = sorted(set.intersection(*map(set, runs))) if runs else []
    columns = [[run[epoch] for run in runs] for epoch in shared]
    return [(epoch, mean(own), min(own), max(own)) for epoch, own in zip(shared, columns, strict=True)]


@lru_cache(maxsize=MAX_RUNS)
def _by_epoch(run: Run, key: str, stamps: tuple[Stamp | None, ...]) -> dict[int, float]:
    """Return the finite values of a key by epoch; `stamps` change whenever the metrics do."""
    found = {}
    for record in read_records(run).epochs:
        epoch, value = axis_index(record, "epoch"), finite(record.get(key))
        if epoch is not None and value is not None:
            found[epoch] = value
    return found
