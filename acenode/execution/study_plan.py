"""What a study still has to train, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from acenode import experiments
from acenode.compare.reproduction import measured_seconds
from acenode.compare.study_configs import with_device
from acenode.compare.study_grid import GridCell, StudyGrid, repeat_title
from acenode.compare.study_time import StudyTime, cell_seconds, time_left
from acenode.config import Config
from acenode.data.folder import is_file
from acenode.data.registry import source_of
from acenode.errors import UserError
from acenode.execution.estimate import estimate
from acenode.execution.quick_device import quick_device
from acenode.runs.catalogue import Catalogue


class DataUse(Protocol):
    """What trains on data: a study, or a search."""

    @property
    def experiment(self) -> str: ...
    @property
    def data(self) -> str: ...


@dataclass(frozen=True)
class StudyRun:
    """A run to train for a study."""

    title: str
    config: Config
    seconds: float | None


def plan(grid: StudyGrid, device: str = "auto",
         seconds: Callable[[Config], float | None] = lambda config: None) -> list[StudyRun]:
    """Return the runs that are missing or unfinished, the first seed of every group first."""
    names = {id(cell): row.name for row in grid.rows for cell in row.cells}
    return [StudyRun(_title(grid, names[id(cell)], cell), with_device(cell.config, device), cell_seconds(cell, seconds))
            for cell in grid.wanted]


def _title(grid: StudyGrid, name: str, cell: GridCell) -> str:
    return f"{name}, {repeat_title(grid.study, cell.repeat)}"


def check_data(use: DataUse, root: Path) -> None:
    """Raise a UserError if a study or search needs data that is not in the data folder."""
    source = experiments.get(use.experiment).source
    if use.data == "full" and source is not None and not is_file(source_of(source).path(root)):
        raise UserError(f"the data of {use.experiment} is missing: get it with `acenode data get {source}`")


def estimated_time(grid: StudyGrid, catalogue: Catalogue, root: Path, *, device: str = "auto",
                   workers: int = 1) -> StudyTime:
    """Return the time of the runs that are left, from similar finished runs; where there are none, iterations are
    timed, which takes seconds."""
    configs = [with_device(cell.config, device) for cell in grid.cells if cell.value is None]
    found = estimate(configs, catalogue, root)
    each = {with_device(config, "auto"): seconds for config, seconds in found.seconds_each.items()}
    return time_left(grid, lambda config: each.get(with_device(config, "auto")), workers, found.basis)


def measured_time(grid: StudyGrid, catalogue: Catalogue, *, device: str = "auto", workers: int = 1) -> StudyTime:
    """Return the time of the runs that are left from similar finished runs alone, at once: for a study that runs."""
    kind, title = quick_device(device)
    return time_left(grid, measured_seconds(catalogue.entries(), kind, title), workers)
