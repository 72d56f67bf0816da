"""Predictions of any series of a set in its own units, by ACE and by the model without attention."""

from __future__ import annotations

from html import escape

import plotly.graph_objects as go
import streamlit as st
from plotly.subplots import make_subplots

from acenode.compare.colours import NEUTRAL, PALETTE
from acenode.compare.study_grid import StudyGrid
from acenode.data.named_set import NamedSet
from acenode.errors import UserError
from acenode.execution.predict import PredictedSeries, Predictor
from acenode.runs.entry import Entry

from .. import messages, text_table
from ..results.charts import CONFIG
from ..services import services
from .preview import axis_title
from .sets import show_error

DRAWN = 12  # variables in the plot
ROW = 130  # pixels
PARTS = {"test": "test", "validation": "validation", "train": "training"}


def show(found: NamedSet, grid: StudyGrid) -> None:
    """Ask for a series and a seed, and show what the models predict of it."""
    st.header({"forecast": "Forecasts", "fill": "Filled in", "classify": "Classes"}[found.task], anchor=False)
    runs = {row.name: {cell.repeat[0]: cell.entry for cell in row.cells if cell.value is not None and cell.entry}
            for row in grid.rows}
    seeds = sorted({seed for of_row in runs.values() for seed in of_row})
    order = [int(i) for part in PARTS for i in found.parts[part]]
    part_of = {int(i): title for part, title in PARTS.items() for i in found.parts[part]}
    left, right, _ = st.columns([2, 1, 2])
    with left:
        index = st.selectbox("Series", order, format_func=lambda i: f"{found.ids[i]} ({part_of[i]})",
                             key=f"your-data/{found.name}/series")
    with right:
        seed = st.selectbox("Seed", seeds, key=f"your-data/{found.name}/seed")
    if index is None or seed is None:
        return
    try:
        predictors = {name: _predictor(own[seed].id, own[seed]) for name, own in runs.items() if seed in own}
        for words in dict.fromkeys(predictor.changed for predictor in predictors.values() if predictor.changed):
            messages.warning(words)
        if found.task == "classify":
            _show_classes(found, index, predictors)
            return
        courses = {name: predictor.course(index) for name, predictor in predictors.items()}
    except UserError as error:
        show_error(error)
        return
    hidden = next(iter(predictors.values())).hidden(index) if found.task == "fill" else None
    st.plotly_chart(figure(found, index, courses, hidden), key="your-data/forecast", config=CONFIG)
    st.caption({"forecast": "Dots are given, circles are what happened afterwards. Lines are forecasts.",
                "fill": "Dots are given, circles were held out. Lines are what the models fill in."}[found.task])


@st.cache_resource(max_entries=8, show_spinner="Loading the models")
def _predictor(run: str, _entry: Entry) -> Predictor:
    return Predictor(_entry.run, services().data_root)


def _show_classes(found: NamedSet, index: int, predictors: dict[str, Predictor]) -> None:
    assert found.labels is not None
    rows = [{"Model": name, **{f"Probability of {label}": f"{p:.1%}" for label, p in
                               zip(found.classes, predictor.classes_of(index), strict=True)}}
            for name, predictor in predictors.items()]
    text_table.show(rows, "Probabilities of the classes")
    st.caption(f"The class of this series is {found.classes[int(found.labels[index])]}")


def figure(found: NamedSet, index: int, courses: dict[str, PredictedSeries], hidden: object = None) -> go.Figure:
    """Draw observations and predictions, a row for each variable; times count from the start of the series."""
    record = found.series[index]
    given = record.seen(found.given)[:, None] & record.m if hidden is None else record.m & ~hidden  # type: ignore[operator]
    count = min(DRAWN, len(found.variables))
    drawn = make_subplots(count, 1, shared_xaxes=True, vertical_spacing=0.03)
    t = record.t - record.t[0]
    for v in range(count):
        for title, points, symbol in (("Given", given[:, v], "circle"),
                                      ("Observed", (record.m & ~given)[:, v], "circle-open")):
            drawn.add_scatter(x=t[points], y=record.x[points, v], mode="markers", name=title, legendgroup=title,
                              showlegend=v == 0, marker={"size": 6, "color": NEUTRAL, "symbol": symbol},
                              hovertemplate="%{y:.5g} at %{x:.4g}<extra>" + title + "</extra>", row=v + 1, col=1)
        for place, (name, course) in enumerate(courses.items()):
            drawn.add_scatter(x=course.t - record.t[0], y=course.x[:, v], mode="lines", name=escape(name),
                              legendgroup=name, showlegend=v == 0,
                              line={"color": PALETTE[place], "width": 2, "dash": "dot" if place else "solid"},
                              hovertemplate="%{y:.5g} at %{x:.4g}<extra>" + escape(name) + "</extra>", row=v + 1, col=1)
        drawn.update_yaxes(title={"text": escape(axis_title(found, v)), "font": {"size": 11}}, zeroline=False, nticks=4,
                           row=v + 1, col=1)
    unit = f" ({found.time_unit})" if found.time_unit else ""
    drawn.update_xaxes(title=escape(f"Time since the start of the series{unit}"), zeroline=False, row=count, col=1)
    drawn.update_layout(height=100 + ROW * count, margin={"l": 10, "r": 10, "t": 10, "b": 10},
                        legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0})
    return drawn
