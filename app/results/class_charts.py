"""Charts of classifications, one for each run: confusion matrix, t-SNE of the features, silhouettes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from html import escape
from random import Random

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from acenode.compare.class_colours import class_colour
from acenode.compare.result_charts import ResultCharts
from acenode.runs.entry import Entry

from .. import labels, messages
from .charts import CONFIG, MARGIN

COLUMNS = 3  # charts in a row
MAX_POINTS = 6000  # of all t-SNE charts together
# Zero is transparent, so that it takes the page's background, light or dark; one mistake is visible.
SHARES = [[0.0, "rgba(43,98,217,0)"], [1e-4, "rgba(43,98,217,0.14)"], [1.0, "rgba(43,98,217,1)"]]
REPRESENTATIONS = {"features": "Features", "logits": "Logits", "tsne": "t-SNE"}

Results = list[tuple[Entry, ResultCharts]]


def show_confusion(found: Results, key: str) -> None:
    """Show a confusion matrix for each run, or why it has none."""
    _side_by_side(found, confusion, lambda result: result.no_confusion, key)


def show_tsne(found: Results, key: str) -> None:
    """Show the t-SNE of each run's features, or why it has none."""
    most = max(MAX_POINTS // len(found), 1)
    if any(result.tsne and len(result.tsne["label"]) > most for _, result in found):
        st.caption(f"At most {most:,} points of each run.")
    _side_by_side(found, partial(tsne, most=most), lambda result: result.no_tsne, key)


def show_silhouettes(found: Results) -> None:
    """Show the silhouettes of all runs in one table."""
    st.caption("Silhouette of k-means clusters of each representation, with as many clusters as classes. "
               "1: well separated. 0: overlapping.")
    rows = [{"Run": labels.label(e), **{k: v for k, v in o.silhouettes.items() if v is not None}} for e, o in found]
    st.dataframe(pd.DataFrame(rows).rename(columns=REPRESENTATIONS), hide_index=True, placeholder="")


def _side_by_side(found: Results, draw: Callable[[ResultCharts], go.Figure | None],
                  reason: Callable[[ResultCharts], str | None], key: str) -> None:
    columns = st.columns(min(COLUMNS, len(found)))
    for i, (entry, result) in enumerate(found):
        with columns[i % len(columns)]:
            st.caption(messages.escape(labels.label(entry)))
            figure = draw(result)
            if figure is None:
                st.caption(reason(result) or "")
            else:
                st.plotly_chart(figure, key=f"{key}/{entry.id}", config=CONFIG)


def confusion(result: ResultCharts) -> go.Figure | None:
    """Draw the confusion matrix, coloured by the share of each true class."""
    if result.confusion is None:
        return None
    names, counts = [escape(c) for c in result.classes], result.confusion["counts"]
    shares = [[n / (sum(row) or 1) for n in row] for row in counts]
    few = len(names) <= 12
    text = [[str(n) if n else "" for n in row] for row in counts]  # zeros would only distract
    ink = "#f4f6fb" if st.context.theme.type == "dark" else None  # plotly would assume a white background
    figure = go.Figure(go.Heatmap(
        z=shares, x=names, y=names, customdata=counts, colorscale=SHARES, zmin=0, zmax=1, xgap=1, ygap=1,
        text=text if few else None, texttemplate="%{text}" if few else None, textfont={"color": ink}, showscale=False,
        hovertemplate="true %{y}, predicted %{x}: %{customdata} (%{z:.1%})<extra></extra>"))
    figure.update_layout(height=380, margin=MARGIN)
    figure.update_xaxes(title="Predicted class", type="category", constrain="domain", showgrid=False)
    figure.update_yaxes(title="True class", type="category", autorange="reversed", scaleanchor="x", showgrid=False)
    return figure


def tsne(result: ResultCharts, most: int = MAX_POINTS) -> go.Figure | None:
    """Draw at most so many t-SNE points, coloured by class, with the same scale on both axes.

    They are drawn as SVG: a browser has few WebGL contexts, and the charts of many runs would take each other's.
    """
    if result.tsne is None:
        return None
    count = len(result.tsne["label"])
    chosen = sorted(Random(0).sample(range(count), min(count, most)))
    points = {name: [values[i] for i in chosen] for name, values in result.tsne.items()}
    figure = go.Figure()
    for n in sorted(set(points["label"])):
        name = escape(result.classes[n]) if n < len(result.classes) else str(n)
        own = [i for i, label in enumerate(points["label"]) if label == n]
        figure.add_scatter(x=[points["x"][i] for i in own], y=[points["y"][i] for i in own], mode="markers", name=name,
                           marker={"size": 5, "color": class_colour(n), "opacity": 0.8},
                           customdata=[points["index"][i] for i in own],
                           hovertemplate=f"{name}, test sample %{{customdata}}<extra></extra>")
    figure.update_layout(height=460, margin={**MARGIN, "b": 80}, legend={
        "itemsizing": "constant", "orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"})
    hidden = {"showticklabels": False, "zeroline": False, "showgrid": False}  # t-SNE coordinates have no meaning
    figure.update_xaxes(title="t-SNE 1", constrain="domain", **hidden)
    figure.update_yaxes(title="t-SNE 2", scaleanchor="x", **hidden)
    return figure
