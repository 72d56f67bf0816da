"""The paper's figures from our runs: error over time, t-SNE with silhouettes, and attention over time."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from acenode import experiments
from acenode.compare import paper_figures
from acenode.compare.cells import Measured
from acenode.compare.result_charts import time_note

from .. import labels, messages
from ..results.charts import CONFIG

Values = Mapping[str, Measured]

OVER_TIME = {"USHCN": ("ushcn", None, False), "PhysioNet extrapolation": ("physionet-vitals", "extrapolation", False),
             "PhysioNet interpolation": ("physionet-vitals", "interpolation", False),
             "Types of attention": ("physionet-vitals", "extrapolation", True)}
TSNE_WIDTH = 280  # pixels
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
    st.plotly_chart(paper_figures.errors(lines), key=f"paper/errors/{name}", config=CONFIG)
    drawn = {line.cell.key for line in lines}
    without = [cell.title for cell in cells if cell.key not in drawn]
    if without:
        st.caption(f"Not measured yet: {messages.escape(', '.join(without))}")


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
            st.plotly_chart(paper_figures.tsne(panel), key=f"paper/tsne/{panel.entry.method}", width=TSNE_WIDTH,
                            config=CONFIG)
    have = {panel.entry.method for panel in panels}
    without = [labels.method_title(experiment, m) for m in paper_figures.TSNE_METHODS if m not in have]
    if without:
        st.caption(f"Not measured yet: {messages.escape(', '.join(without))}")


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
            st.plotly_chart(paper_figures.attention_map(found, place), key=f"paper/attention/{name}/{place}",
                            width=paper_figures.MAP_WIDTH, config={**CONFIG, "displayModeBar": False})


def _attention_title(name: str) -> str:
    experiment, _, task = name.partition("/")
    return " ".join(filter(None, (experiments.get(experiment).title, task)))
