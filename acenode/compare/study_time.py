"""How much longer a study trains, from the times of similar runs; asked again while it runs, it corrects itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from acenode.compare.run_times import duration
from acenode.compare.study_grid import GridCell, StudyGrid
from acenode.config import Config


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
        runs = f"{self.runs} run{'s' * (self.runs > 1)}"
        if self.seconds is None:
            return f"{runs}, time unknown" + (f" ({self.basis})" if self.basis else "")
        parts = [f"{runs}, about {duration(self.seconds)}"]
        parts += [f" {self.workers} at a time"] if self.workers > 1 else []
        parts += [f" and {self.unknown} of unknown time"] if self.unknown else []
        return "".join(parts) + (f" ({self.basis})" if self.basis else "")


def time_left(grid: StudyGrid, seconds: Callable[[Config], float | None], workers: int = 1,
              basis: str = "") -> StudyTime:
    """Return the time of the runs that are left.

    Args:
        grid: the study with the runs there are.
        seconds: gives the seconds of a whole run, None if unknown.
        workers: runs at a time. Side by side, runs are taken to be as fast as alone.
        basis: what the times are based on.
    """
    cells = [cell for cell in grid.cells if cell.value is None]
    times = [cell_seconds(cell, seconds) for cell in cells]
    known = [time for time in times if time is not None]
    total = max(sum(known) / workers, max(known)) if known else None
    return StudyTime(len(cells), total, len(times) - len(known), workers, basis)


def cell_seconds(cell: GridCell, seconds: Callable[[Config], float | None]) -> float | None:
    """Return the seconds that are left of one cell: what a running run says itself, else a share of the whole."""
    if cell.value is not None:
        return 0.0
    if cell.entry is not None and cell.entry.state == "running" and cell.entry.seconds_left is not None:
        return cell.entry.seconds_left
    whole = seconds(cell.config)
    return None if whole is None else whole * (1 - cell.progress)
