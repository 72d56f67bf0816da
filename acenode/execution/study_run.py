"""Train a study: through a launcher that queues its runs, or from Python, one group of seeds after another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from acenode.compare.cells import unfinished
from acenode.compare.study_grid import StudyGrid, make_grid
from acenode.data.folder import data_dir
from acenode.execution.execute import create
from acenode.execution.interrupt import stop_on_interrupt
from acenode.execution.reproduce import RunLauncher
from acenode.execution.seed_group import without_seed
from acenode.execution.study_plan import check_data, plan
from acenode.execution.together import execute_together
from acenode.runs.catalogue import Catalogue, Entry
from acenode.runs.recorded import chosen_recorded_runs
from acenode.runs.store import Run, RunStore
from acenode.runs.studies import Study


def queue_study(grid: StudyGrid, launcher: RunLauncher, entries: Sequence[Entry], *, device: str = "auto") -> list[Run]:
    """Queue the runs of a study that are missing, and resume those that are unfinished; return them in order.

    Args:
        grid: the study with the runs there are; what is finished, queued or running is left alone.
        launcher: trains the runs.
        entries: the runs there are.
        device: auto, cpu or cuda.
    """
    queued = []
    with launcher.queue_together():
        for planned in plan(grid, device):
            before = unfinished(planned.config, entries)
            if before is None:
                queued.append(launcher.start(planned.config))
            else:
                launcher.resume(before.run)
                queued.append(before.run)
    return queued


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
