"""How variables influence each other: the known coupling beside the one a run has learned, and how well they match."""

from __future__ import annotations

from html import escape

import plotly.graph_objects as go
import streamlit as st
from plotly.subplots import make_subplots

from acenode.compare.series_charts import Coupling

from .. import messages
from .charts import CONFIG, ChartedRun, note_missing

# Zero is transparent, so that it takes the page's background, light or dark.
SCALE = [[0.0, "rgba(43,98,217,1)"], [0.499, "rgba(43,98,217,0.03)"], [0.501, "rgba(217,102,43,0.03)"],
         [1.0, "rgba(217,102,43,1)"]]
ONE, OWN = "One scale", "Own scales"


def show(runs: list[ChartedRun], key: str) -> None:
    """Show the matrices of each run with its score, all on one scale unless asked otherwise."""
    found = [(run, run.series.coupling) for run in runs if run.series.coupling is not None]
    st.caption("Row i, column j: the share of variable j in what flows into variable i from the other variables, less "
               "the share in a uniform flow. Orange: more than uniform. Blue: less. Links recovered: how many known "
               "links are among as many of the strongest learned ones. AUROC: the probability that a known link is "
               "ranked above a pair without one. Influence, where there is one: how strongly the state of variable j "
               "changes the derivative of variable i, |∂ḣ_i/∂h_j|. Learned matrices are those of the epoch that was "
               "tested, averaged over test series and time. The player shows single series, and the epoch it names.")
    scale = st.segmented_control("Scale", [ONE, OWN], default=ONE, key=f"{key}/scale", required=True,
                                 label_visibility="collapsed", help="With one scale, equal colours are equal values in "
                                 "all matrices; with own scales, weak patterns are visible")
    largest = max((v for _, coupling in found for v in _largest(coupling).values()), default=1.0)
    for run, coupling in found:
        st.markdown(f"**{messages.escape(run.name)}**")
        for text in coupling.words():
            st.markdown(messages.escape(text))
        st.plotly_chart(heatmaps(coupling, None if scale == OWN else largest), key=f"{key}/{run.id}", config=CONFIG)
        if coupling.how:
            st.caption(f"Learned: {messages.escape(coupling.how)}")
    note_missing([run for run in runs if run.series.coupling is None])


def _largest(found: Coupling) -> dict[str, float]:
    """Return the largest value of each matrix."""
    return {side: max((abs(v) for row in z for v in row if v is not None), default=1.0) or 1.0
            for side, z in found.shares().items()}


def heatmaps(found: Coupling, largest: float | None = None) -> go.Figure:
    """Draw the known and the learned matrix side by side; only the left one names its rows.

    Args:
        largest: the value at which the colours end, for all matrices; each has its own if None.
    """
    both = found.shares()
    figure = make_subplots(1, len(both), subplot_titles=[side.title() for side in both], horizontal_spacing=0.12)
    names, titles = ([escape(n) for n in texts] for texts in (found.names, found.titles))
    for i, (side, z) in enumerate(both.items()):
        end = _largest(found)[side] if largest is None else largest
        right_edge = figure.layout["xaxis" if i == 0 else f"xaxis{i + 1}"].domain[1]
        figure.add_heatmap(
            z=z, x=names, y=titles, zmin=-end, zmax=end, colorscale=SCALE, xgap=1, ygap=1,
            showscale=largest is None or i == len(both) - 1,
            colorbar={"x": right_edge + 0.01, "thickness": 10, "outlinewidth": 0, "nticks": 5, "tickformat": "+.0%",
                      "title": {"text": "vs uniform", "font": {"size": 11}}},
            hovertemplate="%{y} ← %{x}: %{z:+.1%}<extra></extra>", row=1, col=i + 1)
    figure.update_layout(height=min(290 + 22 * len(names), 690), margin={"l": 10, "r": 10, "t": 64, "b": 10})
    figure.update_xaxes(title="Influencing variable", type="category", showgrid=False, zeroline=False)
    figure.update_yaxes(type="category", showgrid=False, zeroline=False, autorange="reversed")
    figure.update_yaxes(title="Influenced variable", col=1)
    for column in range(2, len(both) + 1):
        figure.update_yaxes(showticklabels=False, ticks="", col=column)
    return figure
