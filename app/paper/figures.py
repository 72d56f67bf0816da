"""The paper's figures from our runs: error over time, t-SNE with silhouettes, and attention over time."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from acenode import experiments
from acenode.compare import paper_figures
from acenode.compare.cells import Measured
from acenode.compare.class_colours import class_colour
from acenode.compare.metric_format import error_title
from acenode.compare.paper_figures import AttentionFrames, ErrorLine, TsnePanel
from acenode.compare.series_records import time_note

from .. import labels, messages
from ..results.charts import CONFIG, LEGEND, MARGIN, NEUTRAL, mark_forecast, time_axis

Values = Mapping[str, Measured]

OVER_TIME = {"USHCN": ("ushcn", None, False), "PhysioNet extrapolation": ("physionet-vitals", "extrapolation", False),
             "PhysioNet interpolation": ("physionet-vitals", "interpolation", False),
             "Types of attention": ("physionet-vitals", "extrapolation", True)}
MAIN = {"ace": labels.PALETTE[1], "augmented": labels.PALETTE[2],
        **dict.fromkeys(("latent-ode", "gru-ode-bayes"), labels.PALETTE[0])}
MAP_WIDTH, TSNE_WIDTH = 170, 280  # pixels
ATTENTION = [[0.0, "rgba(43,98,217,0.04)"], [1.0, "rgba(43,98,217,1)"]]
_OBSERVED = ("The table has smaller values: as in the published code, a variable that a patient never has counts there "
             "as one without error. ")
TABLE_COUNTS = {
    "USHCN": "The table counts the first three observations after the cut; these curves go on to the end. ",
    "PhysioNet extrapolation": _OBSERVED, "PhysioNet interpolation": _OBSERVED, "Types of attention": _OBSERVED}


def show(measured: Values) -> None:
    """Show the figures, one tab each; only the open one is drawn."""
    tabs = st.tabs(["Error over time", "t-SNE", "Attention over time"], key="figure", on_change="rerun",
                   bind="query-params")
    for tab, draw in zip(tabs, (show_errors, show_tsne, show_attention), strict=True):
        if tab.open:
            with tab:
                draw(measured)


def show_errors(measured: Values) -> None:
    """Show the error against the time of the predicted value, for one of the tasks."""
    name = st.segmented_control("Task", list(OVER_TIME), default="USHCN", key="paper/task", required=True,
                                label_visibility="collapsed") or "USHCN"
    cells = paper_figures.over_time_cells(*OVER_TIME[name])
    lines = paper_figures.error_lines(cells, measured)
    if not lines:
        st.info(f"No finished run on the full data has errors over time for {name} yet. Click a cell of its table and "
                "train what is missing.", icon=":material/show_chart:")
        return
    note = next((line.unit_note for line in lines if line.unit_note), "")
    counted = TABLE_COUNTS.get(name, "")
    st.caption("Mean squared error by the time of the predicted value, over all predicted points. Lines: mean over the "
               f"runs. Bands: smallest to largest. {counted}{messages.escape(time_note(note))} "
               f"{messages.escape(paper_figures.smallest_error_sentence(lines))}")
    st.plotly_chart(errors(lines), key=f"paper/errors/{name}", config=CONFIG)
    drawn = {line.cell.key for line in lines}
    without = [cell.title for cell in cells if cell.key not in drawn]
    if without:
        st.caption(f"Not measured yet: {messages.escape(', '.join(without))}")


def errors(lines: list[ErrorLine]) -> go.Figure:
    """Draw a line with a band for each method; ACE is thicker."""
    figure = go.Figure()
    colours = _colours(lines)
    for line in lines:
        colour, name = colours[line.cell.title], escape(line.cell.title)
        if line.runs > 1:
            figure.add_scatter(x=line.t + line.t[::-1], y=line.high + line.low[::-1], fill="toself", fillcolor=colour,
                               opacity=0.12, line={"width": 0}, mode="lines", hoverinfo="skip", showlegend=False,
                               legendgroup=line.cell.key)
        ours = line.cell.method == "ace" and not line.cell.ablation
        figure.add_scatter(
            x=line.t, y=line.mean, mode="lines+markers", name=f"{name} ({line.runs} run{'s' * (line.runs > 1)})",
            line={"color": colour, "width": 3 if ours else 1.5}, marker={"size": 6 if ours else 4},
            legendgroup=line.cell.key, hovertemplate="%{y:.4g} at %{x:.3~g}<extra>" + name + "</extra>")
    if any(line.runs > 1 for line in lines):
        figure.add_scatter(x=[None], y=[None], mode="markers", name="Band: smallest to largest", hoverinfo="skip",
                           marker={"symbol": "square", "color": NEUTRAL, "size": 12, "opacity": 0.35})
    figure.update_layout(height=480, margin=MARGIN, legend={**LEGEND, "y": -0.24})
    units = {line.unit for line in lines if line.unit}
    note = next((line.unit_note for line in lines if line.unit_note), "")
    title = f"Time ({escape(note.rstrip('.'))})" if note and not units else time_axis(units)
    figure.update_xaxes(title=title, zeroline=False)
    error = error_title("MSE", {line.cell.experiment for line in lines}, lines[0].cell.format.scale)
    figure.update_yaxes(title=error, rangemode="tozero", zeroline=False)
    mark_forecast(figure, {line.cut for line in lines if line.cut is not None and line.t[0] < line.cut})
    return figure


def _colours(lines: list[ErrorLine]) -> dict[str, str]:
    """Give ACE and the methods of the paper's figures the same colours everywhere, the others the rest."""
    known = {line.cell.title: MAIN[line.cell.method] for line in lines
             if line.cell.method in MAIN and not line.cell.ablation}
    rest = [colour for colour in labels.PALETTE if colour not in MAIN.values()]
    others = [line.cell.title for line in lines if line.cell.title not in known]
    return known | {title: rest[i % len(rest)] for i, title in enumerate(others)}


