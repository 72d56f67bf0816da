"""The paper's figures from our runs: error over time, t-SNE with silhouettes, attention at several times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from statistics import mean

import numpy as np
import plotly.graph_objects as go

from acenode.compare import figures, result_charts
from acenode.compare.cells import REPRESENTATION, Measured, result_of
from acenode.compare.colours import PALETTE
from acenode.compare.figures import LEGEND, MARGIN, add_band, explain_band, mark_forecast, time_title
from acenode.compare.groups import method_title
from acenode.compare.metrics import error_title
from acenode.compare.paper import CELLS, HOSTS, PaperCell
from acenode.compare.result_charts import OverTime, ResultCharts
from acenode.files import Stamp, stamp
from acenode.player import attention, description, snapshots
from acenode.player.attention import MapKind, Measure
from acenode.player.snapshots import TimeAxis
from acenode.runs.entry import Entry
from acenode.runs.store import Run

TSNE_METHODS = ("odenet", "augmented", "ace")
TSNE_EXPERIMENTS = ("cifar10", "svhn", "mnist")  # the paper shows the first one
FRAMES = 5  # times at which the attention is shown
MAIN = {"ace": PALETTE[1], "augmented": PALETTE[2], **dict.fromkeys(("latent-ode", "gru-ode-bayes"), PALETTE[0])}
MAP_WIDTH = 170  # pixels
ATTENTION = [[0.0, "rgba(43,98,217,0.04)"], [1.0, "rgba(43,98,217,1)"]]

Values = Mapping[str, Measured]  # by the key of the cell


@dataclass(frozen=True)
class ErrorLine:
    """The error of one method over time: the mean over its runs, and the smallest and largest."""

    cell: PaperCell
    t: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    runs: int
    first: OverTime  # whose times are those of all


@dataclass(frozen=True)
class TsnePanel:
    """The t-SNE of one run, and the mean silhouette over all runs of its method."""

    entry: Entry
    charts: ResultCharts
    silhouette: float | None
    runs: int


@dataclass(frozen=True)
class AttentionFrames:
    """Attention maps (T, rows, columns) of one probe at times t, from the last snapshot of a run."""

    kind: MapKind
    t: list[float]
    maps: np.ndarray
    measure: Measure  # how attention acts at each time
    measured: list[float]
    epoch: int
    probes: list[str]
    size: int = 0  # coordinates of the state, for pairwise attention
    time: TimeAxis | None = None  # what t means

    def measure_text(self, place: int) -> str:
        """Write how attention acts at one of the times: `9.7 of 20 mixed`, `48% passes`."""
        value = self.measured[place]
        return f"{value:.1%} passes" if self.measure.name == "passed" else f"{value:.1f} of {self.size} mixed"

    def time_text(self, place: int) -> str:
        """Write one of the times with its unit: `28.8 hours`, or `t = 0.6` if it has none."""
        t = self.t[place]
        if self.time is None:
            return f"t = {t:.3g}"
        return f"{float(f'{t * self.time.scale:.3g}'):,g} {self.time.unit}"


def over_time_cells(experiment: str, task: str | None = None, ablations: bool = False) -> list[PaperCell]:
    """Return the cells whose errors over time belong in one figure: all methods, or ACE with its ablations."""
    return [c for c in CELLS.values() if (c.experiment, c.metric, c.settings.get("task")) == (experiment, "mse", task)
            and (c.method == "ace" if ablations else not c.ablation)]


def error_lines(cells: Iterable[PaperCell], measured: Values) -> list[ErrorLine]:
    """Return a line for every cell with runs that have errors over time; ACE comes last, so that it is on top."""
    lines = [line for cell in cells if (line := _line(cell, measured.get(cell.key, Measured()))) is not None]
    return sorted(lines, key=lambda line: (line.cell.method == "ace", not line.cell.ablation))


def smallest_error_sentence(lines: Sequence[ErrorLine]) -> str:
    """Say how often ACE has the smallest and the largest mean error of the methods with as many runs; or nothing."""
    ace = next((line for line in lines if line.cell.method == "ace" and not line.cell.ablation), None)
    rivals = [line for line in lines if line is not ace and ace is not None and line.runs == ace.runs]
    if ace is None or not rivals:
        return ""
    others = [dict(zip(line.t, line.mean, strict=True)) for line in rivals]
    pairs = [(value, [o[t] for o in others]) for t, value in zip(ace.t, ace.mean, strict=True)
             if all(t in o for o in others)]
    smallest = sum(value <= min(rest) for value, rest in pairs)
    largest = sum(value > max(rest) for value, rest in pairs)
    names = ", ".join(line.cell.title for line in rivals)
    return (f"Among {names} and ACE, ACE has the smallest mean error at {smallest} of {len(pairs)} times and the "
            f"largest at {largest}.")


def _line(cell: PaperCell, measured: Measured) -> ErrorLine | None:
    found = [o for e in measured.entries if (o := _over_time(e.run, stamp(e.path / "result.json"))) is not None]
    found = [o for o in found if o.t == found[0].t]
    if not found:
        return None
    t, columns = [], []
    for i, at in enumerate(found[0].t):
        values = [v * cell.format.scale for o in found if (v := o.mse[i]) is not None]
        if values:
            t.append(at)
            columns.append((mean(values), min(values), max(values)))
    middle, low, high = ([column[i] for column in columns] for i in range(3))
    return ErrorLine(cell, t, middle, low, high, len(found), found[0])


def errors(lines: list[ErrorLine]) -> go.Figure:
    """Draw a line with a band for each method; ACE is thicker."""
    figure = go.Figure()
    colours = _colours(lines)
    for line in lines:
        colour, name = colours[line.cell.title], escape(line.cell.title)
        if line.runs > 1:
            add_band(figure, line.t, line.low, line.high, colour, line.cell.key, 0.12)
        ours = line.cell.method == "ace" and not line.cell.ablation
        figure.add_scatter(
            x=line.t, y=line.mean, mode="lines+markers", name=f"{name} ({line.runs} run{'s' * (line.runs > 1)})",
            line={"color": colour, "width": 3 if ours else 1.5}, marker={"size": 6 if ours else 4},
            legendgroup=line.cell.key, hovertemplate="%{y:.4g} at %{x:.3~g}<extra>" + name + "</extra>")
    if any(line.runs > 1 for line in lines):
        explain_band(figure, "smallest to largest")
    figure.update_layout(height=480, margin=MARGIN, legend={**LEGEND, "y": -0.24})
    units = {line.first.unit for line in lines if line.first.unit}
    note = next((line.first.unit_note for line in lines if line.first.unit_note), "")
    title = f"Time ({escape(note.rstrip('.'))})" if note and not units else time_title(units)
    figure.update_xaxes(title=title, zeroline=False)
    error = error_title("MSE", {line.cell.experiment for line in lines}, lines[0].cell.format.scale)
    figure.update_yaxes(title=error, rangemode="tozero", zeroline=False)
    mark_forecast(figure, {at for line in lines if (at := line.first.cut) is not None and line.t[0] < at})
    return figure


def _colours(lines: list[ErrorLine]) -> dict[str, str]:
    """Give ACE and the methods of the paper's figures the same colours everywhere, the others the rest."""
    known = {line.cell.title: MAIN[line.cell.method] for line in lines
             if line.cell.method in MAIN and not line.cell.ablation}
    rest = [colour for colour in PALETTE if colour not in MAIN.values()]
    others = [line.cell.title for line in lines if line.cell.title not in known]
    return known | {title: rest[i % len(rest)] for i, title in enumerate(others)}


