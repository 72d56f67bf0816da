"""Data of the paper's figures from our runs: error over time, t-SNE with silhouettes, attention at several times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import mean

import numpy as np

from acenode.compare import result_charts, series_charts
from acenode.compare.cells import Measured
from acenode.compare.paper import CELLS, HOSTS, PaperCell
from acenode.compare.result_charts import ResultCharts
from acenode.compare.series_charts import OverTime
from acenode.errors import UserError
from acenode.files import Stamp, stamp
from acenode.player import attention, description, snapshots
from acenode.player.attention import MapKind, Measure
from acenode.player.snapshots import TimeAxis
from acenode.runs.entry import Entry
from acenode.runs.store import Run

TSNE_METHODS = ("odenet", "augmented", "ace")
TSNE_EXPERIMENTS = ("cifar10", "svhn", "mnist")  # the paper shows the first one
REPRESENTATION = "features"  # of which the silhouette is shown
FRAMES = 5  # times at which the attention is shown

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
    unit: str
    cut: float | None
    unit_note: str


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
    found = [c for c in CELLS.values() if c.experiment == experiment and c.metric == "mse"
             and c.settings.get("task") == task]
    if ablations:
        return [c for c in found if c.method == "ace"]
    return [c for c in found if not c.ablation]


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
    first = found[0]
    return ErrorLine(cell, t, [c[0] for c in columns], [c[1] for c in columns], [c[2] for c in columns], len(found),
                     first.unit, first.cut, first.unit_note)


@lru_cache(maxsize=1024)
def _over_time(run: Run, at: Stamp | None) -> OverTime | None:
    """Read the errors over time of a result with this stamp."""
    result = _result(run)
    if result is None:
        return None
    records = result.get("records")
    first = records[:1] if isinstance(records, list) else []  # says what the time axis means
    return series_charts.read({"over_time": result.get("over_time"), "cut": result.get("cut"),
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
    shown = next(((e, c) for e, c in charts if c is not None and c.tsne is not None), None)
    if shown is None or shown[1] is None:
        return None
    values = [v for _, c in charts if c is not None and (v := c.silhouettes.get(REPRESENTATION)) is not None]
    return TsnePanel(*shown, mean(values) if values else None, len(values))


@lru_cache(maxsize=64)
def _charts(run: Run, at: Stamp | None) -> ResultCharts | None:
    result = _result(run)
    return None if result is None else result_charts.read(result, "finished")


def _result(run: Run) -> dict | None:
    try:
        return run.result()
    except UserError:  # deleted or damaged since it was listed
        return None


def attention_runs(measured: Values) -> dict[str, Entry]:
    """Return one ACE run with snapshots for every experiment that has one, by experiment and task."""
    found: dict[str, Entry] = {}
    for cell in CELLS.values():
        if cell.method == "ace" and not cell.ablation and cell.experiment in HOSTS:
            name = "/".join((cell.experiment, *map(str, cell.settings.values())))
            entry = next((e for e in measured.get(cell.key, Measured()).entries if e.run.snapshots()), None)
            if entry is not None:
                found.setdefault(name, entry)
    return found


def attention_frames(run: Run, probe: int = 0, frames: int = FRAMES) -> AttentionFrames | None:
    """Return the attention of a probe at evenly spaced times; None if the last snapshot has no maps to draw."""
    paths = run.snapshots()
    found = snapshots.load(run, paths[-1]) if paths else "nothing"
    if isinstance(found, str) or (kind := attention.kind_of(found.arrays)) is None:
        return None
    a = found.arrays["a"]
    count = a.shape[1]
    probe = min(max(probe, 0), count - 1)
    places = np.unique(np.rint(np.linspace(0, len(a) - 1, frames)).astype(int))
    own = a[:, probe:probe + 1]
    maps = attention.weights(own[places], kind, widest=max(a.shape[-2:]))[:, 0]  # whole: the axes count its rows
    config = snapshots.config_of(run)
    names = description.names(config, found.arrays, count) \
        or _probe_names(description.classes(config) or [], snapshots.labels(found.arrays, count), count)
    return AttentionFrames(kind, [float(found.arrays["t"][i]) for i in places], maps,
                           attention.measure_of(kind),
                           attention.curves(own[places], kind)[:, 0, 0].tolist(), found.epoch, names,
                           a.shape[-1], snapshots.time_axis(config, found.arrays))


def _probe_names(names: list[str], classes: list[int] | None, count: int) -> list[str]:
    """Number the probes, with the names of their classes if they have some."""
    return [f"Sample {i + 1}" + (f", {names[classes[i]] if classes[i] < len(names) else f'class {classes[i]}'}"
                                 if classes else "") for i in range(count)]
