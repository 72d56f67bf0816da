"""The figures of finished runs, each drawn once with Plotly: for the app, for reports, and as SVG and PNG.

They have no colours of the page, which the page adds: what is drawn is visible on light and on dark.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from random import Random
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from acenode.compare.colours import NEUTRAL, class_colour
from acenode.compare.metrics import MetricFormat, error_title
from acenode.compare.result_charts import Band, Coupling, ResultCharts, SeriesRecord, SeriesVariable
from acenode.data.variables import SUBJECTS, subject_name
from acenode.player.snapshots import WORDS

MARGIN = {"l": 10, "r": 10, "t": 10, "b": 10}
LEGEND: dict[str, Any] = {"orientation": "h", "x": 0, "y": -0.2, "yanchor": "top"}  # below the chart
HEADER = 92  # pixels above a figure's charts: titles, legend, and the buttons that appear on hover
MAX_POINTS = 6000  # of a t-SNE
# Zero is transparent, so that it takes the page's background, light or dark; one mistake is visible.
SHARES = [[0.0, "rgba(43,98,217,0)"], [1e-4, "rgba(43,98,217,0.14)"], [1.0, "rgba(43,98,217,1)"]]
SIGNED = [[0.0, "rgba(43,98,217,1)"], [0.499, "rgba(43,98,217,0.03)"], [0.501, "rgba(217,102,43,0.03)"],
          [1.0, "rgba(217,102,43,1)"]]
ERRORS = {"mse": ("Mean squared error", "MSE"), "negll": ("Negative log-likelihood", "NegLL")}  # in words, in short
COLUMNS = 2  # charts of a record in a row
DENSE = 200  # a line of more points needs the full width
TICK = 0.05  # length of a tick at a jump, as a share of the chart's height
OBSERVED, HELD_OUT = "Observed", "Held out"
OPEN_MARK = {"symbol": "diamond-open", "size": 7, "line": {"width": 1.5}}
BAND, GAP = 30, 34  # pixels: height of a band of classes, space between two records

Stretch = tuple[float, float, int]  # start, end, class


@dataclass(frozen=True)
class ChartedRun:
    """A finished run with the name and colour that it has in every figure of a page."""

    id: str
    name: str
    colour: str
    measure: MetricFormat
    experiment: str
    charts: ResultCharts

    @property
    def subject(self) -> str:
        """What a record is: patient, station or recording; empty if it is not known."""
        return SUBJECTS.get(self.experiment, "")

    @property
    def html_name(self) -> str:
        """The name for Plotly, which interprets some HTML tags."""
        return escape(self.name)

    def hover(self, text: str) -> str:
        return f"{text}<extra>{self.html_name}</extra>"


def time_title(units: set[str]) -> str:
    """Return the title of a time axis; it names the unit if there is exactly one."""
    if len(units) != 1:
        return "Time"
    (unit,) = units
    return f"Time ({WORDS.get(unit, escape(unit))})"


def mark_forecast(figure: go.Figure, times: set[float | None], in_legend: bool = False) -> None:
    """Draw a dotted line where forecasts start, in every chart of the figure; label it in the first one, or in the
    legend if there is no room."""
    line = {"color": NEUTRAL, "width": 1, "dash": "dot"}
    for time in times - {None}:
        figure.add_vline(x=time, line=line)
        if in_legend:
            figure.add_scatter(x=[None], y=[None], mode="lines", name="Forecast starts", legendrank=2002, line=line,
                               hoverinfo="skip", row=1, col=1)
            return
        figure.add_annotation(x=time, y=1, xref="x", yref="y domain", text="Forecast starts here", showarrow=False,
                              xanchor="left", yanchor="bottom", font={"color": NEUTRAL, "size": 11})


def add_band(figure: go.Figure, x: Sequence[float], low: Sequence[float], high: Sequence[float], colour: str,
             group: str, opacity: float = 0.2, **cell: Any) -> None:
    """Fill the area between two curves."""
    figure.add_scatter(x=[*x, *reversed(x)], y=[*high, *reversed(low)], fill="toself", fillcolor=colour,
                       opacity=opacity, line={"width": 0}, mode="lines", hoverinfo="skip", legendgroup=group,
                       showlegend=False, **cell)


def explain_band(figure: go.Figure, text: str, **more: Any) -> None:
    """Explain the bands around the lines in the legend."""
    figure.add_scatter(x=[None], y=[None], mode="markers", name=f"Band: {text}", hoverinfo="skip",
                       marker={"symbol": "square", "color": NEUTRAL, "size": 12, "opacity": 0.35}, **more)


def plain_figure(figure: go.Figure) -> dict[str, Any]:
    """Return a figure as JSON without Plotly's own theme, which the page around it has instead."""
    found = json.loads(figure.update_layout(template="none").to_json(engine="json"))
    del found["layout"]["template"]
    return found


