"""Train several runs of one configuration, which differ in their seeds, as one computation where that is possible."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from acenode.errors import UserError
from acenode.execution.environment import device_of
from acenode.execution.execute import Outcome, execute
from acenode.execution.seed_group import Seat, SeedGroup, fallback_line
from acenode.execution.seed_groups import seeds_at_a_time, separate_reason
from acenode.runs.store import Run

SeedProgress = Callable[[Run, dict[str, Any]], None]


def execute_together(runs: Sequence[Run], data_root: Path, *, stop: threading.Event | None = None,
                     progress: SeedProgress | None = None) -> list[Outcome]:
    """Train and test runs as one computation where the model supports it.

    Otherwise they train one after another on a processor, and side by side in threads on a GPU; their logs say why.
    Each run is executed as by `execute`, and has its own folder, checkpoints and result.

    Args:
        runs: of one configuration, but for the seed.
        data_root: the folder with the data sets.
        stop: all runs stop after the current iteration once this is set.
        progress: called with a run and its progress, from several threads.

    Returns:
        The outcome of every run; an error of one does not end the others. Runs that `stop` left out are stopped.
    """
    stop = stop or threading.Event()
    config = runs[0].config()
    device = str(device_of(config.device))
    reason = separate_reason(config, device) if len(runs) > 1 and device == "cpu" else None
    if reason is not None:
        for run in runs:
            run.log(fallback_line(reason))
    at_a_time = seeds_at_a_time(config, device)
    outcomes: list[Outcome] = []
    for start in range(0, len(runs), at_a_time):
        part = runs[start:start + at_a_time]
        if stop.is_set():
            for run in part:
                run.set_state("stopped")
            outcomes += [Outcome(run, "stopped", {}, 0.0, 0) for run in part]
        else:
            outcomes += _execute_group(part, data_root, stop, progress)
    return outcomes


def _execute_group(runs: Sequence[Run], data_root: Path, stop: threading.Event,
                   progress: SeedProgress | None) -> list[Outcome]:
    """Execute runs side by side, each in a thread of its own with a seat in one group."""
    outcomes: dict[str, Outcome] = {}

    def work(run: Run, seat: Seat | None) -> None:
        try:
            show = None if progress is None else lambda status: progress(run, status)
            outcomes[run.id] = execute(run, data_root, stop=stop, progress=show, seat=seat)
        except Exception as error:  # UserError, or a bug, which must not leave the others waiting
            text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            outcomes[run.id] = Outcome(run, "failed", {}, 0.0, 0, text)
        finally:
            if seat is not None:
                seat.close()

    if len(runs) == 1:
        work(runs[0], None)
    else:
        seats = SeedGroup(len(runs)).seats
        threads = [threading.Thread(target=work, args=(run, seat), name=f"acenode-{run.id}", daemon=True)
                   for run, seat in zip(runs, seats, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return [outcomes[run.id] for run in runs]
