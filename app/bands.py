"""Classes over time: what was true above what each run says, as coloured bands."""

from __future__ import annotations

from html import escape

import plotly.graph_objects as go
import streamlit as st
from plotly.subplots import make_subplots

from acenode.results.series_charts import Band

from . import labels
from .series import ABOVE, Line, draw, legend_above, time_axis
from .vitals import pick

ALL = "all of them"
ROW, HEAD = 30, 34  # pixels of a band, and between two records


def show(runs: list[Line], key: str) -> None:
    known = list(dict.fromkeys(b.id for run in runs for b in run.series.bands))
    chosen = pick("Record", "window", [ALL, *known])
    found = [(run, band) for run in runs for band in run.series.bands if chosen in (ALL, band.id)]
    if not found:
        st.caption("None of these runs kept this record: choose another one.")
        return
    without = [run for run in runs if run.id not in {r.id for r, _ in found}]
    draw(bands(found), key, "The upper band is what was done, those below are what each run takes it for; where nobody "
         "said what was done, there is none.", without)


def bands(found: list[tuple[Line, Band]]) -> go.Figure:
    records = list(dict.fromkeys(band.id for _, band in found))
    rows = [_rows([(run, band) for run, band in found if band.id == name]) for name in records]
    counts = [len(r) for r in rows]
    height = ABOVE + 30 + sum(ROW * n + HEAD for n in counts)
    gap = HEAD / height if len(records) > 1 else 0
    figure = make_subplots(len(records), 1, subplot_titles=[escape(name) for name in records], row_heights=counts,
                           shared_xaxes=True, vertical_spacing=min(gap, 0.9 / max(len(records) - 1, 1)))
    classes = next((run.classes for run, _ in found if run.classes), [])
    named: set[int] = set()
    for i, lanes in enumerate(rows):
        for kind in sorted({k for _, stretches in lanes for _, _, k in stretches}):
            own = [(begin, end, lane) for lane, stretches in lanes for begin, end, k in stretches if k == kind]
            name = escape(classes[kind]) if kind < len(classes) else str(kind)
            figure.add_bar(
                base=[begin for begin, _, _ in own], x=[end - begin for begin, end, _ in own],
                y=[lane for _, _, lane in own], orientation="h", width=0.82, name=name, legendgroup=str(kind),
                showlegend=kind not in named, customdata=[[begin, end] for begin, end, _ in own],
                marker={"color": labels.PALETTE[kind % len(labels.PALETTE)], "line": {"width": 0}},
                hovertemplate="%{customdata[0]:.3~f} to %{customdata[1]:.3~f}<br>%{y}<extra>" + name + "</extra>",
                row=i + 1, col=1)
            named.add(kind)
    figure.update_layout(height=height, barmode="overlay", margin={"l": 10, "r": 10, "t": ABOVE, "b": 10},
                         legend={**legend_above(40, height), "traceorder": "normal"})
    for i, lanes in enumerate(rows):
        figure.update_yaxes(categoryorder="array", categoryarray=[lane for lane, _ in reversed(lanes)], type="category",
                            range=[-0.5, len(lanes) - 0.5], showgrid=False, row=i + 1)
    units = {band.unit for _, band in found if band.unit}
    figure.update_xaxes(zeroline=False)
    figure.update_xaxes(title=time_axis(units.pop() if len(units) == 1 else ""), row=len(records))
    figure.update_annotations(font={"size": 13}, x=0, xanchor="left")
    return figure


def _rows(found: list[tuple[Line, Band]]) -> list[tuple[str, list[tuple[float, float, int]]]]:
    """The truth once, where all runs were told the same, and a band a run."""
    lanes: list[tuple[str, list[tuple[float, float, int]]]] = []
    truths: list[list[tuple[float, float, int]]] = []
    for run, band in found:
        if band.true and band.true not in truths:
            truths.append(band.true)
            lanes.append(("true" + " " * len(truths[1:]), band.true))
        right = f" ({band.right:.0%} right)" if band.right is not None else ""
        lanes.append((run.tag + right, band.predicted))
    return lanes