# Classifications ----------------------------------------------------------------------------------------------------

def confusion(result: ResultCharts, ink: str | None = None) -> go.Figure | None:
    """Draw the confusion matrix, coloured by the share of each true class; `ink` is the colour of the numbers on a dark
    page, since Plotly assumes a white background."""
    if result.confusion is None:
        return None
    names, counts = [escape(c) for c in result.classes], result.confusion["counts"]
    shares = [[n / (sum(row) or 1) for n in row] for row in counts]
    few = len(names) <= 12
    text = [[str(n) if n else "" for n in row] for row in counts]  # zeros would only distract
    figure = go.Figure(go.Heatmap(
        z=shares, x=names, y=names, customdata=counts, colorscale=SHARES, zmin=0, zmax=1, xgap=1, ygap=1,
        text=text if few else None, texttemplate="%{text}" if few else None, textfont={"color": ink}, showscale=False,
        hovertemplate="true %{y}, predicted %{x}: %{customdata} (%{z:.1%})<extra></extra>"))
    figure.update_layout(height=380, margin=MARGIN)
    figure.update_xaxes(title="Predicted class", type="category", constrain="domain", showgrid=False)
    figure.update_yaxes(title="True class", type="category", autorange="reversed", scaleanchor="x", showgrid=False)
    return figure


def recall(result: ResultCharts) -> go.Figure | None:
    """Draw the accuracy of each class as a bar."""
    if result.confusion is None:
        return None
    names, shares = [escape(c) for c in result.classes], result.confusion["accuracy"]
    texts = ["no samples" if share is None else f"{share:.1%}" for share in shares]
    figure = go.Figure(go.Bar(
        x=[share or 0 for share in shares], y=names, orientation="h", text=texts, cliponaxis=False,
        textposition="none" if len(names) > 20 else "outside",
        marker={"color": [class_colour(k) for k in range(len(names))]}, hovertemplate="%{y}: %{text}<extra></extra>"))
    figure.update_layout(height=380, margin=MARGIN)
    figure.update_xaxes(title="Accuracy", range=[0, 1.17], tickformat=".0%", tickvals=[0, 0.25, 0.5, 0.75, 1],
                        zeroline=False)
    figure.update_yaxes(title="Class", type="category", autorange="reversed", showgrid=False)
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


# Curves of several runs ---------------------------------------------------------------------------------------------

def roc(runs: Sequence[ChartedRun]) -> go.Figure:
    """Draw one ROC curve for each run, with its AUC in the legend."""
    figure = _unit_square("False positive rate", "True positive rate")
    for run in runs:
        if found := run.charts.roc:
            auc = f" · AUC {found.auc:.3f}" if found.auc is not None else ""
            figure.add_scatter(x=found.fpr, y=found.tpr, mode="lines", name=run.html_name + auc,
                               line={"color": run.colour, "width": 2}, hovertemplate=run.hover(
                                   "true positive rate %{y:.1%}, false positive rate %{x:.1%}"))
    return figure


