"""How variables influence each other: the known coupling beside the one a run has learned."""

from __future__ import annotations

from html import escape

import plotly.graph_objects as go
import streamlit as st
from plotly.subplots import make_subplots

from acenode.results.series_charts import Coupling

from . import messages
from .charts import CONFIG, ChartedRun, note_missing

# Zero is transparent, so that it takes the page's background, light or dark.
SCALE = [[0.0, "rgba(43,98,217,1)"], [0.499, "rgba(43,98,217,0.03)"], [0.501, "rgba(217,102,43,0.03)"],
         [1.0, "rgba(217,102,43,1)"]]


def show(runs: list[ChartedRun], key: str) -> None:
    """Show the matrices of each run."""
    st.caption("Row i, column j: influence of variable j on variable i. Learned values are relative to uniform "
               "attention. Orange: positive. Blue: negative. Each matrix has its own scale.")
    for run in runs:
        found = run.series.coupling
        if found is None:
            continue
        st.markdown(f"**{messages.escape(run.name)}**")
        st.plotly_chart(heatmaps(found), key=f"{key}/{run.id}", config=CONFIG)
        if found.how:
            st.caption(f"Learned: {messages.escape(found.how)}")
    note_missing([run for run in runs if run.series.coupling is None])


def heatmaps(found: Coupling) -> go.Figure:
    """Draw the known and the learned matrix side by side; only the left one names its rows."""
    sides = [(title, z) for title, z in (("Known", found.known), ("Learned", found.learned)) if z is not None]
    figure = make_subplots(1, len(sides), subplot_titles=[title for title, _ in sides], horizontal_spacing=0.12)
    names, titles = ([escape(n) for n in texts] for texts in (found.names, found.titles))
    for i, (_, z) in enumerate(sides):
        largest = max((abs(v) for row in z for v in row if v is not None), default=1.0) or 1.0
        right_edge = figure.layout["xaxis" if i == 0 else f"xaxis{i + 1}"].domain[1]
        figure.add_heatmap(
            z=z, x=names, y=titles, zmin=-largest, zmax=largest, colorscale=SCALE, xgap=1, ygap=1,
            colorbar={"x": right_edge + 0.01, "thickness": 10, "outlinewidth": 0, "nticks": 5},
            hovertemplate="%{y} ← %{x}: %{z:.3g}<extra></extra>", row=1, col=i + 1)
    figure.update_layout(height=min(260 + 22 * len(names), 660), margin={"l": 10, "r": 10, "t": 34, "b": 10})
    figure.update_xaxes(title="Influencing variable", type="category", showgrid=False, zeroline=False)
    figure.update_yaxes(type="category", showgrid=False, zeroline=False, autorange="reversed")
    figure.update_yaxes(title="Influenced variable", col=1)
    if len(sides) > 1:
        figure.update_yaxes(showticklabels=False, ticks="", col=2)
    return figure
