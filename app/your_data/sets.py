"""The imported sets of the app's data folder, what they consist of, and errors of importing in the app's words."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

import plotly.graph_objects as go
import streamlit as st
from plotly.subplots import make_subplots

from acenode.compare.colours import NEUTRAL, PALETTE
from acenode.compare.study_grid import reserved_names
from acenode.data.importing.store import ImportedSets, SetSummary, split_text, summarise, summary_text, windows_text
from acenode.data.named_set import NamedSet
from acenode.errors import UserError
from acenode.files import stamp

from .. import messages, run_tables
from ..results import CONFIG
from ..services import services

SET = "set"  # query parameter: the name of a set
TASKS = {"forecast": "Forecast", "fill": "Fill in", "classify": "Classify"}
FLAG = re.compile(r" \(--[^)]*\)")  # how to do something on the command line
DRAWN, ROW = 6, 105  # variables in the plot of the preview, and the pixels of each


def imported_sets() -> ImportedSets:
    """Return the imported sets; they cannot have the names of experiments and of sets that runs were trained on."""
    return ImportedSets(services().data_root, lambda: reserved_names(services().catalogue))


def load(name: str) -> NamedSet:
    """Return a set, read once until its file changes. A UserError says why it cannot be read."""
    path = imported_sets().path(name)
    return _load(str(path), stamp(path / "set.npz"), stamp(path / "about.json"))


@st.cache_resource(max_entries=16, show_spinner=False)
def _load(path: str, arrays: object, about: object) -> NamedSet:
    return NamedSet.load(Path(path))


def window_of(name: str) -> float | None:
    """Return the length of a set's windows; None if its series are whole, or if that cannot be read."""
    try:
        return imported_sets().details(name).window
    except UserError:
        return None


def show_error(error: object) -> None:
    """Show what is wrong with a file, without the options of the command line."""
    messages.error(messages.capital(FLAG.sub("", str(error))))


def show_counts(found: NamedSet, window: float | None) -> None:
    """Say how large a set is, how its windows of this length overlap, how it is split and what is predicted."""
    summary, cut = summarise(found), window is not None
    st.markdown(f"**{messages.escape(summary_text(summary, found.time_unit, windows=cut))}**")
    parts = ", ".join(f"{count:,} for {word}" for count, word in
                      zip(summary.parts.values(), ("training", "validation", "test"), strict=True))
    unit = f" {found.time_unit}" if found.time_unit else ""
    task = {"forecast": f". The first {found.given:g}{unit} of each are given, the rest is forecast",
            "fill": ". A quarter of the values is held out and filled in",
            "classify": ". The class of each series is predicted"}[found.task]
    classes = f". Classes: {', '.join(f'{name} {count:,}' for name, count in summary.classes.items())}" \
        if summary.classes else ""
    origin = f". Time is counted from {found.time_origin}" if found.time_origin else ""
    st.caption(messages.escape(f"{parts}{task}{classes}{origin}"))
    st.caption(messages.escape(" ".join([*([windows_text(found, window)] if window is not None else []),
                                         split_text(found, windows=cut)])))


def show_variables(found: NamedSet, key: str) -> None:
    summary = summarise(found)
    run_tables.show_texts([
        {"Variable": f"{v.name} ({v.unit})" if v.unit else v.name, "Values in all series": f"{v.observed:,}",
         "Gaps": f"{100 * v.gaps:.1f}%", "Lowest": f"{v.low:.4g}", "Mean": f"{v.mean:.4g}", "Highest": f"{v.high:.4g}"}
        for v in summary.variables], "Gaps and range of each variable")
    st.plotly_chart(preview_figure(found, summary), key=f"{key}/plot", config=CONFIG)
    st.caption(f"{len(summary.examples)} of {len(found):,} series, in their own units; gaps are left out")


def preview_figure(found: NamedSet, summary: SetSummary) -> go.Figure:
    drawn = variables_figure(found, DRAWN, ROW, 90)
    for place, i in enumerate(summary.examples):
        record, line = found.series[i], {"color": PALETTE[place % len(PALETTE)], "width": 1.2}
        for v in range(min(DRAWN, len(found.variables))):
            seen = record.m[:, v]
            add_series(drawn, v, escape(found.ids[i]), (record.t - record.t[0])[seen], record.x[seen, v],
                       mode="lines+markers", line=line, marker={"size": 3.5}, legendgroup=str(i))
    if found.task == "forecast":
        drawn.add_vline(x=found.given, line={"color": NEUTRAL, "width": 1, "dash": "dot"})
    return drawn.update_layout(legend_font_size=11)


def variables_figure(found: NamedSet, most: int, row: int, rest: int) -> go.Figure:
    """Return an empty figure with a row of so many pixels for each variable, and the rest beside the rows."""
    count = min(most, len(found.variables))
    drawn = make_subplots(count, 1, shared_xaxes=True, vertical_spacing=0.03)
    for v in range(count):
        unit = f" ({found.units[v]})" if found.units[v] else ""
        drawn.update_yaxes(title={"text": escape(f"{found.variables[v]}{unit}"), "font": {"size": 11}}, zeroline=False,
                           nticks=4, row=v + 1, col=1)
    unit = f" ({found.time_unit})" if found.time_unit else ""
    drawn.update_xaxes(title=escape(f"Time since the start of the series{unit}"), zeroline=False, row=count, col=1)
    return drawn.update_layout(height=rest + row * count, margin={"l": 10, "r": 10, "t": 10, "b": 10},
                               legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0})


def add_series(drawn: go.Figure, v: int, title: str, x: object, y: object, **look: object) -> None:
    """Draw values of variable v; `title` is HTML, and stands in the legend once."""
    drawn.add_scatter(x=x, y=y, name=title, showlegend=v == 0, row=v + 1, col=1,
                      hovertemplate="%{y:.5g} at %{x:.4g}<extra>" + title + "</extra>", **look)
