"""Start, continue, stop and delete a study."""

from __future__ import annotations

import contextlib

from acenode.compare.study_grid import StudyGrid, make_grid
from acenode.errors import UserError
from acenode.execution.study_run import check_data, queue_study
from acenode.runs.questions import Study, StudyStore

from ..services import services


def start(study: Study, device: str = "auto") -> int:
    """Queue the runs that are missing, continue those that are unfinished, and return how many these are."""
    check_data(study, services().data_root)
    entries = services().catalogue.entries()
    return len(queue_study(make_grid(study, entries), services().launcher, entries, device=device))


def stop(grid: StudyGrid) -> None:
    """Stop the study's runs: queued ones leave the queue, running ones write a checkpoint. The last ones first, so
    that no queued run starts meanwhile."""
    for cell in reversed(grid.running):
        if cell.entry is not None:
            with contextlib.suppress(UserError):  # it has ended meanwhile
                services().launcher.stop(cell.entry.run)


def delete(name: str) -> None:
    """Delete a study; its runs stay."""
    StudyStore(services().store).delete(name)
