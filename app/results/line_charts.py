"""Line charts of test results, all chosen runs in one chart: ROC, calibration, error over time."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go
import streamlit as st

from acenode.compare.metric_format import error_title
from acenode.compare.series_records import time_note

from .. import messages
from .charts import LEGEND, MARGIN, NEUTRAL, ChartedRun, draw, mark_forecast, time_axis


@dataclass(frozen=True)
class ErrorKind:
    """An error that can be drawn over time."""

    title: str
    short: str


ERRORS = {"mse": ErrorKind("Mean squared error", "MSE"), "negll": ErrorKind("Negative log-likelihood", "NegLL")}


def show_roc(runs: list[ChartedRun], key: str) -> None:
    """Show the ROC curves."""
    draw(roc(runs), key, "True positive rate against false positive rate at every threshold. The dotted diagonal is "
         "chance.", [r for r in runs if not r.series.roc])


def show_calibration(runs: list[ChartedRun], key: str) -> None:
    """Show observed frequencies against predicted probabilities."""
    draw(calibration(runs), key, "How often the event occurred among cases with a similar predicted probability. A "
         "well calibrated model lies on the diagonal. Larger markers stand for more cases.",
         [r for r in runs if not r.series.calibration])


def show_over_time(runs: list[ChartedRun], key: str) -> None:
    """Show the error against the time of the predicted value, with a choice of the error."""
    found = [r.series.over_time for r in runs if r.series.over_time]
    which = "mse"
    if any(over_time.negll for over_time in found):
        which = st.segmented_control("Error", list(ERRORS), default="mse", format_func=lambda e: ERRORS[e].short,
                                     key=f"{key}/error", required=True, label_visibility="collapsed") or "mse"
    note = next((over_time.unit_note for over_time in found if over_time.unit_note), "")
    is_forecast = any(over_time.cut is not None for over_time in found)
    forecast = "The test metric uses only the first few points of a forecast. " * is_forecast
    draw(over_time(runs, which), f"{key}/{which}",
         f"{ERRORS[which].title} by the time of the predicted value, over all predicted points. {forecast}"
         f"{messages.escape(time_note(note))}",
         [r for r in runs if not (r.series.over_time and getattr(r.series.over_time, which))])


def roc(runs: list[ChartedRun]) -> go.Figure:
    """Draw one ROC curve for each run, with its AUC in the legend."""
    figure = _unit_square("False positive rate", "True positive rate")
    for run in runs:
        found = run.series.roc
        if found:
            auc = f" · AUC {found.auc:.3f}" if found.auc is not None else ""
            figure.add_scatter(x=found.fpr, y=found.tpr, mode="lines", name=run.html_name + auc,
                               line={"color": run.colour, "width": 2},
                               hovertemplate="true positive rate %{y:.1%}, false positive rate %{x:.1%}<extra>"
                                             + run.html_name + "</extra>")
    return figure


def calibration(runs: list[ChartedRun]) -> go.Figure:
    """Draw one calibration curve for each run; a marker's area follows the number of cases."""
    figure = _unit_square("Predicted probability", "Observed frequency")
    largest = max((n for r in runs if r.series.calibration for n in r.series.calibration.count if n), default=1)
    for run in runs:
        found = run.series.calibration
        if found:
            sizes = [6 + 12 * ((n or 0) / largest) ** 0.5 for n in found.count]
            figure.add_scatter(
                x=found.predicted, y=found.observed, mode="lines+markers", name=run.html_name,
                line={"color": run.colour, "width": 1.5}, marker={"size": sizes, "color": run.colour, "opacity": 0.85},
                customdata=["?" if n is None else f"{n:,}" for n in found.count],
                hovertemplate="predicted %{x:.2f}, observed %{y:.2f}<br>%{customdata} cases<extra>" + run.html_name
                              + "</extra>")
    return figure


def over_time(runs: list[ChartedRun], which: str = "mse") -> go.Figure:
    """Draw one of `ERRORS` over time, in the paper's unit if all runs are measured in it."""
    figure = go.Figure()
    drawn = [(r, found, r.measure) for r in runs if (found := r.series.over_time) and getattr(found, which)]
    scales = {measure.scale for _, _, measure in drawn if measure.name.startswith("mse")}
    one_scale = which == "mse" and len(scales) == 1 and all(m.name.startswith("mse") for _, _, m in drawn)
    scale = scales.pop() if one_scale else 1.0
    for run, found, _ in drawn:
        figure.add_scatter(
            x=found.t, y=[None if v is None else v * scale for v in getattr(found, which)], mode="lines+markers",
            name=run.html_name, line={"color": run.colour, "width": 2}, marker={"size": 5}, connectgaps=False,
            customdata=["?" if n is None else f"{n:,}" for n in found.count],
            hovertemplate="%{y:.4g} at %{x:.3~g}" + escape(f" {found.unit}".rstrip()) + ", %{customdata} points<extra>"
                          + run.html_name + "</extra>")
    figure.update_layout(height=440, margin=MARGIN, legend=LEGEND)
    figure.update_xaxes(title=time_axis({found.unit for _, found, _ in drawn if found.unit}), zeroline=False)
    figure.update_yaxes(title=error_title(ERRORS[which].short, {run.experiment for run, _, _ in drawn}, scale),
                        rangemode="tozero" if which == "mse" else "normal", zeroline=False)
    mark_forecast(figure, {found.cut for _, found, _ in drawn if found.cut is not None and found.t[0] < found.cut})
    return figure


def _unit_square(x: str, y: str) -> go.Figure:
    """Return an empty chart from 0 to 1 on both axes, with its diagonal."""
    figure = go.Figure()
    figure.add_scatter(x=[0, 1], y=[0, 1], mode="lines", line={"color": NEUTRAL, "width": 1.5, "dash": "dot"},
                       hoverinfo="skip", showlegend=False)
    figure.update_layout(height=520, margin=MARGIN, legend=LEGEND)
    figure.update_xaxes(title=x, range=[-0.02, 1.02], constrain="domain", constraintoward="left", zeroline=False)
    figure.update_yaxes(title=y, range=[-0.02, 1.02], scaleanchor="x", constrain="domain", zeroline=False)
    return figure
