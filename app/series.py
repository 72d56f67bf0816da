"""Results of time series that are lines: ROC, calibration, error over time, all chosen runs in one chart."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from html import escape
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from acenode.results.metric_format import MetricFormat
from acenode.results.result_charts import ResultCharts
from acenode.results.series_charts import SeriesCharts
from acenode.results.series_records import time_note
from acenode.runs.catalogue import Entry

from . import labels, say

QUIET = "#8a94a3"  # seen on light and dark: what belongs to no run
MARGIN = {"l": 10, "r": 10, "t": 10, "b": 10}


@dataclass(frozen=True)
class Error:
    """How an error over time is called."""

    title: str
    short: str


ERRORS = {"mse": Error("Mean squared error", "MSE"), "negll": Error("Negative log-likelihood", "NegLL")}


@dataclass(frozen=True)
class Line:
    """A run as these charts show it."""

    id: str
    name: str
    colour: str
    measure: MetricFormat
    classes: list[str]
    series: SeriesCharts

    @property
    def tag(self) -> str:
        """The name as a chart takes it, which knows some markup."""
        return escape(self.name)


def lines(chosen: list[Entry], found: list[tuple[Entry, ResultCharts]],
          groups: dict[str, str] | None = None) -> list[Line]:
    """The runs in the colours that they have among all that are chosen; equal names are told apart by the id."""
    names = {e.id: f"{groups[e.id] if groups else labels.group(e)} · seed {e.seed}" for e, _ in found}
    twice = Counter(names.values())
    kinds = {e.id: groups[e.id] if groups else labels.label(e) for e in chosen}
    colour = labels.colours(kinds.values())
    return [Line(e.id, names[e.id] + (f" · {e.id[-4:]}" if twice[names[e.id]] > 1 else ""), colour[kinds[e.id]],
                 labels.measure_of(e), o.classes, o.series) for e, o in found]


def show_roc(runs: list[Line], key: str) -> None:
    draw(roc(runs), key, "The share of the positives that is found against the share of the negatives that is taken "
         "for one, as the threshold falls. The diagonal is chance.", [r for r in runs if not r.series.roc])


def show_calibration(runs: list[Line], key: str) -> None:
    draw(calibration(runs), key, "How often it happened where the model gave it a probability. On the diagonal the "
         "probabilities can be taken at their word; a larger mark stands for more cases.",
         [r for r in runs if not r.series.calibration])


def show_over_time(runs: list[Line], key: str) -> None:
    there = [r.series.over_time for r in runs if r.series.over_time]
    which = "mse"
    if any(found.negll for found in there):
        which = st.segmented_control("Error", list(ERRORS), default="mse", format_func=lambda e: ERRORS[e].short,
                                     key=f"{key}/error", required=True, label_visibility="collapsed") or "mse"
    note = next((found.unit_note for found in there if found.unit_note), "")
    draw(over_time(runs, which), f"{key}/{which}",
         f"{ERRORS[which].title} of what was predicted, by the time it was predicted for. Every point "
         f"counts; the test metric of a forecast is of the first few. {say.plain(time_note(note))}",
         [r for r in runs if not (r.series.over_time and getattr(r.series.over_time, which))])


def draw(figure: go.Figure, key: str, caption: str, without: list[Line]) -> None:
    st.caption(caption)
    st.plotly_chart(figure, key=key, config={"displaylogo": False})
    missing(without)


def missing(runs: list[Line]) -> None:
    """Who is not in the picture."""
    if runs:
        names = say.plain(", ".join(run.name for run in runs))
        st.caption(f"{names}: nothing of this in the result, as of a method that does not say it.")


def roc(runs: list[Line]) -> go.Figure:
    figure = _square("false positives", "true positives")
    for run in runs:
        found = run.series.roc
        if found:
            said = f" · AUC {found.auc:.3f}" if found.auc is not None else ""
            figure.add_scatter(x=found.fpr, y=found.tpr, mode="lines", name=run.tag + said,
                               line={"color": run.colour, "width": 2},
                               hovertemplate="%{y:.1%} found, %{x:.1%} false alarms<extra>" + run.tag + "</extra>")
    return figure


def calibration(runs: list[Line]) -> go.Figure:
    figure = _square("predicted probability", "observed share")
    most = max((n for r in runs if r.series.calibration for n in r.series.calibration.count if n), default=1)
    for run in runs:
        found = run.series.calibration
        if found:
            sizes = [6 + 12 * ((n or 0) / most) ** 0.5 for n in found.count]
            figure.add_scatter(
                x=found.predicted, y=found.observed, mode="lines+markers", name=run.tag,
                line={"color": run.colour, "width": 1.5}, marker={"size": sizes, "color": run.colour, "opacity": 0.85},
                customdata=["?" if n is None else f"{n:,}" for n in found.count],
                hovertemplate="predicted %{x:.2f}, observed %{y:.2f}<br>%{customdata} cases<extra>" + run.tag
                              + "</extra>")
    return figure


def over_time(runs: list[Line], which: str = "mse") -> go.Figure:
    figure = go.Figure()
    drawn = [(r, found, r.measure) for r in runs if (found := r.series.over_time) and getattr(found, which)]
    # the unit of the paper only where all of them have it
    scales = {m.scale for _, _, m in drawn if m.name.startswith("mse")}
    ours = which == "mse" and len(scales) == 1 and all(m.name.startswith("mse") for _, _, m in drawn)
    scale = scales.pop() if ours else 1.0
    for run, found, _ in drawn:
        figure.add_scatter(
            x=found.t, y=[None if v is None else v * scale for v in getattr(found, which)], mode="lines+markers",
            name=run.tag, line={"color": run.colour, "width": 2}, marker={"size": 5}, connectgaps=False,
            customdata=["?" if n is None else f"{n:,}" for n in found.count],
            hovertemplate="%{y:.4g} at %{x:.3~g}" + escape(f" {found.unit}".rstrip()) + ", %{customdata} points<extra>"
                          + run.tag + "</extra>")
    units = {found.unit for _, found, _ in drawn if found.unit}
    figure.update_layout(height=440, margin=MARGIN, legend=LEGEND)
    figure.update_xaxes(title=time_axis(units.pop() if len(units) == 1 else ""), zeroline=False)
    figure.update_yaxes(title=ERRORS[which].short + " ×10⁻³" * (scale == 1e3),
                        rangemode="tozero" if which == "mse" else "normal", zeroline=False)
    mark_cut(figure, {found.cut for _, found, _ in drawn if found.cut is not None and found.t[0] < found.cut})
    return figure


def mark_cut(figure: go.Figure, cuts: set[float | None]) -> None:
    """A thin line where forecasts begin, on every chart of the figure; the first one says so."""
    for cut in cuts - {None}:
        figure.add_vline(x=cut, line={"color": QUIET, "width": 1, "dash": "dot"})
        figure.add_annotation(x=cut, y=1, xref="x", yref="y domain", text="forecast from here", showarrow=False,
                              xanchor="left", yanchor="bottom", font={"color": QUIET, "size": 11})


LEGEND: dict[str, Any] = {"orientation": "h", "x": 0, "y": -0.2, "yanchor": "top"}  # below, as many lines as it takes


ABOVE = 92  # pixels over the charts: their titles, the legend, and the buttons that appear under the pointer


def legend_above(pixels: int, height: int) -> dict[str, Any]:
    """So far above the charts of a figure of that height, over their titles."""
    return {"orientation": "h", "x": 0, "y": 1 + pixels / height, "yanchor": "bottom"}


TIMES = {"h": "time (hours)", "s": "time (seconds)", "min": "time (minutes)", "d": "time (days)"}


def time_axis(unit: str) -> str:
    return TIMES.get(unit, f"time ({escape(unit)})" if unit else "time")


def _square(x: str, y: str) -> go.Figure:
    """A unit square with its diagonal."""
    figure = go.Figure()
    figure.add_scatter(x=[0, 1], y=[0, 1], mode="lines", line={"color": QUIET, "width": 1.5, "dash": "dot"},
                       hoverinfo="skip", showlegend=False)
    figure.update_layout(height=520, margin=MARGIN, legend=LEGEND)
    figure.update_xaxes(title=x, range=[-0.02, 1.02], constrain="domain", constraintoward="left", zeroline=False)
    figure.update_yaxes(title=y, range=[-0.02, 1.02], scaleanchor="x", constrain="domain", zeroline=False)
    return figure
