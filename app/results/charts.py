"""What the charts of finished runs share: a run's name and colour, axes, legends and notes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from html import escape
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from acenode.compare.metric_format import MetricFormat
from acenode.compare.result_charts import ResultCharts
from acenode.compare.series_charts import SeriesCharts
from acenode.data.variables import SUBJECTS, subject_name
from acenode.player.snapshots import WORDS
from acenode.runs.entry import Entry

from .. import labels, messages
from ..url_state import current_values

NEUTRAL = "#8a94a3"  # visible on light and dark: for what belongs to no run
MARGIN = {"l": 10, "r": 10, "t": 10, "b": 10}
CONFIG = {"displaylogo": False}
LEGEND: dict[str, Any] = {"orientation": "h", "x": 0, "y": -0.2, "yanchor": "top"}  # below the chart
NAMED = 3  # runs that a line lists
HEADER = 92  # pixels above a figure's charts: titles, legend, and the buttons that appear on hover


@dataclass(frozen=True)
class ChartedRun:
    """A finished run with the name and colour that it has in every chart of the page."""

    id: str
    name: str
    colour: str
    measure: MetricFormat
    experiment: str
    classes: list[str]
    series: SeriesCharts

    @property
    def subject(self) -> str:
        """What a record is: patient, station or recording; empty if it is not known."""
        return SUBJECTS.get(self.experiment, "")

    @property
    def html_name(self) -> str:
        """The name for Plotly, which interprets some HTML tags."""
        return escape(self.name)


def charted_runs(chosen: list[Entry], found: list[tuple[Entry, ResultCharts]],
                 groups: dict[str, str] | None = None) -> list[ChartedRun]:
    """Name and colour the runs with results.

    Args:
        chosen: all runs on the page, which decide the colours.
        found: the finished ones among them, with their results.
        groups: the group of each run id; its runs share a colour. Without it every run has its own.

    Returns:
        One item for each of `found`; equal names end with the last characters of the run's id.
    """
    names = {e.id: f"{groups[e.id] if groups else labels.group(e)} · seed {e.seed}" for e, _ in found}
    uses = Counter(names.values())
    kinds = {e.id: groups[e.id] if groups else labels.label(e) for e in chosen}
    colour = labels.colours(kinds.values())
    return [ChartedRun(e.id, names[e.id] + (f" · {e.id[-4:]}" if uses[names[e.id]] > 1 else ""), colour[kinds[e.id]],
                       labels.measure_of(e), e.experiment, result.classes, result.series) for e, result in found]


def draw(figure: go.Figure, key: str, caption: str, without: list[ChartedRun]) -> None:
    """Show a figure under its caption, and name the runs that are not in it."""
    st.caption(caption)
    st.plotly_chart(figure, key=key, config=CONFIG)
    note_missing(without)


def note_missing(runs: list[ChartedRun]) -> None:
    """Name the runs whose results lack what a chart shows, the first few in the line and all of them in its help."""
    if not runs:
        return
    names = [messages.escape(run.name) for run in runs]
    more = len(names) - NAMED
    st.caption(f"Not available for {', '.join(names)}" if more < 1 else
               f"Not available for {', '.join(names[:NAMED])} and {more} more run{'s' * (more > 1)}",
               help="; ".join(names) if more > 0 else None)


def pick_record(runs: list[ChartedRun], key: str, known: list[str], everything: str = "") -> str | None:
    """Ask for a patient, station or recording by its id; the URL keeps the choice.

    An id that no run has, such as of the runs that the page showed before, is replaced by the first known one.

    Args:
        everything: an option that stands for all of them.
    """
    subjects = {run.subject for run in runs}
    subject = subjects.pop() if len(subjects) == 1 else ""
    names = {id: subject_name(subject, id) for id in known}
    names = {everything: everything, **names} if everything else names
    found = [subject_name(subject, value) for value in current_values(key)]  # the URL has names, the session ids
    if missing := [name for name in found if name not in names.values()]:
        st.session_state[key] = next(iter(names))
        st.caption(f"None of these runs kept {messages.escape(missing[0][:100])}, so another one is shown.")
    return st.selectbox((subject or "record").capitalize(), list(names), key=key, bind="query-params", width=260,
                        format_func=lambda id: names.get(id, id))


def mark_forecast(figure: go.Figure, times: set[float | None], in_legend: bool = False) -> None:
    """Draw a dotted line where forecasts start, in every chart of the figure; label it in the first one.

    Args:
        in_legend: explain it in the legend instead, if there is no room for the label.
    """
    for time in times - {None}:
        figure.add_vline(x=time, line={"color": NEUTRAL, "width": 1, "dash": "dot"})
        if in_legend:
            figure.add_scatter(x=[None], y=[None], mode="lines", name="Forecast starts", legendrank=2002,
                               line={"color": NEUTRAL, "width": 1, "dash": "dot"}, hoverinfo="skip", row=1, col=1)
            return
        figure.add_annotation(x=time, y=1, xref="x", yref="y domain", text="Forecast starts here", showarrow=False,
                              xanchor="left", yanchor="bottom", font={"color": NEUTRAL, "size": 11})


def legend_above(pixels: int, height: int) -> dict[str, Any]:
    """Place the legend that many pixels above the charts of a figure of the given height."""
    return {"orientation": "h", "x": 0, "y": 1 + pixels / height, "yanchor": "bottom"}


def time_axis(units: set[str]) -> str:
    """Return the title of a time axis; it names the unit if there is exactly one."""
    if len(units) != 1:
        return "Time"
    (unit,) = units
    return f"Time ({WORDS.get(unit, escape(unit))})"
