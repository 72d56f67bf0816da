"""How variables act on each other: what is known beside what a run has learned."""

from __future__ import annotations

from html import escape

import plotly.graph_objects as go
import streamlit as st
from plotly.subplots import make_subplots

from acenode.results.series_charts import Coupling

from . import say
from .series import Line, missing

# Nothing is see-through, so that it looks like nothing on light and on dark.
SCALE = [[0.0, "rgba(43,98,217,1)"], [0.499, "rgba(43,98,217,0.03)"], [0.501, "rgba(217,102,43,0.03)"],
         [1.0, "rgba(217,102,43,1)"]]


def show(runs: list[Line], key: str) -> None:
    st.caption("Row i, column j: how much variable i is moved by variable j; of what is learned, beyond an even share "
               "of all variables. Orange is above nothing, blue below; each matrix has a scale of its own.")
    for run in runs:
        found = run.series.coupling
        if found is None:
            continue
        st.markdown(f"**{say.plain(run.name)}**")
        st.plotly_chart(heatmaps(found), key=f"{key}/{run.id}", config={"displaylogo": False})
        if found.how:
            st.caption(f"Learned: {say.plain(found.how)}")
    missing([run for run in runs if run.series.coupling is None])


def heatmaps(found: Coupling) -> go.Figure:
    """Side by side; the rows are named in full, once."""
    sides = [(title, z) for title, z in (("known", found.known), ("learned", found.learned)) if z is not None]
    figure = make_subplots(1, len(sides), subplot_titles=[title for title, _ in sides], horizontal_spacing=0.12)
    names, titles = ([escape(n) for n in texts] for texts in (found.names, found.titles))
    for i, (_, z) in enumerate(sides):
        most = max((abs(v) for row in z for v in row if v is not None), default=1.0) or 1.0
        edge = figure.layout["xaxis" if i == 0 else f"xaxis{i + 1}"].domain[1]
        figure.add_heatmap(
            z=z, x=names, y=titles, zmin=-most, zmax=most, colorscale=SCALE, xgap=1, ygap=1,
            colorbar={"x": edge + 0.01, "thickness": 10, "outlinewidth": 0, "nticks": 5},
            hovertemplate="%{y} ← %{x}: %{z:.3g}<extra></extra>", row=1, col=i + 1)
    figure.update_layout(height=min(240 + 22 * len(names), 640), margin={"l": 10, "r": 10, "t": 34, "b": 10})
    figure.update_xaxes(type="category", showgrid=False, zeroline=False)
    figure.update_yaxes(type="category", showgrid=False, zeroline=False, autorange="reversed")
    if len(sides) > 1:
        figure.update_yaxes(showticklabels=False, ticks="", col=2)
    return figure
