"""The command `reproduce`: train what the cells of the paper's tables need, or list them."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acenode.cli.common import print_json, run_store
from acenode.errors import UserError

if TYPE_CHECKING:
    from acenode.execution.reproduce import Event, Outcomes, Reproduction
    from acenode.results.reproduction import CellPlan, PlannedRun
    from acenode.runs.catalogue import Catalogue

PROGRESS_SECONDS = 60.0  # between lines of progress where there is no terminal


@dataclass(frozen=True)
class Plan:
    """The chosen cells, the queue of their missing runs, and what cannot be trained for lack of data."""

    cells: list[CellPlan]
    queue: list[PlannedRun]
    no_data: dict[str, str]  # experiment -> the command that gets its data
    device: str


def reproduce(options: Namespace) -> int:
    """Print the cells with --list; otherwise train their missing runs."""
    from acenode.data.folder import data_dir
    from acenode.runs.catalogue import Catalogue

    _check(options)
    catalogue, root = Catalogue(run_store(options, to_read=options.list)), data_dir()
    plan = _plan(options, catalogue, root)
    if options.list:
        from acenode.cli.cell_list import as_json, as_text

        if options.json:
            print_json(as_json(plan.cells, plan.queue, plan.no_data, plan.device))
        else:
            print(as_text(plan.cells, plan.queue, plan.no_data, plan.device))
        return 0
    return _train(options, plan, catalogue, root)


def _check(options: Namespace) -> None:
    for name, value in (("--seeds", options.seeds), ("--epochs", options.epochs), ("--workers", options.workers)):
        if value is not None and value < 1:
            raise UserError(f"{name} must be at least 1, not {value}")
    if options.minutes is not None and not options.minutes > 0:
        raise UserError(f"--minutes must be above 0, not {options.minutes:g}")


def _plan(options: Namespace, catalogue: Catalogue, root: Path) -> Plan:
    from acenode.execution.quick_device import quick_device
    from acenode.results.reproduction import (
        Wanted,
        cell_plans,
        measured_seconds,
        missing_data,
        partial_data,
        queue,
        select,
    )

    entries, cells = catalogue.entries(), select(options.tables)
    wanted = Wanted(options.seeds, options.epochs, options.preset, options.device)
    partial = partial_data(entries, root)
    plans = cell_plans(cells, entries, wanted, partial)
    device, title = quick_device(options.device)
    runs = queue(plans, entries, wanted, partial, measured_seconds(entries, device, title))
    return Plan(plans, runs, missing_data(cells, root), device)


def _train(options: Namespace, plan: Plan, catalogue: Catalogue, root: Path) -> int:
    """Train the queue and print how it went; return 1 if a run failed and 130 after Ctrl-C."""
    runs = [run for run in plan.queue if run.config.experiment not in plan.no_data]
    lines = ProgressLines(quiet=options.json)
    for experiment, command in plan.no_data.items():
        lines.write(f"{experiment} is skipped, its data is missing: {command}")
    if not runs:
        lines.write("nothing to train: every cell with data is measured")
        if options.json:
            print_json({"finished": [], "stopped": [], "failed": {}, "elsewhere": [], "left": 0})
        return 0

    from acenode.execution.environment import device_of
    from acenode.execution.interrupt import stop_on_interrupt
    from acenode.execution.launcher import Launcher
    from acenode.execution.reproduce import Reproduction, default_workers

    device = device_of(options.device).type
    workers = options.workers or default_workers(device)
    if device == "cpu":
        _share_threads(workers)
    launcher = Launcher(catalogue.store, root)
    try:
        launcher.set_workers(device, workers)
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


def _share_threads(workers: int) -> None:
    """Divide torch's threads among runs side by side; each worker process takes over this number."""
    import torch

    torch.set_num_threads(max(1, torch.get_num_threads() // workers))


class ProgressLines:
    """Prints what happens to the runs: events as lines, progress as one line that is overwritten on a terminal."""

    def __init__(self, quiet: bool = False) -> None:
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
            self.write(f"finished  {name}: {_result(event)}")
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
        if now.deadline is not None:
            parts.append(f"{max(0.0, now.seconds_left()) / 60:.0f} min left")
        line = " · ".join(parts)
        print(f"\r\x1b[K{line[:150]}" if self.terminal else line, end="" if self.terminal else "\n", file=self.file,
              flush=True)

    def end(self, outcomes: Outcomes) -> None:
        """Print the totals."""
        counts = {"finished": len(outcomes.finished), "stopped": len(outcomes.stopped), "failed": len(outcomes.failed),
                  "not started": len(outcomes.left)}
        self.write(", ".join(f"{count} {what}" for what, count in counts.items() if count) or "nothing was trained")
        if outcomes.left or outcomes.stopped or outcomes.failed:
            self.write("the same command continues; `acenode reproduce --list` shows the cells")


def _percent(run: Any) -> str:
    try:
        return f"{100 * float(run.status().get('progress') or 0):.0f}%"
    except UserError:
        return "?"


def _result(event: Event) -> str:
    """Write the measured values of a finished run in the unit of its cells."""
    from acenode.runs.entry import read_entry, stamps_of

    assert event.run is not None
    entry = read_entry(event.run, stamps_of(event.run)).entry
    values = [cell.format.title + " " + cell.format.text(entry.test.get(cell.metric)) for cell in event.planned.cells
              if entry.test.get(cell.metric) is not None]
    return ", ".join([*dict.fromkeys(values), f"{entry.seconds or 0:.0f} s of training"])
