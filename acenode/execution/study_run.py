"""Train a study: which runs are left and how long they take; through a launcher, or from Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from acenode import experiments
from acenode.compare.groups import unfinished
from acenode.compare.metrics import duration
from acenode.compare.reproduction import Seconds, measured_seconds
from acenode.compare.study_grid import GridCell, StudyGrid, make_grid, repeat_title, with_device
from acenode.config import Config
from acenode.data.folder import data_dir, is_file
from acenode.data.registry import source_of
from acenode.errors import UserError
from acenode.execution.devices import quick_device
from acenode.execution.estimate import estimate
from acenode.execution.execute import create
from acenode.execution.processes import stop_on_interrupt
from acenode.execution.reproduce import RunLauncher, start_or_resume
from acenode.execution.seed_group import without_seed
from acenode.execution.together import execute_together
from acenode.runs.catalogue import Catalogue, Entry
from acenode.runs.questions import Search, Study
from acenode.runs.recorded import chosen_recorded_runs
from acenode.runs.store import Run, RunStore


@dataclass(frozen=True)
class StudyTime:
    """The runs that are left and how long they take, `workers` at a time."""

    runs: int  # that are missing, unfinished or running
    seconds: float | None  # of those whose time is known; None if that is none of them
    unknown: int = 0  # runs whose time is not known
    workers: int = 1
    basis: str = ""  # what the time is based on, or why there is none

    @property
    def text(self) -> str:
        """The time in words: `9 runs, about 8 min (from 3 similar finished runs)`."""
        if not self.runs:
            return "all runs are finished"
        text = f"{self.runs} run{'s' * (self.runs > 1)}, "
        text += "time unknown" if self.seconds is None else f"about {duration(self.seconds)}"
        if self.seconds is not None:
            text += f" {self.workers} at a time" * (self.workers > 1)
            text += f" and {self.unknown} of unknown time" * (self.unknown > 0)
        return text + (f" ({self.basis})" if self.basis else "")


def time_left(grid: StudyGrid, seconds: Seconds, workers: int = 1, basis: str = "") -> StudyTime:
    """Return the time of the runs that are left.

    Args:
        grid: the study with the runs there are.
        seconds: gives the seconds of a whole run, None if unknown.
        workers: runs at a time. Side by side, runs are taken to be as fast as alone.
        basis: what the times are based on.
    """
    times = [cell_seconds(cell, seconds) for cell in grid.cells if cell.value is None]
    known = [time for time in times if time is not None]
    total = max(sum(known) / workers, max(known)) if known else None
    return StudyTime(len(times), total, len(times) - len(known), workers, basis)


def cell_seconds(cell: GridCell, seconds: Seconds) -> float | None:
    """Return the seconds that are left of one cell: what a running run says itself, else a share of the whole."""
    if cell.value is not None:
        return 0.0
    if cell.entry is not None and cell.entry.state == "running" and cell.entry.seconds_left is not None:
        return cell.entry.seconds_left
    whole = seconds(cell.config)
    return None if whole is None else whole * (1 - cell.progress)


@dataclass(frozen=True)
class StudyRun:
    """A run to train for a study."""

    title: str
    config: Config
    seconds: float | None


def plan(grid: StudyGrid, device: str = "auto", seconds: Seconds = lambda config: None) -> list[StudyRun]:
    """Return the runs that are missing or unfinished, the first seed of every group first."""
    names = {id(cell): row.name for row in grid.rows for cell in row.cells}
    return [StudyRun(f"{names[id(cell)]}, {repeat_title(grid.study, cell.repeat)}", with_device(cell.config, device),
                     cell_seconds(cell, seconds)) for cell in grid.wanted]


def check_data(use: Study | Search, root: Path) -> None:
    """Raise a UserError if a study or search needs data that is not in the data folder."""
    source = experiments.get(use.experiment).source
    if use.data == "full" and source is not None and not is_file(source_of(source).path(root)):
        raise UserError(f"the data of {use.experiment} is missing: get it with `acenode data get {source}`")


def estimated_time(grid: StudyGrid, catalogue: Catalogue, root: Path, *, device: str = "auto",
                   workers: int = 1) -> StudyTime:
    """Return the time of the runs that are left, from similar finished runs; where there are none, iterations are
    timed, which takes seconds."""
    found = estimate([with_device(cell.config, device) for cell in grid.cells if cell.value is None], catalogue, root)
    each = {with_device(config, "auto"): seconds for config, seconds in found.seconds_each.items()}
    return time_left(grid, lambda config: each.get(with_device(config, "auto")), workers, found.basis)


def measured_time(grid: StudyGrid, catalogue: Catalogue, *, device: str = "auto", workers: int = 1) -> StudyTime:
    """Return the time of the runs that are left from similar finished runs alone, at once: for a study that runs."""
    kind, title = quick_device(device)
    return time_left(grid, measured_seconds(catalogue.entries(), kind, title), workers)


def queue_study(grid: StudyGrid, launcher: RunLauncher, entries: Sequence[Entry], *, device: str = "auto") -> list[Run]:
    """Queue the runs of a study that are missing, and resume those that are unfinished; return them in order.

    Args:
        grid: the study with the runs there are; what is finished, queued or running is left alone.
        launcher: trains the runs.
        entries: the runs there are.
        device: auto, cpu or cuda.
    """
    with launcher.queue_together():
        return [start_or_resume(launcher, planned.config, entries)[0] for planned in plan(grid, device)]


def train_study(study: Study, runs: Path | str = "runs", *, device: str = "auto") -> StudyGrid:
    """Train the runs of a study that are missing, and continue those that are unfinished.

    Ctrl-C stops with a checkpoint; the next call continues from there. A run that fails is left out.

    Args:
        study: the study.
        runs: the folder of runs.
        device: auto, cpu or cuda.

    Returns:
        The grid of the study with all runs there are.
    """
    root, catalogue = data_dir(), Catalogue(RunStore(runs, recorded=chosen_recorded_runs()))
    check_data(study, root)
    left = plan(make_grid(study, catalogue.entries()), device)
    with stop_on_interrupt() as stop:
        while left and not stop.is_set():
            same = [planned for planned in left if without_seed(planned.config) == without_seed(left[0].config)]
            left = [planned for planned in left if planned not in same]
            before = [unfinished(planned.config, catalogue.entries()) for planned in same]
            group = [one.run if one else create(catalogue.store, planned.config)
                     for one, planned in zip(before, same, strict=True)]
            for planned, outcome in zip(same, execute_together(group, root, stop=stop), strict=True):
                if outcome.error is not None:
                    print(f"{planned.title} failed: {outcome.error}")
    return make_grid(study, catalogue.entries())
