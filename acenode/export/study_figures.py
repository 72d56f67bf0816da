"""All figures of a study as SVG: values by group, differences to the baseline, and validation over the epochs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import mean

from acenode.compare.metrics import axis_index, read_records, to_float
from acenode.compare.study_answer import StudyReport
from acenode.compare.study_grid import GridRow
from acenode.export import svg_parts
from acenode.export.study_figure import to_svg
from acenode.export.svg_parts import LETTER, LINE, PADDING, WIDTH, Position, across, line, margins, number, svg, text
from acenode.files import Stamp, stamp
from acenode.runs.questions import MAX_RUNS
from acenode.runs.store import Run

HEIGHT = 300  # pixels of the plot of curves
Curve = list[tuple[int, float, float, float]]  # epoch, mean, smallest, largest


@dataclass(frozen=True)
class StudyFigure:
    """A figure with the end of its file's name."""

    name: str
    title: str
    svg: str


def figures(found: StudyReport) -> list[StudyFigure]:
    """Draw the figures for which there are values."""
    made = (StudyFigure("results", "Every run by group", to_svg(found)),
            StudyFigure("differences", f"Difference to {found.grid.baseline.name}", differences_svg(found)),
            StudyFigure("curves", "Validation during training", curves_svg(found)))
    return [figure for figure in made if figure.svg]


def differences_svg(found: StudyReport) -> str:
    """Draw the difference of every group to the baseline with its 95% interval."""
    measure = found.grid.measure
    shown = [c for c in found.answer.comparisons if c.difference is not None and c.interval is not None]
    if not shown:
        return ""
    low, high = margins([0.0, *(end for c in shown for end in c.interval or ())])
    left = 20 + LETTER * max(len(c.name) for c in shown)
    bottom = LINE * len(shown) + PADDING
    x, parts = across(low, high, measure.scale, left, bottom)
    parts.append(line("zero", (x(0), x(0)), (0, bottom)))
    for i, c in enumerate(shown):
        y = PADDING + LINE * i + LINE / 2
        assert c.interval is not None
        assert c.difference is not None
        parts += [text(left - 8, y + 5, c.name, "end"), line("interval", (x(c.interval[0]), x(c.interval[1])), (y, y)),
                  f'<circle class="dot" cx="{x(c.difference):.1f}" cy="{y:.0f}" r="6"/>']
    unit = " in points" if measure.unit == "%" else f" ({measure.unit.strip()})" if measure.unit.strip() else ""
    parts.append(text(left + WIDTH / 2, bottom + 38, f"Difference of test {measure.title}{unit}, with 95% interval"))
    label = f"Difference of every group to {found.grid.baseline.name} with its 95% interval"
    return svg(left + WIDTH, bottom + 44, label, parts)


def curves_svg(found: StudyReport) -> str:
    """Draw the validation metric of every group over the epochs: the mean over runs, and a band from the smallest to
    the largest."""
    measure = found.grid.measure
    curves = {row.name: curve for row in found.grid.rows if (curve := validation_curve(row, measure.name))}
    last = max((point[0] for curve in curves.values() for point in curve), default=0)
    if last < 2:
        return ""
    low, high = margins([end for curve in curves.values() for point in curve for end in point[2:]])
    left, top = 64.0, LINE * 0.7 * len(curves) + 12
    bottom = top + HEIGHT

    def x(epoch: float) -> float:
        return left + (epoch - 1) / (last - 1) * (WIDTH - PADDING)

    def y(value: float) -> float:
        return bottom - (value - low) / (high - low) * HEIGHT

    parts = []
    for tick in svg_parts.ticks(low * measure.scale, high * measure.scale):
        at = y(tick / measure.scale)
        parts += [line("axis", (left, left + WIDTH - PADDING), (at, at)), text(left - 8, at + 5, number(tick), "end")]
    parts += [text(x(epoch), bottom + 18, number(epoch)) for epoch in svg_parts.ticks(1, last) if epoch == int(epoch)]
    for i, (name, curve) in enumerate(curves.items()):
        colour, at = svg_parts.COLOURS[i % len(svg_parts.COLOURS)], LINE * 0.7 * i + 14
        parts += [f'<g style="stroke:{colour};fill:{colour}">{_band(curve, x, y)}'
                  f'<polyline class="curve" points="{" ".join(f"{x(e):.1f},{y(v):.1f}" for e, v, *_ in curve)}"/>'
                  f'{line("curve", (left, left + 26), (at - 5, at - 5))}</g>', text(left + 34, at, name, "start")]
    unit = f" ({measure.unit.strip()})" if measure.unit.strip() else ""
    legend = f"Epoch; validation {measure.title}{unit}, mean and range of runs"
    parts.append(text(left + WIDTH / 2, bottom + 38, legend))
    return svg(left + WIDTH, bottom + 44, f"Validation {measure.title} over the epochs by group", parts)


def _band(curve: Curve, x: Position, y: Position) -> str:
    ends = [*((e, high) for e, _, _, high in curve), *((e, low) for e, _, low, _ in reversed(curve))]
    return f'<polygon class="band" points="{" ".join(f"{x(e):.1f},{y(v):.1f}" for e, v in ends)}"/>'


def validation_curve(row: GridRow, metric: str) -> Curve:
    """Return mean, smallest and largest validation value of a group's runs by epoch, as far as all runs have it."""
    key, folders = f"validation_{metric}", [entry.run for entry in row.entries]
    runs = [found for run in folders if (found := _by_epoch(run, key, _stamps(run)))]
    if not runs:
        return []
    shared = sorted(set(runs[0]).intersection(*runs[1:]))
    by_epoch = {epoch: [run[epoch] for run in runs] for epoch in shared}
    return [(epoch, mean(own), min(own), max(own)) for epoch, own in by_epoch.items()]


def _stamps(run: Run) -> tuple[Stamp | None, ...]:
    return tuple(stamp(run.path / name) for name in ("metrics.jsonl", "metrics.jsonl.gz"))


@lru_cache(maxsize=MAX_RUNS)
def _by_epoch(run: Run, key: str, stamps: tuple[Stamp | None, ...]) -> dict[int, float]:
    """Return the finite values of a key by epoch; `stamps` change whenever the metrics do."""
    found = {}
    for record in read_records(run).epochs:
        epoch, value = axis_index(record, "epoch"), to_float(record.get(key))
        if epoch is not None and value is not None and math.isfinite(value):
            found[epoch] = value
    return found
