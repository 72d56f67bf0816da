"""Train several runs of one configuration, which differ in their seeds, at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from acenode.config import Config
from acenode.errors import UserError
from acenode.execution.devices import default_workers, device_names, matches
from acenode.execution.environment import device_of
from acenode.execution.execute import Outcome, execute
from acenode.execution.processes import ProcessPool, execute_elsewhere
from acenode.execution.seed_group import MAX_SEEDS, SeedGroup, fallback_line, separate_reason
from acenode.runs.store import Run

SeedProgress = Callable[[Run, dict[str, Any]], None]


def seeds_at_a_time(config: Config, device: str) -> int:
    """Return how many seeds of a configuration `execute_together` trains at a time on cpu, cuda or cuda:N."""
    if device == "cpu":
        return 1 if separate_reason(config, device) is not None else MAX_SEEDS
    return default_workers("cuda", sum(matches(name, device) for name in device_names()))


def execute_together(runs: Sequence[Run], data_root: Path, *, stop: threading.Event | None = None,
                     progress: SeedProgress | None = None) -> list[Outcome]:
    """Train and test runs: as one computation on a processor, if the model supports it, otherwise one after another.

    On a GPU some of them train at a time, in processes of their own. Each run is executed as by `execute`, and has its
    own folder, checkpoints and result; its log says why it is not part of one computation.

    Args:
        runs: of one configuration, but for the seed.
        data_root: the folder with the data sets.
        stop: all runs stop after the current iteration once this is set.
        progress: called with a run and its progress, from several threads.

    Returns:
        The outcome of every run; an error of one does not end the others. Runs that `stop` left out are stopped.
    """
    stop, pool = stop or threading.Event(), ProcessPool()
    config = runs[0].config()
    device = str(device_of(config.device))
    reason, at_a_time = separate_reason(config, device), seeds_at_a_time(config, device)
    outcomes: dict[str, Outcome] = {}

    def train(run: Run, group: SeedGroup | None) -> Outcome:
        show = (lambda status: None) if progress is None else partial(progress, run)
        if stop.is_set():
            run.set_state("stopped")
            return Outcome(run, "stopped", {}, 0.0, 0)
        if device != "cpu" and len(runs) > 1:
            return execute_elsewhere(partial(pool.train, device), run, data_root, stop=stop, progress=show)
        return execute(run, data_root, stop=stop, progress=show, group=group)

    def work(run: Run, group: SeedGroup | None) -> None:
        try:
            outcomes[run.id] = train(run, group)
        except Exception as error:  # UserError, or a bug, which must not leave the others waiting
            text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            outcomes[run.id] = Outcome(run, "failed", {}, 0.0, 0, text)

    if reason is not None and len(runs) > 1:
        for run in runs:
            run.log(fallback_line(reason))
    for start in range(0, len(runs), at_a_time):
        part = runs[start:start + at_a_time]
        group = SeedGroup(len(part)) if reason is None and len(part) > 1 else None
        threads = [threading.Thread(target=work, args=(run, group), name=f"acenode-{run.id}", daemon=True)
                   for run in part]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    pool.close()
    return [outcomes[run.id] for run in runs]