def calibration(runs: Sequence[ChartedRun]) -> go.Figure:
    """Draw one calibration curve for each run; a marker's area follows the number of cases."""
    figure = _unit_square("Predicted probability", "Observed frequency")
    largest = max((n for r in runs if r.charts.calibration for n in r.charts.calibration.count if n), default=1)
    for run in runs:
        if found := run.charts.calibration:
            sizes = [6 + 12 * ((n or 0) / largest) ** 0.5 for n in found.count]
            figure.add_scatter(
                x=found.predicted, y=found.observed, mode="lines+markers", name=run.html_name,
                line={"color": run.colour, "width": 1.5}, marker={"size": sizes, "color": run.colour, "opacity": 0.85},
                customdata=["?" if n is None else f"{n:,}" for n in found.count],
                hovertemplate=run.hover("predicted %{x:.2f}, observed %{y:.2f}<br>%{customdata} cases"))
    return figure


def _unit_square(x: str, y: str) -> go.Figure:
    figure = go.Figure()
    figure.add_scatter(x=[0, 1], y=[0, 1], mode="lines", line={"color": NEUTRAL, "width": 1.5, "dash": "dot"},
                       hoverinfo="skip", showlegend=False)
    figure.update_layout(height=520, margin=MARGIN, legend=LEGEND)
    figure.update_xaxes(title=x, range=[-0.02, 1.02], constrain="domain", constraintoward="left", zeroline=False)
    figure.update_yaxes(title=y, range=[-0.02, 1.02], scaleanchor="x", constrain="domain", zeroline=False)
    return figure


def over_time(runs: Sequence[ChartedRun], which: str = "mse") -> go.Figure:
    """Draw one of `ERRORS` over time, in the paper's unit if all runs are measured in it."""
    figure = go.Figure()
    drawn = [(r, found, r.measure) for r in runs if (found := r.charts.over_time) and getattr(found, which)]
    scales = {measure.scale for _, _, measure in drawn if measure.name.startswith("mse")}
    one_scale = which == "mse" and len(scales) == 1 and all(m.name.startswith("mse") for _, _, m in drawn)
    scale = scales.pop() if one_scale else 1.0
    for run, found, _ in drawn:
        figure.add_scatter(
            x=found.t, y=[None if v is None else v * scale for v in getattr(found, which)], mode="lines+markers",
            name=run.html_name, line={"color": run.colour, "width": 2}, marker={"size": 5}, connectgaps=False,
            customdata=["?" if n is None else f"{n:,}" for n in found.count],
            hovertemplate=run.hover("%{y:.4g} at %{x:.3~g}" + escape(f" {found.unit}".rstrip())
                                    + ", %{customdata} points"))
    figure.update_layout(height=440, margin=MARGIN, legend=LEGEND)
    figure.update_xaxes(title=time_title({found.unit for _, found, _ in drawn if found.unit}), zeroline=False)
    figure.update_yaxes(title=error_title(ERRORS[which][1], {run.experiment for run, _, _ in drawn}, scale),
                        rangemode="tozero" if which == "mse" else "normal", zeroline=False)
    mark_forecast(figure, {found.cut for _, found, _ in drawn if found.cut is not None and found.t[0] < found.cut})
    return figure


# Records of time series ---------------------------------------------------------------------------------------------

