"""Records of time series: what the model saw, what was held out, and what it says, a small chart a variable."""

from __future__ import annotations

from html import escape

import plotly.graph_objects as go
import streamlit as st
from plotly.subplots import make_subplots

from acenode.results.series_records import SeriesRecord, SeriesVariable, caption

from . import say
from .address import options
from .series import ABOVE, QUIET, Line, draw, legend_above, mark_cut, time_axis

COLUMNS = 3
DENSE = 200  # points of a line that need the whole width
RUG = 0.05  # of a chart's height


def show(runs: list[Line], key: str) -> None:
    chosen = pick("Record", "record", list(dict.fromkeys(r.id for run in runs for r in run.series.records)))
    found = {run.id: record for run in runs for record in run.series.records if record.id == chosen}
    if not found:
        st.caption("None of these runs kept this record: choose another one.")
        return
    draw(small_multiples([(run, found[run.id]) for run in runs if run.id in found]), key,
         say.plain(caption(list(found.values()))), [run for run in runs if run.id not in found])


def pick(label: str, key: str, known: list[str]) -> str | None:
    """One of these by name, kept in the address."""
    return st.selectbox(label, options(key, known), key=key, bind="query-params", width=260)


def small_multiples(found: list[tuple[Line, SeriesRecord]]) -> go.Figure:
    titles = {v.name: v.title for _, record in found for v in record.variables}
    names = list(titles)
    dense = any(record.jumps or any(len(v.grid) > DENSE for v in record.variables) for _, record in found)
    columns = 1 if dense else min(COLUMNS, len(names))
    rows = -(-len(names) // columns)
    height = ABOVE + 40 + (180 if dense else 230) * rows
    figure = make_subplots(rows, columns, subplot_titles=[escape(titles[n]) for n in names], shared_xaxes="all",
                           horizontal_spacing=0.05, vertical_spacing=(36 if dense else 64) / height)
    for i, above in enumerate(figure.layout.annotations):  # titles over the left edge: the cut is named beside them
        above.update(x=figure.get_subplot(i // columns + 1, i % columns + 1).xaxis.domain[0], xanchor="left")
    named: set[str] = set()
    seen: set[tuple] = set()
    for run, record in found:
        for variable in record.variables:
            place = names.index(variable.name)
            cell = {"row": place // columns + 1, "col": place % columns + 1}
            _model(figure, run, variable, run.id not in named, 1.3 if dense else 2, cell)
            named.add(run.id)
            for kind in ("observed", "held out"):
                points = _points(variable, kind)
                if points[0] and (place, kind, points) not in seen:  # the same for every run that was shown the same
                    seen.add((place, kind, points))
                    _scatter(figure, kind, points, kind not in named, cell)
                    named.add(kind)
    _rug(figure, sorted({t for _, record in found for t in record.jumps}), len(names), columns)
    mark_cut(figure, {record.cut for _, record in found})
    units = {record.unit for _, record in found if record.unit}
    values = {record.value_unit for _, record in found if record.value_unit}
    figure.update_layout(height=height, margin={"l": 10, "r": 10, "t": ABOVE, "b": 10}, legend=legend_above(45, height))
    figure.update_xaxes(zeroline=False)
    if dense:
        figure.update_xaxes(range=_span(found))
    figure.update_xaxes(title=time_axis(units.pop() if len(units) == 1 else ""), row=rows)
    figure.update_yaxes(zeroline=False, nticks=5)
    if len(values) == 1:
        figure.update_yaxes(title={"text": escape(values.pop()), "font": {"size": 11}}, col=1)
    return figure


def _span(found: list[tuple[Line, SeriesRecord]]) -> tuple[float, float]:
    """All times, with a little room beside them."""
    times = [t for _, record in found for v in record.variables for t in (*v.grid, *v.t, *v.target_t)]
    room = 0.01 * (max(times) - min(times)) or 1.0
    return min(times) - room, max(times) + room


def _points(variable: SeriesVariable, kind: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    x, y = (variable.t, variable.x) if kind == "observed" else (variable.target_t, variable.target_x)
    return tuple(x), tuple(y)


def _scatter(figure: go.Figure, kind: str, points: tuple[tuple[float, ...], tuple[float, ...]], first: bool,
             cell: dict[str, int]) -> None:
    open_mark = {"symbol": "diamond-open", "size": 7, "line": {"width": 1.5}}
    figure.add_scatter(x=points[0], y=points[1], mode="markers", name=kind, legendgroup=kind, showlegend=first,
                       legendrank=2000,
                       marker={"color": QUIET, "size": 5, **(open_mark if kind == "held out" else {})},
                       hovertemplate=f"%{{y:.4g}} at %{{x:.3~f}}<extra>{kind}</extra>", **cell)


def _rug(figure: go.Figure, jumps: list[float], count: int, columns: int) -> None:
    """A tick a jump along the bottom of every chart, as one shape, and a line about it in the legend."""
    if not jumps:
        return
    ticks = "".join(f"M{t:.6g},0V{RUG}" for t in jumps)
    for place in range(count):
        figure.add_shape(type="path", path=ticks, xref="x", yref="y domain", line={"color": QUIET, "width": 1},
                         row=place // columns + 1, col=place % columns + 1)
    figure.add_scatter(x=[None], y=[None], mode="markers", name="the state jumps", legendrank=2001, hoverinfo="skip",
                       marker={"symbol": "line-ns-open", "color": QUIET, "size": 9}, row=1, col=1)


def _model(figure: go.Figure, run: Line, variable: SeriesVariable, first: bool, width: float, cell: dict[str, int]
           ) -> None:
    spread = [(t, a, b) for t, a, b in zip(variable.grid, variable.low, variable.high, strict=False)
              if a is not None and b is not None]
    if spread:
        forth, back = [t for t, _, _ in spread], [t for t, _, _ in reversed(spread)]
        figure.add_scatter(x=forth + back, y=[b for _, _, b in spread] + [a for _, a, _ in reversed(spread)],
                           fill="toself", fillcolor=run.colour, opacity=0.2, line={"width": 0}, mode="lines",
                           hoverinfo="skip", legendgroup=run.id, showlegend=False, **cell)
    if variable.grid:
        figure.add_scatter(x=variable.grid, y=variable.mean, mode="lines", name=run.tag, legendgroup=run.id,
                           showlegend=first, line={"color": run.colour, "width": width}, connectgaps=False,
                           hovertemplate="%{y:.4g} at %{x:.3~f}<extra>" + run.tag + "</extra>", **cell)
