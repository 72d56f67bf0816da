"""Train a study: through a launcher that queues its runs, or from Python, one run after another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from acenode.data.folder import data_dir
from acenode.errors import UserError
from acenode.execution.execute import create, execute
from acenode.execution.interrupt import stop_on_interrupt
from acenode.execution.reproduce import RunLauncher
from acenode.execution.study_plan import check_data, plan
from acenode.results.cells import unfinished
from acenode.results.study_grid import StudyGrid, make_grid
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
    with stop_on_interrupt() as stop:
        for planned in plan(make_grid(study, catalogue.entries()), device):
            before = unfinished(planned.config, catalogue.entries())
            run = before.run if before else create(catalogue.store, planned.config)
            try:
                execute(run, root, stop=stop)
            except UserError as error:
                print(f"{planned.title} failed: {error}")
            if stop.is_set():
                break
    return make_grid(study, catalogue.entries())
