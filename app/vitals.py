"""Records of time series: what the model saw, what was held out, and what it says, a small chart a variable."""

from __future__ import annotations

from html import escape

import plotly.graph_objects as go
import streamlit as st
from plotly.subplots import make_subplots

from acenode.export.series import Record, Variable
from app.address import options
from app.series import QUIET, Line, draw, legend_above, time_axis

COLUMNS = 3


def show(runs: list[Line], key: str) -> None:
    chosen = pick("Record", "record", list(dict.fromkeys(r.id for run in runs for r in run.series.records)))
    found = {run.id: record for run in runs for record in run.series.records if record.id == chosen}
    if not found:
        st.caption("None of these runs kept this record: choose another one.")
        return
    caption = ("Points are measurements: filled ones the model saw, open ones were held out. Lines are the mean over "
               "the latent samples, bands their spread")
    cut = any(record.cut is not None for record in found.values())
    draw(small_multiples([(run, found[run.id]) for run in runs if run.id in found]), key,
         caption + ("; left of the dotted line is what was observed." if cut else "."),
         [run for run in runs if run.id not in found])


def pick(label: str, key: str, known: list[str]) -> str | None:
    """One of these by name, kept in the address."""
    return st.selectbox(label, options(key, known), key=key, bind="query-params", width=260)


def small_multiples(found: list[tuple[Line, Record]]) -> go.Figure:
    names = list(dict.fromkeys(v.name for _, record in found for v in record.variables))
    columns = min(COLUMNS, len(names))
    rows = -(-len(names) // columns)
    figure = make_subplots(rows, columns, subplot_titles=[escape(n) for n in names], shared_xaxes="all",
                           horizontal_spacing=0.05, vertical_spacing=0.28 / rows)
    named: set[str] = set()
    seen: set[tuple] = set()
    for run, record in found:
        for variable in record.variables:
            place = names.index(variable.name)
            cell = {"row": place // columns + 1, "col": place % columns + 1}
            _model(figure, run, variable, run.id not in named, cell)
            named.add(run.id)
            for kind in ("observed", "held out"):
                points = _points(variable, kind)
                if points[0] and (place, kind, points) not in seen:  # the same for every run that was shown the same
                    seen.add((place, kind, points))
                    _scatter(figure, kind, points, kind not in named, cell)
                    named.add(kind)
    for cut in {record.cut for _, record in found} - {None}:
        figure.add_vline(x=cut, line={"color": QUIET, "width": 1.5, "dash": "dot"})
    units = {record.unit for _, record in found if record.unit}
    height = 100 + 230 * rows
    figure.update_layout(height=height, margin={"l": 10, "r": 10, "t": 60, "b": 10}, legend=legend_above(45, height))
    figure.update_xaxes(zeroline=False)
    figure.update_xaxes(title=time_axis(units.pop() if len(units) == 1 else ""), row=rows)
    figure.update_yaxes(zeroline=False, nticks=5)
    return figure


def _points(variable: Variable, kind: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    x, y = (variable.t, variable.x) if kind == "observed" else (variable.target_t, variable.target_x)
    return tuple(x), tuple(y)


def _scatter(figure: go.Figure, kind: str, points: tuple[tuple[float, ...], tuple[float, ...]], first: bool,
             cell: dict[str, int]) -> None:
    open_mark = {"symbol": "diamond-open", "size": 7, "line": {"width": 1.5}}
    figure.add_scatter(x=points[0], y=points[1], mode="markers", name=kind, legendgroup=kind, showlegend=first,
                       legendrank=2000,
                       marker={"color": QUIET, "size": 5, **(open_mark if kind == "held out" else {})},
                       hovertemplate=f"%{{y:.4g}} at %{{x:.3~f}}<extra>{kind}</extra>", **cell)


def _model(figure: go.Figure, run: Line, variable: Variable, first: bool, cell: dict[str, int]) -> None:
    spread = [(t, a, b) for t, a, b in zip(variable.grid, variable.low, variable.high, strict=False)
              if a is not None and b is not None]
    if spread:
        forth, back = [t for t, _, _ in spread], [t for t, _, _ in reversed(spread)]
        figure.add_scatter(x=forth + back, y=[b for _, _, b in spread] + [a for _, a, _ in reversed(spread)],
                           fill="toself", fillcolor=run.colour, opacity=0.2, line={"width": 0}, mode="lines",
                           hoverinfo="skip", legendgroup=run.id, showlegend=False, **cell)
    if variable.grid:
        figure.add_scatter(x=variable.grid, y=variable.mean, mode="lines", name=run.tag, legendgroup=run.id,
                           showlegend=first, line={"color": run.colour, "width": 2}, connectgaps=False,
                           hovertemplate="%{y:.4g} at %{x:.3~f}<extra>" + run.tag + "</extra>", **cell)
