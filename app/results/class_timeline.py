"""Classes over time as coloured bands: the true classes above the predictions of each run."""

from __future__ import annotations

from html import escape

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from acenode.compare.class_colours import class_colour
from acenode.compare.series_charts import Band
from acenode.data.variables import subject_name

from .charts import HEADER, ChartedRun, draw, legend_above, pick_record, time_axis

ALL = "all records"
BAND, GAP = 30, 34  # pixels: height of a band, space between two records

Stretch = tuple[float, float, int]  # start, end, class
Lane = tuple[str, list[Stretch]]  # label, stretches


def show(runs: list[ChartedRun], key: str) -> None:
    """Ask for a record, or all of them, and show its bands."""
    known = list(dict.fromkeys(b.id for run in runs for b in run.series.bands))
    chosen = pick_record(runs, "window", known, ALL)
    found = [(run, band) for run in runs for band in run.series.bands if chosen in (ALL, band.id)]
    without = [run for run in runs if run.id not in {r.id for r, _ in found}]
    draw(bands(found), key, "Upper band: true classes. Bands below: the predictions of each run. Unlabelled stretches "
         "are blank.", without)


def bands(found: list[tuple[ChartedRun, Band]]) -> go.Figure:
    """Draw one chart for each record, with a lane for the truth and one for each run."""
    records = list(dict.fromkeys(band.id for _, band in found))
    lanes_of = [_lanes([(run, band) for run, band in found if band.id == name]) for name in records]
    counts = [len(lanes) for lanes in lanes_of]
    height = HEADER + 30 + sum(BAND * n + GAP for n in counts)
    gap = GAP / height if len(records) > 1 else 0
    titles = [escape(subject_name(found[0][0].subject, name)) for name in records]
    figure = make_subplots(len(records), 1, subplot_titles=titles, row_heights=counts,
                           shared_xaxes=True, vertical_spacing=min(gap, 0.9 / max(len(records) - 1, 1)))
    classes = next((run.classes for run, _ in found if run.classes), [])
    in_legend: set[int] = set()
    for row, lanes in enumerate(lanes_of, 1):
        for kind in sorted({k for _, stretches in lanes for _, _, k in stretches}):
            own = [(start, end, lane) for lane, stretches in lanes for start, end, k in stretches if k == kind]
            name = escape(classes[kind]) if kind < len(classes) else str(kind)
            figure.add_bar(
                base=[start for start, _, _ in own], x=[end - start for start, end, _ in own],
                y=[lane for _, _, lane in own], orientation="h", width=0.82, name=name, legendgroup=str(kind),
                showlegend=kind not in in_legend, customdata=[[start, end] for start, end, _ in own],
                marker={"color": class_colour(kind), "line": {"width": 0}},
                hovertemplate="%{customdata[0]:.3~f} to %{customdata[1]:.3~f}<br>%{y}<extra>" + name + "</extra>",
                row=row, col=1)
            in_legend.add(kind)
        figure.update_yaxes(categoryorder="array", categoryarray=[lane for lane, _ in reversed(lanes)], type="category",
                            range=[-0.5, len(lanes) - 0.5], showgrid=False, row=row)
    figure.update_layout(height=height, barmode="overlay", margin={"l": 10, "r": 10, "t": HEADER, "b": 10},
                         legend={**legend_above(40, height), "traceorder": "normal"})
    figure.update_xaxes(zeroline=False)
    figure.update_xaxes(title=time_axis({band.unit for _, band in found if band.unit}), row=len(records))
    figure.update_annotations(font={"size": 13}, x=0, xanchor="left")
    return figure


def _lanes(found: list[tuple[ChartedRun, Band]]) -> list[Lane]:
    """Return each distinct truth once, before the first run that has it, and one lane for each run."""
    lanes: list[Lane] = []
    truths: list[list[Stretch]] = []
    for run, band in found:
        if band.true and band.true not in truths:
            truths.append(band.true)
            lanes.append(("True class" + " " * len(truths[1:]), band.true))  # spaces keep several lanes apart
        correct = f" ({band.accuracy:.0%} correct)" if band.accuracy is not None else ""
        lanes.append((run.html_name + correct, band.predicted))
    return lanes
