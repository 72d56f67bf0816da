"""Records of time series: observed points, held-out points and predictions, one small chart for each variable."""

from __future__ import annotations

from html import escape

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from acenode.compare.series_records import SeriesRecord, SeriesVariable, caption

from .. import messages
from .charts import HEADER, NEUTRAL, ChartedRun, draw, legend_above, mark_forecast, pick_record, time_axis

COLUMNS = 2
DENSE = 200  # a line of more points needs the full width
TICK = 0.05  # length of an observation tick, as a share of the chart's height
OBSERVED, HELD_OUT = "Observed", "Held out"

Points = tuple[tuple[float, ...], tuple[float, ...]]  # times and values


def show(runs: list[ChartedRun], key: str) -> None:
    """Ask for a record and show it for all runs that kept it."""
    chosen = pick_record(runs, "record", list(dict.fromkeys(r.id for run in runs for r in run.series.records)))
    found = {run.id: record for run in runs for record in run.series.records if record.id == chosen}
    draw(small_multiples([(run, found[run.id]) for run in runs if run.id in found]), key,
         messages.escape(caption(list(found.values()))), [run for run in runs if run.id not in found])


def small_multiples(found: list[tuple[ChartedRun, SeriesRecord]]) -> go.Figure:
    """Draw one chart for each variable, with the predictions of all runs and each set of points once."""
    titles = {v.name: v.title for _, record in found for v in record.variables}
    names = list(titles)
    units = {name: _units(found, name) for name in names}
    dense = any(record.jumps or any(len(v.grid) > DENSE for v in record.variables) for _, record in found)
    columns = 1 if dense else min(COLUMNS, len(names))
    rows = -(-len(names) // columns)
    height = HEADER + 40 + (180 if dense else 230) * rows
    figure = make_subplots(rows, columns, subplot_titles=[_title(titles[n], units[n], dense) for n in names],
                           shared_xaxes="all", horizontal_spacing=0.13, vertical_spacing=(36 if dense else 74) / height)
    for i, title in enumerate(figure.layout.annotations):  # at the left edge
        left_edge = figure.get_subplot(i // columns + 1, i % columns + 1).xaxis.domain[0]
        title.update(x=left_edge, xanchor="left", align="left", font={"size": 13})
    in_legend: set[str] = set()
    drawn: set[tuple[int, str, Points]] = set()
    for run, record in found:
        for variable in record.variables:
            place = names.index(variable.name)
            cell = {"row": place // columns + 1, "col": place % columns + 1}
            _draw_prediction(figure, run, variable, run.id not in in_legend, 1.3 if dense else 2, cell)
            in_legend.add(run.id)
            for kind in (OBSERVED, HELD_OUT):
                points = _points(variable, kind)
                if points[0] and (place, kind, points) not in drawn:  # runs mostly share their points
                    drawn.add((place, kind, points))
                    _draw_points(figure, kind, points, kind not in in_legend, cell)
                    in_legend.add(kind)
    _draw_jumps(figure, sorted({t for _, record in found for t in record.jumps}), len(names), columns)
    mark_forecast(figure, {record.cut for _, record in found}, in_legend=True)
    _explain_band(figure, found)
    figure.update_layout(height=height, margin={"l": 10, "r": 10, "t": HEADER, "b": 10},
                         legend=legend_above(45, height))
    figure.update_xaxes(zeroline=False)
    if dense:
        figure.update_xaxes(range=_time_range(found))
    figure.update_xaxes(title=time_axis({record.unit for _, record in found if record.unit}), row=rows)
    figure.update_yaxes(zeroline=False, nticks=5)
    if dense:
        for row, name in enumerate(names, 1):
            figure.update_yaxes(title={"text": escape(units[name]) or "Value", "font": {"size": 11}}, row=row)
    return figure


def _units(found: list[tuple[ChartedRun, SeriesRecord]], name: str) -> str:
    """Return the unit of a variable, or the units if runs differ; empty if none is known."""
    return " or ".join(sorted({v.unit for _, record in found for v in record.variables if v.name == name and v.unit}))


def _title(title: str, unit: str, dense: bool) -> str:
    """Return the title of a variable's chart.

    Where charts stand side by side, it has the unit, since on a narrow page the title of a vertical axis would be drawn
    over the next chart, and the meaning is on a line of its own.
    """
    if dense:
        return escape(title)
    name, _, meaning = title.partition(" · ")
    small = '<span style="font-size:11px">{}</span>'
    first = f"<b>{escape(name)}</b>" + f" {small.format(escape(f'({unit})'))}" * bool(unit)
    return first + f"<br>{small.format(escape(meaning))}" * bool(meaning)


def _explain_band(figure: go.Figure, found: list[tuple[ChartedRun, SeriesRecord]]) -> None:
    """Explain the bands around the lines in the legend."""
    kinds = {record.band or "spread of the samples" for _, record in found if any(v.low for v in record.variables)}
    if kinds:
        figure.add_scatter(x=[None], y=[None], mode="markers", name=f"Band: {escape(' or '.join(sorted(kinds)))}",
                           legendrank=1999, hoverinfo="skip", row=1, col=1,
                           marker={"symbol": "square", "color": NEUTRAL, "size": 12, "opacity": 0.35})


def _time_range(found: list[tuple[ChartedRun, SeriesRecord]]) -> tuple[float, float]:
    """Return the first and last time of all points and predictions, with a margin of one percent."""
    times = [t for _, record in found for v in record.variables for t in (*v.grid, *v.t, *v.target_t)]
    margin = 0.01 * (max(times) - min(times)) or 1.0
    return min(times) - margin, max(times) + margin


def _points(variable: SeriesVariable, kind: str) -> Points:
    x, y = (variable.t, variable.x) if kind == OBSERVED else (variable.target_t, variable.target_x)
    return tuple(x), tuple(y)


def _draw_points(figure: go.Figure, kind: str, points: Points, first: bool, cell: dict[str, int]) -> None:
    open_mark = {"symbol": "diamond-open", "size": 7, "line": {"width": 1.5}}
    figure.add_scatter(x=points[0], y=points[1], mode="markers", name=kind, legendgroup=kind, showlegend=first,
                       legendrank=2000,
                       marker={"color": NEUTRAL, "size": 5, **(open_mark if kind == HELD_OUT else {})},
                       hovertemplate=f"%{{y:.4g}} at %{{x:.3~f}}<extra>{kind}</extra>", **cell)


def _draw_jumps(figure: go.Figure, jumps: list[float], count: int, columns: int) -> None:
    """Mark the times of the jumps by ticks along the bottom of every chart, and explain them in the legend."""
    if not jumps:
        return
    ticks = "".join(f"M{t:.6g},0V{TICK}" for t in jumps)  # one path for all ticks is faster than a shape each
    for place in range(count):
        figure.add_shape(type="path", path=ticks, xref="x", yref="y domain", line={"color": NEUTRAL, "width": 1},
                         row=place // columns + 1, col=place % columns + 1)
    figure.add_scatter(x=[None], y=[None], mode="markers", name="State jumps", legendrank=2001, hoverinfo="skip",
                       marker={"symbol": "line-ns-open", "color": NEUTRAL, "size": 9}, row=1, col=1)


def _draw_prediction(figure: go.Figure, run: ChartedRun, variable: SeriesVariable, first: bool, width: float,
                     cell: dict[str, int]) -> None:
    """Draw a run's mean as a line and its spread as a band."""
    spread = [(t, a, b) for t, a, b in zip(variable.grid, variable.low, variable.high, strict=False)
              if a is not None and b is not None]
    if spread:
        outline_x = [t for t, _, _ in spread] + [t for t, _, _ in reversed(spread)]
        outline_y = [high for _, _, high in spread] + [low for _, low, _ in reversed(spread)]
        figure.add_scatter(x=outline_x, y=outline_y, fill="toself", fillcolor=run.colour, opacity=0.2,
                           line={"width": 0}, mode="lines", hoverinfo="skip", legendgroup=run.id, showlegend=False,
                           **cell)
    if variable.grid:
        figure.add_scatter(x=variable.grid, y=variable.mean, mode="lines", name=run.html_name, legendgroup=run.id,
                           showlegend=first, line={"color": run.colour, "width": width}, connectgaps=False,
                           hovertemplate="%{y:.4g} at %{x:.3~f}<extra>" + run.html_name + "</extra>", **cell)