def show_tsne(measured: Values) -> None:
    """Show the t-SNE of the features, side by side where there is room, with the silhouettes."""
    experiment, panels = paper_figures.tsne_panels(measured)
    if not panels:
        st.info("No finished image run on the full data has a t-SNE yet. Click a cell of CIFAR10's table and train "
                "what is missing.", icon=":material/scatter_plot:")
        return
    title = experiments.get(experiment).title
    instead = "" if experiment == "cifar10" else (
        f" The paper shows CIFAR10; {title} stands in until CIFAR10 has runs of all three methods.")
    st.caption(f"t-SNE of the features of {title}'s test images, before the last layer, coloured by class. Distances "
               f"between groups have no scale. The silhouettes are those of the features, not of the t-SNE.{instead}")
    with st.container(horizontal=True, gap="small"):
        for panel in panels:
            st.plotly_chart(tsne(panel), key=f"paper/tsne/{panel.entry.method}", width=TSNE_WIDTH, config=CONFIG)
    have = {panel.entry.method for panel in panels}
    without = [labels.method_title(experiment, m) for m in paper_figures.TSNE_METHODS if m not in have]
    if without:
        st.caption(f"Not measured yet: {messages.escape(', '.join(without))}")


def tsne(panel: TsnePanel) -> go.Figure:
    """Draw the t-SNE of one method, with its silhouette in the title."""
    points, classes = panel.charts.tsne or {}, panel.charts.classes
    label, x, y = (np.asarray(points[key]) for key in ("label", "x", "y"))
    figure = go.Figure()
    for n in np.unique(label):
        name = escape(classes[n]) if n < len(classes) else str(n)
        figure.add_scatter(  # as SVG: a browser has few WebGL contexts
            x=x[label == n], y=y[label == n], mode="markers", name=name, hovertemplate=f"{name}<extra></extra>",
            marker={"size": 3.5, "color": class_colour(int(n)), "opacity": 0.75})
    figure.update_layout(height=440, margin={**MARGIN, "t": 60},
                         legend={**LEGEND, "y": -0.14, "itemsizing": "constant"},
                         title={"text": _panel_title(panel), "font": {"size": 14}})
    hidden = {"showticklabels": False, "zeroline": False, "showgrid": False}  # t-SNE coordinates have no meaning
    figure.update_xaxes(title="t-SNE 1", **hidden)
    figure.update_yaxes(title="t-SNE 2", **hidden)
    return figure


def _panel_title(panel: TsnePanel) -> str:
    title = escape(labels.method_title(panel.entry.experiment, panel.entry.method))
    if panel.silhouette is None:
        return title
    over = f"mean of {panel.runs} runs" if panel.runs > 1 else "1 run"
    return f"{title}, seed {panel.entry.seed}<br>silhouette {panel.silhouette:.4f} ({over})"


def show_attention(measured: Values) -> None:
    """Show the attention of one sample at several times, for one experiment."""
    runs = paper_figures.attention_runs(measured)
    if not runs:
        st.info("No finished ACE run on the full data has snapshots yet. Click an ACE cell of a table and train what "
                "is missing.", icon=":material/grid_on:")
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.selectbox("Experiment", list(runs), key="paper/attention", width=280, format_func=_attention_title)
        entry = runs[name]
        first = paper_figures.attention_frames(entry.run)
        if first is None:
            st.info("The attention of this run cannot be drawn as a map.", icon=":material/grid_off:")
            return
        probe = st.selectbox("Sample", range(len(first.probes)), key=f"paper/probe/{name}", width=220,
                             format_func=lambda i: first.probes[i])
    found = paper_figures.attention_frames(entry.run, probe) or first
    low, high = float(found.maps.min()), float(found.maps.max())
    st.caption(f"{messages.escape(found.kind.title)}. From the snapshot after epoch {found.epoch} of "
               f"{messages.escape(labels.label(entry))}. All maps have one scale, from {low:.3g} (pale) to {high:.3g} "
               f"(blue). {messages.escape(found.measure.hint)}")
    with st.container(horizontal=True, gap="small"):
        for place in range(len(found.t)):
            st.plotly_chart(attention(found, place), key=f"paper/attention/{name}/{place}", width=MAP_WIDTH,
                            config={**CONFIG, "displayModeBar": False})


def _attention_title(name: str) -> str:
    experiment, _, task = name.partition("/")
    return " ".join(filter(None, (experiments.get(experiment).title, task)))


def attention(found: AttentionFrames, place: int) -> go.Figure:
    """Draw the map at one of the times; the title gives the time and how attention acts then."""
    values = np.round(found.maps[place], 5)
    rows, columns = (list(range(1, n + 1)) for n in values.shape)
    figure = go.Figure(go.Heatmap(
        z=values, x=columns, y=rows, zmin=float(found.maps.min()), zmax=float(found.maps.max()), colorscale=ATTENTION,
        showscale=False, hovertemplate="row %{y}, column %{x}: %{z:.3g}<extra></extra>"))
    figure.update_layout(height=MAP_WIDTH + 76, margin={"l": 10, "r": 4, "t": 50, "b": 10},
                         title={"text": f"{found.time_text(place)}<br>{found.measure_text(place)}",
                                "font": {"size": 13}})
    figure.update_xaxes(title=escape(found.kind.columns), showgrid=False, zeroline=False, nticks=5)
    figure.update_yaxes(title=escape(found.kind.rows), autorange="reversed", showgrid=False, zeroline=False, nticks=5)
    return figure
