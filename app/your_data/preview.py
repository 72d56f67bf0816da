"""What a set consists of: counts, gaps and ranges of its variables, and a plot of some series."""

from __future__ import annotations

from html import escape

import plotly.graph_objects as go
import streamlit as st
from plotly.subplots import make_subplots

from acenode.compare.colours import NEUTRAL, PALETTE
from acenode.data.importing.preview import SetSummary, split_text, summarise, summary_text, windows_text
from acenode.data.named_set import NamedSet

from .. import messages, text_table
from ..results.charts import CONFIG

DRAWN = 6  # variables in the plot
ROW = 105  # pixels


def show_counts(found: NamedSet, window: float | None) -> None:
    """Say how large a set is, how its windows overlap, how it is split and what is predicted.

    Args:
        found: the set.
        window: the length of its windows, None if series are whole.
    """
    summary, cut = summarise(found), window is not None
    st.markdown(f"**{messages.escape(summary_text(summary, found.time_unit, windows=cut))}**")
    parts = ", ".join(f"{count:,} for {word}" for count, word in
                      zip(summary.parts.values(), ("training", "validation", "test"), strict=True))
    origin = f". Time is counted from {found.time_origin}" if found.time_origin else ""
    classes = f". Classes: {', '.join(f'{name} {count:,}' for name, count in summary.classes.items())}" \
        if summary.classes else ""
    st.caption(messages.escape(f"{parts}{task_text(found)}{classes}{origin}"))
    st.caption(messages.escape(" ".join([*([windows_text(found, window)] if window is not None else []),
                                         split_text(found, windows=cut)])))


def show_variables(found: NamedSet, key: str) -> None:
    """Show gaps and ranges of the variables, and some series."""
    summary = summarise(found)
    text_table.show(variables_table(summary), "Gaps and range of each variable")
    st.plotly_chart(figure(found, summary), key=f"{key}/plot", config=CONFIG)
    st.caption(f"{len(summary.examples)} of {len(found):,} series, in their own units; gaps are left out")


def task_text(found: NamedSet) -> str:
    """Say what is predicted."""
    unit = f" {found.time_unit}" if found.time_unit else ""
    return {"forecast": f". The first {found.given:g}{unit} of each are given, the rest is forecast",
            "fill": ". A quarter of the values is held out and filled in",
            "classify": ". The class of each series is predicted"}[found.task]


def variables_table(summary: SetSummary) -> list[dict[str, object]]:
    """Return a row for each variable."""
    return [{"Variable": f"{v.name} ({v.unit})" if v.unit else v.name, "Values in all series": f"{v.observed:,}",
             "Gaps": f"{100 * v.gaps:.1f}%", "Lowest": f"{v.low:.4g}", "Mean": f"{v.mean:.4g}",
             "Highest": f"{v.high:.4g}"} for v in summary.variables]


def figure(found: NamedSet, summary: SetSummary) -> go.Figure:
    """Draw some series, a row for each variable; times count from the start of each series."""
    count = min(DRAWN, len(found.variables))
    drawn = make_subplots(count, 1, shared_xaxes=True, vertical_spacing=0.03)
    for place, i in enumerate(summary.examples):
        record, colour = found.series[i], PALETTE[place % len(PALETTE)]
        for v in range(count):
            seen = record.m[:, v]
            drawn.add_scatter(
                x=(record.t - record.t[0])[seen], y=record.x[seen, v], mode="lines+markers", name=escape(found.ids[i]),
                legendgroup=str(i), showlegend=v == 0, line={"color": colour, "width": 1.2}, marker={"size": 3.5},
                hovertemplate="%{y:.5g} at %{x:.4g}<extra>" + escape(found.ids[i]) + "</extra>", row=v + 1, col=1)
    for v in range(count):
        drawn.update_yaxes(title={"text": escape(axis_title(found, v)), "font": {"size": 11}}, zeroline=False, nticks=4,
                           row=v + 1, col=1)
    if found.task == "forecast":
        drawn.add_vline(x=found.given, line={"color": NEUTRAL, "width": 1, "dash": "dot"})
    unit = f" ({found.time_unit})" if found.time_unit else ""
    drawn.update_xaxes(title=escape(f"Time since the start of the series{unit}"), zeroline=False, row=count, col=1)
    drawn.update_layout(height=90 + ROW * count, margin={"l": 10, "r": 10, "t": 10, "b": 10},
                        legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0, "font": {"size": 11}})
    return drawn


def axis_title(found: NamedSet, variable: int) -> str:
    """Return the name of a variable with its unit."""
    unit = f" ({found.units[variable]})" if found.units[variable] else ""
    return f"{found.variables[variable]}{unit}"
