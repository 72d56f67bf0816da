"""The command `reproduce`: train what the cells of the paper's tables need, or list them."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from acenode.cli.common import print_json, run_store
from acenode.cli.training_queue import ProgressLines, check_limits, train_queue
from acenode.errors import UserError

if TYPE_CHECKING:
    from acenode.compare.reproduction import CellPlan, PlannedRun
    from acenode.config import Config
    from acenode.execution.reproduce import Event
    from acenode.runs.catalogue import Catalogue


@dataclass(frozen=True)
class Plan:
    """The chosen cells, the queue of their missing runs, and what cannot be trained for lack of data."""

    cells: list[CellPlan]
    queue: list[PlannedRun]
    no_data: dict[str, str]  # experiment -> the command that gets its data
    device: str
    gpu: str  # of the recorded runs
    on_gpu: dict[Config, float | None]  # seconds that the missing runs would take there


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
            print(as_text(plan.cells, plan.queue, plan.no_data, plan.device, plan.gpu, plan.on_gpu))
        return 0
    return _train(options, plan, catalogue, root)


def _check(options: Namespace) -> None:
    for name, value in (("--seeds", options.seeds), ("--epochs", options.epochs)):
        if value is not None and value < 1:
            raise UserError(f"{name} must be at least 1, not {value}")
    check_limits(options)


def _plan(options: Namespace, catalogue: Catalogue, root: Path) -> Plan:
    from acenode.compare.reproduction import (
        Wanted,
        cell_plans,
        measured_seconds,
        missing_data,
        partial_data,
        queue,
        recorded_gpu,
        select,
    )
    from acenode.execution.quick_device import quick_device

    entries, cells = catalogue.entries(), select(options.tables)
    wanted = Wanted(options.seeds, options.epochs, options.preset, options.device)
    partial = partial_data(entries, root)
    plans = cell_plans(cells, entries, wanted, partial)
    device, title = quick_device(options.device)
    runs = queue(plans, entries, wanted, partial, measured_seconds(entries, device, title))
    gpu = recorded_gpu(entries)
    there = measured_seconds([entry for entry in entries if entry.device == gpu], "cuda", gpu)
    on_gpu = {run.config: run.seconds for run in queue(plans, entries, wanted, partial, there)}
    return Plan(plans, runs, missing_data(cells, root), device, gpu, on_gpu)


def _train(options: Namespace, plan: Plan, catalogue: Catalogue, root: Path) -> int:
    """Train the queue and print how it went; return 1 if a run failed and 130 after Ctrl-C."""
    runs = [run for run in plan.queue if run.config.experiment not in plan.no_data]
    lines = ProgressLines(_result, "`acenode reproduce --list` shows the cells", quiet=options.json)
    for experiment, command in plan.no_data.items():
        lines.write(f"{experiment} is skipped, its data is missing: {command}")
    if {cell.cell.experiment for cell in plan.cells} <= set(plan.no_data) and not options.json:
        raise UserError("there is nothing to train without data: get it with the commands above")
    if not runs:
        lines.write("nothing to train: every cell with data is measured")
        if options.json:
            print_json({"finished": [], "stopped": [], "failed": {}, "elsewhere": [], "left": 0})
        return 0

    return train_queue(runs, options, catalogue, root, lines)


def _result(event: Event) -> str:
    """Write the measured values of a finished run in the unit of its cells."""
    from acenode.compare.reproduction import PlannedRun
    from acenode.runs.entry import read_entry, stamps_of

    assert event.run is not None
    assert isinstance(event.planned, PlannedRun)
    entry = read_entry(event.run, stamps_of(event.run.path)).entry
    values = [cell.format.title + " " + cell.format.text(entry.test.get(cell.metric)) for cell in event.planned.cells
              if entry.test.get(cell.metric) is not None]
    return ", ".join([*dict.fromkeys(values), f"{entry.seconds or 0:.0f} s of training"])
