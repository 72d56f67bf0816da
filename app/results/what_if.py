"""What if: hold a variable of a forecast, or how much one attends to another, and compare with the forecast."""

from __future__ import annotations

from html import escape

import numpy as np
import plotly.graph_objects as go
import streamlit as st
from plotly.subplots import make_subplots

from acenode.compare.colours import NEUTRAL
from acenode.compare.figures import ChartedRun
from acenode.compare.influence import Held, WhatIf, forecast_with, trained_task
from acenode.errors import UserError
from acenode.experiments.imported import changed_set
from acenode.experiments.named_task import NamedTask

from .. import messages
from ..services import services
from . import CONFIG

VALUE, ATTENTION = "A variable", "How much a variable attends to another"
DRAWN, ROW = 8, 120  # variables in the plot, pixels of each
UNCHANGED = 1e-6  # standard deviations: less is rounding


def show(runs: list[ChartedRun], key: str) -> None:
    st.caption("The model solves its equations again while something is held. The answer is what the model would do, "
               "which is what the world would do only as far as the model found causes.")
    left, middle, right = st.columns([2, 2, 2])
    run = left.selectbox("Run", runs, format_func=lambda r: r.name, key=f"{key}/run")
    if run is None:
        return
    try:
        task = _task(run.id)
        if changed := changed_set(services().store.open(run.id).description(), task.source):
            messages.warning(changed)
        names = list(task.source.variables)
        series = middle.selectbox("Series", [r.id for r in run.charts.records], key=f"{key}/series/{run.id}")
        kinds = [VALUE, ATTENTION] if task.model.ode.q is not None else [VALUE]
        kind = right.selectbox("Hold", kinds, key=f"{key}/kind/{run.id}")
        held = _ask(task, names, kind or VALUE, key + f"/{run.id}")
        if series is not None:
            found = forecast_with(task, series, [held])
            st.plotly_chart(figure(found, held, task.source.time_unit), key=f"{key}/chart", config=CONFIG)
            st.caption(messages.escape(words(found, held)))
    except UserError as error:
        messages.invalid(error)


@st.cache_resource(max_entries=8, show_spinner="Loading the model")
def _task(run: str) -> NamedTask:
    task = trained_task(services().store.open(run), services().data_root)
    if not isinstance(task, NamedTask):
        raise UserError("what if needs a run on named variables")
    return task


def _ask(task: NamedTask, names: list[str], kind: str, key: str) -> Held:
    source, (start, end) = task.source, (x * task.source.duration for x in task.data.span)
    first, second, third = st.columns([2, 2, 2])
    variable = first.selectbox("Variable", names, key=f"{key}/variable/{kind}") or names[0]
    i = names.index(variable)
    if kind == ATTENTION:
        others = [name for name in names if name != variable]
        other = second.selectbox("Attends to", others, key=f"{key}/source/{variable}") or others[0]
        value = third.slider("Weight", 0.0, 1.0, 0.0, key=f"{key}/weight")
    else:
        other, spread = "", float(source.std[i])
        unit = f" ({source.units[i]})" if source.units[i] else ""
        value = second.slider(f"Value{unit}", float(source.mean[i]) - 3 * spread, float(source.mean[i]) + 3 * spread,
                              float(source.mean[i]), key=f"{key}/value/{variable}")
    times = st.slider(f"From and to ({source.time_unit})", float(start), float(end),
                      (float(start), float(start + (end - start) / 2)), key=f"{key}/times")
    return Held(variable, value, times[0], max(times[1], times[0] + 1e-6 * (end - start)), other)


def figure(found: WhatIf, held: Held, time_unit: str) -> go.Figure:
    chosen = sorted(np.argsort(-found.sizes, kind="stable")[:DRAWN].tolist())
    made = make_subplots(len(chosen), 1, shared_xaxes=True, vertical_spacing=0.02)
    for row, v in enumerate(chosen, 1):
        for name, values, line in (("as it is", found.without, {"color": NEUTRAL, "dash": "dot"}),
                                   ("held", found.held, {"color": "#d9662b"})):
            made.add_scatter(x=found.t, y=values[:, v], name=name, line=line, showlegend=row == 1, row=row, col=1,
                             hovertemplate="%{y:.4g}<extra>" + name + "</extra>")
        made.update_yaxes(title={"text": escape(found.names[v]), "font": {"size": 11}}, row=row, col=1)
    made.add_vrect(x0=held.start, x1=held.end, fillcolor="rgba(217,102,43,0.08)", line_width=0)
    made.update_xaxes(title=escape(time_unit), row=len(chosen), col=1)
    made.update_layout(height=ROW * len(chosen) + 80, margin={"l": 10, "r": 10, "t": 30, "b": 10},
                       legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
    return made


def words(found: WhatIf, held: Held) -> str:
    sizes = found.sizes
    if not held.source:
        sizes[found.names.index(held.variable)] = 0.0
    v = int(sizes.argmax())
    if not sizes[v] > UNCHANGED:
        return "No other variable changes: none attends to it."
    unit = f" {found.units[v]}" if found.units[v] else ""
    change = np.abs(found.difference[:, v]).max()
    return f"{found.names[v]} changes most, by up to {change:.3g}{unit} ({sizes[v]:.2g} standard deviations)."