@lru_cache(maxsize=1024)
def _over_time(run: Run, at: Stamp | None) -> OverTime | None:
    result = result_of(run)
    records = result.get("records")
    first = records[:1] if isinstance(records, list) else []  # says what the time axis means
    return result_charts.read({"over_time": result.get("over_time"), "cut": result.get("cut"),
                               "records": first}).over_time


def tsne_panels(measured: Values) -> tuple[str, list[TsnePanel]]:
    """Return the experiment and a panel for each method with a t-SNE: CIFAR10 as in the paper if it has at least two,
    else the first experiment that has."""
    best: tuple[str, list[TsnePanel]] = ("", [])
    for experiment in TSNE_EXPERIMENTS:
        found = [p for m in TSNE_METHODS if (p := _panel(measured.get(f"{experiment}/{m}/accuracy", Measured())))]
        if len(found) > len(best[1]):
            best = experiment, found
        if len(found) == len(TSNE_METHODS):
            break
    return best


def _panel(measured: Measured) -> TsnePanel | None:
    charts = [(e, _charts(e.run, stamp(e.path / "result.json"))) for e in measured.entries]
    shown = next(((e, c) for e, c in charts if c.tsne is not None), None)
    if shown is None:
        return None
    values = [v for _, c in charts if (v := c.silhouettes.get(REPRESENTATION)) is not None]
    return TsnePanel(*shown, mean(values) if values else None, len(values))


