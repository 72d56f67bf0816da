"""The grid of a study for the browser: state, progress and value of every run, and the time that is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from acenode.compare.study_grid import MISSING, GridCell, GridRow, StudyGrid, make_grid, repeat_title, with_device
from acenode.config import Config
from acenode.execution.study_run import cell_seconds
from acenode.runs.questions import StudyStore

from .. import estimates, labels
from ..services import services


def view(name: str) -> dict[str, Any]:
    """Return the present grid of the study with this name; a UserError says why there is none."""
    return describe(make_grid(StudyStore(services().store).read(name), services().catalogue.entries()))


def describe(grid: StudyGrid) -> dict[str, Any]:
    """Return what the browser draws: texts of all cells, the runs that train now, and the time that is left."""
    launcher = services().launcher if services().launcher_ready else None  # do not wait for torch
    queue = {run_id: place for place, run_id in enumerate(launcher.queue() if launcher else [], 1)}
    return {
        "columns": [repeat_title(grid.study, repeat) for repeat in grid.study.repeats],
        "rows": [_row(grid, row, queue) for row in grid.rows],
        "metric": grid.measure.heading,
        "finished": grid.finished, "runs": len(grid.cells), "progress": grid.progress,
        "now": [_now(grid, row, cell) for row in grid.rows for cell in row.cells if cell.state == "running"],
        "left": time_text(grid) if grid.running else "",
        "states": " ".join(f"{cell.entry.id if cell.entry else ''}:{cell.state}" for cell in grid.cells),
    }


def time_text(grid: StudyGrid) -> str:
    """Say how long the queued and running runs still take, from their own speed and that of similar runs."""
    seconds, cells = estimates.known_seconds(), grid.running
    times = [_seconds(cell, seconds) for cell in cells]
    known = [time for time in times if time is not None]
    if not known:
        return ""
    workers = _workers(_device(cells[0]))
    text = f"about {labels.duration(max(sum(known) / workers, max(known)))} left"
    return text if len(known) == len(times) else f"{text}, and {len(times) - len(known)} runs of unknown time"


def _seconds(cell: GridCell, seconds: Callable[[Config], float | None]) -> float | None:
    """Return the seconds that a cell's run still takes on its device."""
    return cell_seconds(cell, lambda config: seconds(with_device(config, _device(cell))))


def _device(cell: GridCell) -> str:
    """Return the device that a cell's run asks for."""
    return str(cell.entry.config.get("device", "auto")) if cell.entry else "auto"


def _workers(device: str) -> int:
    """Return how many runs are trained at a time on the devices that a run can use."""
    return services().launcher.workers(device) if services().launcher_ready else 1


def _row(grid: StudyGrid, row: GridRow, queue: dict[str, int]) -> dict[str, Any]:
    spread = f" ± {grid.measure.number(row.std)}" if row.std is not None else ""
    return {"name": row.name, "baseline": row is grid.baseline,
            "mean": "" if row.mean is None else grid.measure.number(row.mean) + spread,
            "cells": [_cell(grid, cell, queue) for cell in row.cells]}


def _cell(grid: StudyGrid, cell: GridCell, queue: dict[str, int]) -> dict[str, Any]:
    entry = cell.entry
    state = "finished" if cell.value is not None else cell.state
    return {"state": state, "progress": cell.progress, "text": _text(grid, cell, queue),
            "about": "Not trained yet" if state == MISSING else state.capitalize(),
            "link": f"{entry.experiment}?runs={entry.id}" if entry else ""}


def _text(grid: StudyGrid, cell: GridCell, queue: dict[str, int]) -> str:
    """Write a cell: its value, its progress, its place in the queue or its state."""
    if cell.value is not None:
        return grid.measure.number(cell.value)
    if cell.state == "running":
        return f"{100 * cell.progress:.0f}%" if cell.progress < 1 else "testing"
    if cell.entry is not None and cell.state == "queued":
        place = queue.get(cell.entry.id)
        return f"{labels.ordinal(place)} in queue" if place else "queued"
    if cell.state == MISSING:
        return "–"
    return f"{cell.state} at {100 * cell.progress:.0f}%" if cell.progress else cell.state


def _now(grid: StudyGrid, row: GridRow, cell: GridCell) -> str:
    """Say which run trains, how far it is and how long it still takes."""
    entry = cell.entry
    assert entry is not None
    left = f", {labels.duration(entry.seconds_left)} left" if entry.seconds_left else ""
    best = f", validation {grid.measure.text(entry.best)}" if entry.best is not None and not grid.study.metric else ""
    stage = f"epoch {min(entry.epoch + 1, entry.epochs)} of {entry.epochs}" if entry.epochs else "starting"
    stage = "testing" if entry.progress >= 1 else stage
    return f"{row.name}, {repeat_title(grid.study, cell.repeat)}: {stage}{best}{left}"
