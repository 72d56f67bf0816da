"""Train a queue of runs for a command: progress in lines, Ctrl-C and a limit of minutes with checkpoints."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acenode.cli.cluster_option import announce, cluster_of
from acenode.cli.common import print_json
from acenode.errors import UserError

if TYPE_CHECKING:
    from acenode.execution.launcher import Launcher
    from acenode.execution.reproduce import Event, Outcomes, QueuedRun, Reproduction
    from acenode.runs.catalogue import Catalogue
    from acenode.runs.store import RunStore

PROGRESS_SECONDS = 60.0  # between lines of progress where there is no terminal


def check_limits(options: Namespace) -> None:
    """Raise a UserError if --workers or --minutes is not positive."""
    if options.workers is not None and options.workers < 1:
        raise UserError(f"--workers must be at least 1, not {options.workers}")
    if options.minutes is not None and not options.minutes > 0:
        raise UserError(f"--minutes must be above 0, not {options.minutes:g}")


def train_queue(runs: Sequence[QueuedRun], options: Namespace, catalogue: Catalogue, root: Path,
                lines: ProgressLines) -> int:
    """Train the runs and print how it went; return 1 if a run failed and 130 after Ctrl-C.

    Args:
        runs: what to train, in order.
        options: of the command: device, workers, minutes, json.
        catalogue: the runs of the folder that is trained in.
        root: the data folder.
        lines: prints what happens.
    """
    from acenode.execution.interrupt import stop_on_interrupt
    from acenode.execution.reproduce import Reproduction

    launcher, workers = open_launcher(options, options.device, catalogue.store, root)
    try:
        lines.write(f"{len(runs)} runs to train, {workers} at a time")
        with stop_on_interrupt() as stop:
            reproduction = Reproduction(runs, launcher, catalogue, workers=workers,
                                        seconds=None if options.minutes is None else 60 * options.minutes,
                                        on_event=lines.event, on_progress=lines.progress)
            outcomes = reproduction.run(stop)
            interrupted = stop.is_set()
    finally:
        launcher.close()
    lines.end(outcomes)
    if options.json:
        print_json({"finished": outcomes.finished, "stopped": outcomes.stopped, "failed": outcomes.failed,
                    "elsewhere": outcomes.elsewhere, "left": len(outcomes.left)})
    return 130 if interrupted else 1 if outcomes.failed else 0


def open_launcher(options: Namespace, device_name: str, store: RunStore, root: Path) -> tuple[Launcher, int]:
    """Return a launcher for several runs, on this machine or on the cluster of --on, and how many train at a time."""
    from acenode.execution.devices import device_names, matches
    from acenode.execution.environment import device_of
    from acenode.execution.launcher import MAX_CLUSTER_WORKERS, Launcher
    from acenode.execution.reproduce import default_workers

    cluster = cluster_of(options, workers=options.workers, several=True)
    if cluster is None:
        device = device_of(device_name)
        name, count = str(device), sum(matches(one, str(device)) for one in device_names())
        workers = options.workers or default_workers(device.type, count)
        if name == "cpu":
            _share_threads(workers)
    else:
        announce(cluster, options)
        fits = cluster.start().runs
        name, count, workers = cluster.name, 1, options.workers or min(MAX_CLUSTER_WORKERS, fits)
    launcher = Launcher(store, root, cluster=cluster)
    launcher.set_workers(name, -(-workers // count))
    return launcher, workers


def _share_threads(workers: int) -> None:
    """Divide torch's threads among runs side by side; each worker process takes over this number."""
    import torch

    torch.set_num_threads(max(1, torch.get_num_threads() // workers))


class ProgressLines:
    """Prints what happens to the runs: events as lines, progress as one line that is overwritten on a terminal.

    Args:
        result: writes what a finished run measured.
        hint: what to do when something is left, after "the same command continues".
        quiet: print to stderr, because stdout is for JSON.
        time_left: writes how much longer the runs take, if that is known.
    """

    def __init__(self, result: Callable[[Event], str], hint: str, *, quiet: bool = False,
                 time_left: Callable[[], str] = lambda: "") -> None:
        self.result, self.hint, self.time_left = result, hint, time_left
        self.file = sys.stderr if quiet else sys.stdout
        self.terminal = self.file.isatty()
        self.shown = float("-inf")

    def write(self, line: str) -> None:
        print(f"\r\x1b[K{line}" if self.terminal else line, file=self.file, flush=True)

    def event(self, event: Event) -> None:
        """Print that a run was started, resumed, finished, stopped or failed."""
        name = f"{event.planned.title} ({event.run.id})" if event.run else event.planned.title
        if event.kind == "elsewhere":
            self.write(f"skipped   {name}: trained by another process")
        elif event.kind == "failed":
            self.write(f"failed    {name}: {event.detail}")
        elif event.kind == "finished" and event.run is not None:
            self.write(f"finished  {name}: {self.result(event)}")
        elif event.kind == "stopped" and event.run is not None:
            done = float(event.run.status().get("progress") or 0)
            self.write(f"stopped   {name} at {100 * done:.0f}%; the same command continues it")
        else:
            self.write(f"{event.kind:<9} {name}, {event.planned.config.get('epochs')} epochs")

    def progress(self, now: Reproduction) -> None:
        """Show how far the plan and the running runs are."""
        interval = 1.0 if self.terminal else PROGRESS_SECONDS
        if time.monotonic() - self.shown < interval:
            return
        self.shown = time.monotonic()
        done = len(now.outcomes.finished)
        parts = [f"{done} of {len(now.plan)} finished"]
        parts += [f"{planned.title} {_percent(run)}" for run, planned in now.running.values()]
        if left := self.time_left():
            parts.append(left)
        if now.deadline is not None:
            parts.append(f"{max(0.0, now.seconds_left()) / 60:.0f} min until it stops")
        line = " · ".join(parts)
        print(f"\r\x1b[K{line[:150]}" if self.terminal else line, end="" if self.terminal else "\n", file=self.file,
              flush=True)

    def end(self, outcomes: Outcomes) -> None:
        """Print the totals."""
        counts = {"finished": len(outcomes.finished), "stopped": len(outcomes.stopped), "failed": len(outcomes.failed),
                  "not started": len(outcomes.left)}
        self.write(", ".join(f"{count} {what}" for what, count in counts.items() if count) or "nothing was trained")
        if outcomes.left or outcomes.stopped or outcomes.failed:
            self.write(f"the same command continues; {self.hint}")


def _percent(run: Any) -> str:
    try:
        return f"{100 * float(run.status().get('progress') or 0):.0f}%"
    except UserError:
        return "?"