def tsne(panel: TsnePanel) -> go.Figure:
    """Draw the t-SNE of one method, with its silhouette in the title."""
    figure = figures.tsne(panel.charts)
    assert figure is not None
    figure.update_traces(marker={"size": 3.5, "opacity": 0.75}, customdata=None,
                         hovertemplate="%{fullData.name}<extra></extra>")
    figure.update_yaxes(scaleanchor=None)
    title = escape(method_title(panel.entry.experiment, panel.entry.method))
    if panel.silhouette is not None:
        over = f"mean of {panel.runs} runs" if panel.runs > 1 else "1 run"
        title += f", seed {panel.entry.seed}<br>silhouette {panel.silhouette:.4f} ({over})"
    return figure.update_layout(height=440, margin={**MARGIN, "t": 60}, title={"text": title, "font": {"size": 14}},
                                legend={**LEGEND, "y": -0.14, "yref": "paper"})


@lru_cache(maxsize=64)
def _charts(run: Run, at: Stamp | None) -> ResultCharts:
    return result_charts.read(result_of(run))


def attention_runs(measured: Values) -> dict[str, Entry]:
    """Return one ACE run with snapshots for every experiment that has one, by experiment and task."""
    found: dict[str, Entry] = {}
    for cell in CELLS.values():
        if cell.method == "ace" and not cell.ablation and cell.experiment in HOSTS:
            name = "/".join((cell.experiment, *map(str, cell.settings.values())))
            for entry in measured.get(cell.key, Measured()).entries:
                if name not in found and entry.run.snapshots():
                    found[name] = entry
    return found


def attention_frames(run: Run, probe: int = 0) -> AttentionFrames | None:
    """Return the attention of a probe at evenly spaced times; None if the last snapshot has no maps to draw."""
    paths = run.snapshots()
    found = snapshots.load(run, paths[-1]) if paths else "nothing"
    if isinstance(found, str) or (kind := attention.kind_of(found.arrays)) is None:
        return None
    a = found.arrays["a"]
    count = a.shape[1]
    places = np.unique(np.rint(np.linspace(0, len(a) - 1, FRAMES)).astype(int))
    own = a[:, probe:probe + 1]
    maps = attention.weights(own[places], kind, widest=max(a.shape[-2:]))[:, 0]  # whole: the axes count its rows
    config = snapshots.config_of(run)
    titles, labels = description.classes(config) or [], snapshots.labels(found.arrays, count)
    classes = [f", {titles[k] if k < len(titles) else f'class {k}'}" for k in labels] if labels else [""] * count
    names = description.names(config, found.arrays, count) or [f"Sample {i}{k}" for i, k in enumerate(classes, 1)]
    return AttentionFrames(kind, [float(found.arrays["t"][i]) for i in places], maps,
                           attention.measure_of(kind),
                           attention.curves(own[places], kind)[:, 0, 0].tolist(), found.epoch, names,
                           a.shape[-1], snapshots.time_axis(config, found.arrays))


def attention_map(found: AttentionFrames, place: int) -> go.Figure:
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