def records(found: Sequence[tuple[ChartedRun, SeriesRecord]]) -> go.Figure:
    """Draw one chart for each variable, with the predictions of all runs and each set of points once."""
    titles = {v.name: v.title for _, record in found for v in record.variables}
    names = list(titles)
    units = {name: " or ".join(sorted({v.unit for _, record in found for v in record.variables
                                       if v.name == name and v.unit})) for name in names}
    dense = any(record.jumps or any(len(v.grid) > DENSE for v in record.variables) for _, record in found)
    columns = 1 if dense else min(COLUMNS, len(names))
    rows = -(-len(names) // columns)
    cells = {name: {"row": i // columns + 1, "col": i % columns + 1} for i, name in enumerate(names)}
    height = HEADER + 40 + (180 if dense else 230) * rows
    figure = make_subplots(rows, columns, shared_xaxes="all", horizontal_spacing=0.13,
                           vertical_spacing=(36 if dense else 74) / height,
                           subplot_titles=[_variable_title(titles[n], units[n], dense) for n in names])
    for cell, title in zip(cells.values(), figure.layout.annotations, strict=True):  # at the left edge
        left_edge = figure.get_subplot(**cell).xaxis.domain[0]
        title.update(x=left_edge, xanchor="left", align="left", font={"size": 13})
    in_legend: set[str] = set()
    drawn: set[tuple[Any, ...]] = set()
    for run, record in found:
        for variable in record.variables:
            cell = cells[variable.name]
            _draw_prediction(figure, run, variable, run.id not in in_legend, 1.3 if dense else 2, cell)
            in_legend.add(run.id)
            for kind, x, y in ((OBSERVED, variable.t, variable.x), (HELD_OUT, variable.target_t, variable.target_x)):
                points = (variable.name, kind, tuple(x), tuple(y))
                if x and points not in drawn:  # runs mostly share their points
                    drawn.add(points)
                    figure.add_scatter(
                        x=points[2], y=points[3], mode="markers", name=kind, legendgroup=kind,
                        showlegend=kind not in in_legend, legendrank=2000,
                        marker={"color": NEUTRAL, "size": 5, **(OPEN_MARK if kind == HELD_OUT else {})},
                        hovertemplate=f"%{{y:.4g}} at %{{x:.3~f}}<extra>{kind}</extra>", **cell)
                    in_legend.add(kind)
    if jumps := sorted({t for _, record in found for t in record.jumps}):
        ticks = "".join(f"M{t:.6g},0V{TICK}" for t in jumps)  # one path for all ticks is faster than a shape each
        for cell in cells.values():
            figure.add_shape(type="path", path=ticks, xref="x", yref="y domain", line={"color": NEUTRAL, "width": 1},
                             **cell)
        figure.add_scatter(x=[None], y=[None], mode="markers", name="State jumps", legendrank=2001, hoverinfo="skip",
                           marker={"symbol": "line-ns-open", "color": NEUTRAL, "size": 9}, row=1, col=1)
    mark_forecast(figure, {record.cut for _, record in found}, in_legend=True)
    bands = {record.band or "spread of the samples" for _, record in found if any(v.low for v in record.variables)}
    if bands:
        explain_band(figure, escape(" or ".join(sorted(bands))), legendrank=1999, row=1, col=1)
    figure.update_layout(height=height, margin={**MARGIN, "t": HEADER}, legend=_legend_above(45, height))
    figure.update_xaxes(zeroline=False)
    figure.update_yaxes(zeroline=False, nticks=5)
    if dense:
        times = [t for _, record in found for v in record.variables for t in (*v.grid, *v.t, *v.target_t)]
        margin = 0.01 * (max(times) - min(times)) or 1.0
        figure.update_xaxes(range=(min(times) - margin, max(times) + margin))
        for row, name in enumerate(names, 1):
            figure.update_yaxes(title={"text": escape(units[name]) or "Value", "font": {"size": 11}}, row=row)
    return figure.update_xaxes(title=time_title({record.unit for _, record in found if record.unit}), row=rows)


def _variable_title(title: str, unit: str, dense: bool) -> str:
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


def _draw_prediction(figure: go.Figure, run: ChartedRun, variable: SeriesVariable, first: bool, width: float,
                     cell: dict[str, int]) -> None:
    spread = [(t, a, b) for t, a, b in zip(variable.grid, variable.low, variable.high, strict=False)
              if a is not None and b is not None]
    if spread:
        t, low, high = zip(*spread, strict=True)
        add_band(figure, t, low, high, run.colour, run.id, **cell)
    if variable.grid:
        figure.add_scatter(x=variable.grid, y=variable.mean, mode="lines", name=run.html_name, legendgroup=run.id,
                           showlegend=first, line={"color": run.colour, "width": width}, connectgaps=False,
                           hovertemplate=run.hover("%{y:.4g} at %{x:.3~f}"), **cell)


# Classes over time --------------------------------------------------------------------------------------------------

def bands(found: Sequence[tuple[ChartedRun, Band]]) -> go.Figure:
    """Draw one chart for each record, with a lane for the truth and one for each run."""
    records = list(dict.fromkeys(band.id for _, band in found))
    lanes_of = [_lanes([(run, band) for run, band in found if band.id == name]) for name in records]
    counts = [len(lanes) for lanes in lanes_of]
    height = HEADER + 30 + sum(BAND * n + GAP for n in counts)
    gap = GAP / height if len(records) > 1 else 0
    titles = [escape(subject_name(found[0][0].subject, name)) for name in records]
    figure = make_subplots(len(records), 1, subplot_titles=titles, row_heights=counts,
                           shared_xaxes=True, vertical_spacing=min(gap, 0.9 / max(len(records) - 1, 1)))
    classes = next((run.charts.classes for run, _ in found if run.charts.classes), [])
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
    figure.update_layout(height=height, barmode="overlay", margin={**MARGIN, "t": HEADER},
                         legend={**_legend_above(40, height), "traceorder": "normal"})
    figure.update_xaxes(zeroline=False)
    figure.update_xaxes(title=time_title({band.unit for _, band in found if band.unit}), row=len(records))
    figure.update_annotations(font={"size": 13}, x=0, xanchor="left")
    return figure


def _lanes(found: Sequence[tuple[ChartedRun, Band]]) -> list[tuple[str, list[Stretch]]]:
    """Return label and stretches of each distinct truth, before the first run that has it, and of each run."""
    lanes: list[tuple[str, list[Stretch]]] = []
    truths: list[list[Stretch]] = []
    for run, band in found:
        if band.true and band.true not in truths:
            truths.append(band.true)
            lanes.append(("True class" + " " * len(truths[1:]), band.true))  # spaces keep several lanes apart
        correct = f" ({band.accuracy:.0%} correct)" if band.accuracy is not None else ""
        lanes.append((run.html_name + correct, band.predicted))
    return lanes


def _legend_above(pixels: int, height: int) -> dict[str, Any]:
    return {"orientation": "h", "x": 0, "y": 1 + pixels / height, "yanchor": "bottom"}


# Coupling of variables ----------------------------------------------------------------------------------------------

def largest_shares(found: Coupling) -> dict[str, float]:
    """Return the largest value of each matrix."""
    return {side: max((abs(v) for row in z for v in row if v is not None), default=1.0) or 1.0
            for side, z in found.shares().items()}


def coupling(found: Coupling, largest: float | None = None) -> go.Figure:
    """Draw the known and the learned matrix side by side; only the left one names its rows. `largest` is the value at
    which the colours of all matrices end; each has its own if None."""
    both = found.shares()
    figure = make_subplots(1, len(both), subplot_titles=[side.title() for side in both], horizontal_spacing=0.12)
    names, titles = ([escape(n) for n in texts] for texts in (found.names, found.titles))
    for i, (side, z) in enumerate(both.items()):
        end = largest_shares(found)[side] if largest is None else largest
        right_edge = figure.layout["xaxis" if i == 0 else f"xaxis{i + 1}"].domain[1]
        figure.add_heatmap(
            z=z, x=names, y=titles, zmin=-end, zmax=end, colorscale=SIGNED, xgap=1, ygap=1,
            showscale=largest is None or i == len(both) - 1,
            colorbar={"x": right_edge + 0.01, "thickness": 10, "outlinewidth": 0, "nticks": 5, "tickformat": "+.0%",
                      "title": {"text": "vs uniform", "font": {"size": 11}}},
            hovertemplate="%{y} ← %{x}: %{z:+.1%}<extra></extra>", row=1, col=i + 1)
    figure.update_layout(height=min(290 + 22 * len(names), 690), margin={**MARGIN, "t": 64})
    figure.update_xaxes(title="Influencing variable", type="category", showgrid=False, zeroline=False)
    figure.update_yaxes(type="category", showgrid=False, zeroline=False, autorange="reversed")
    figure.update_yaxes(title="Influenced variable", col=1)
    for column in range(2, len(both) + 1):
        figure.update_yaxes(showticklabels=False, ticks="", col=column)
    return figure
