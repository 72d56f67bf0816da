"""The command `reproduce`: train what the cells of the paper's tables need, or list them."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from acenode.cli.common import check_limits, columns, output, run_store
from acenode.compare.cells import shown_mark, terminal_legend
from acenode.compare.metrics import duration
from acenode.compare.reproduction import (
    WORTH,
    CellPlan,
    PlannedRun,
    Wanted,
    cell_plans,
    measured_seconds,
    missing_data,
    partial_data,
    queue,
    recorded_gpu,
    select,
)
from acenode.config import Config
from acenode.data.folder import data_dir
from acenode.errors import UserError
from acenode.execution.devices import quick_device
from acenode.runs.catalogue import Catalogue
from acenode.runs.entry import Entry

HEADS = ("table", "data", "method", "metric", "paper", "measured", "runs", "epochs", "mark", "missing", "time")


def reproduce(options: Namespace) -> int:
    """Print the cells with --list; otherwise train their missing runs."""
    check_limits(options, "seeds", "epochs")
    catalogue, root = Catalogue(run_store(options, to_read=options.list)), data_dir()
    entries, chosen = catalogue.entries(), select(options.tables)
    wanted = Wanted(options.seeds, options.epochs, options.preset, options.device)
    partial = partial_data(entries, root)
    cells = cell_plans(chosen, entries, wanted, partial)
    device, title = quick_device(options.device)
    runs = queue(cells, entries, wanted, partial, measured_seconds(entries, device, title))
    no_data = missing_data(chosen, root)
    if not options.list:
        return _train(options, cells, runs, no_data, catalogue)
    gpu = recorded_gpu(entries)
    there = measured_seconds([entry for entry in entries if entry.device == gpu], "cuda", gpu)
    on_gpu = {run.config: run.seconds for run in queue(cells, entries, wanted, partial, there)}
    return output(options, as_json(cells, runs, no_data, device), as_lines(cells, runs, no_data, device, gpu, on_gpu))


def _train(options: Namespace, cells: Sequence[CellPlan], queue: Sequence[PlannedRun], no_data: Mapping[str, str],
           catalogue: Catalogue) -> int:
    """Train the queue and print how it went; return 1 if a run failed and 130 after Ctrl-C."""
    from acenode.cli.training import ProgressLines, train_queue

    def result(planned: Any, entry: Entry) -> list[str]:
        """Write the measured values of a finished run in the unit of its cells."""
        return [f"{cell.format.title} {cell.format.text(entry.test[cell.metric])}" for cell in planned.cells
                if entry.test.get(cell.metric) is not None]

    runs = [run for run in queue if run.config.experiment not in no_data]
    lines = ProgressLines(result, "`acenode reproduce --list` shows the cells", options.json)
    for experiment, command in no_data.items():
        lines.write(f"{experiment} is skipped, its data is missing: {command}")
    if {cell.cell.experiment for cell in cells} <= set(no_data) and not options.json:
        raise UserError("there is nothing to train without data: get it with the commands above")
    if not runs:
        lines.write("nothing to train: every cell with data is measured")
    return train_queue(runs, options, catalogue, data_dir(), lines)


# The cells and the queue of missing runs, as text or for JSON -------------------------------------------------------


def as_lines(cells: Sequence[CellPlan], queue: Sequence[PlannedRun], no_data: Mapping[str, str], device: str,
             gpu: str, on_gpu: Mapping[Config, float | None]) -> Iterator[str]:
    """Write one line a cell, the totals, the runs that are worth most, and what the marks mean.

    Where no time is known on this device, `cpu` or `cuda`, it is that `on_gpu`, another device, which is named.
    """
    here, there = {run.config: run.seconds for run in queue}, on_gpu
    place = "a GPU" if device == "cuda" else "this processor"

    def times(configs: Sequence[Config], ending: str = "", own_ending: str = "") -> str:
        """Write the time on this device; without one, that on the other device; empty if no time is known."""
        own, other = _times([here[c] for c in configs]), _times([there.get(c) for c in configs])
        return f"{own}{ending}{own_ending}" if own else f"{other}{ending} on {gpu}" if other else ""

    def runs(configs: Sequence[Config], what: str = "", *endings: str) -> str:
        count, time = f"{len(configs)} run{'s' * (len(configs) != 1)}{what}", times(configs, *endings)
        return f"{count}, {time}" if time else count

    yield from columns([HEADS, *(_row(plan, times(plan.missing)) for plan in cells)])
    measured = sum(plan.measured.n > 0 for plan in cells)
    missing = runs([run.config for run in queue], " missing", " one after another", f" on {place}")
    yield f"\n{measured} of {len(cells)} cells measured; {missing}"
    if None in here.values():
        yield f"a time that names no device is for {place}, and is known once a similar run has finished there"
    yield from (f"the data of {experiment} is missing: {command}" for experiment, command in no_data.items())
    other_length = {config for plan in cells if _other_length(plan) for config in plan.missing}
    for worth in sorted({run.worth for run in queue}):
        own = [run.config for run in queue if run.worth == worth]
        names = list(dict.fromkeys(f"{config.experiment} {config.method}" + (
            f" of {config.get('epochs')} epochs" if config in other_length else "") for config in own))
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        yield f"{WORTH[worth]}: {runs(own)} ({shown})"
    yield terminal_legend()


def _other_length(plan: CellPlan) -> str:
    epochs = plan.missing[0].get("epochs") if plan.missing else None
    return "" if None in (epochs, plan.measured.epochs) or epochs == plan.measured.epochs else str(epochs)


def _row(plan: CellPlan, time: str) -> tuple[str, ...]:
    cell, found = plan.cell, plan.measured
    value = "-" if found.mean is None else cell.format.text(
        found.mean / cell.format.scale, None if found.std is None else found.std / cell.format.scale)
    task = f" {cell.settings['task']}" if "task" in cell.settings else ""
    return (cell.table, cell.experiment, cell.title, f"{cell.format.title}{task}", str(cell.printed), value,
            str(found.n), str(found.epochs or "-"), shown_mark(found),
            str(len(plan.missing)) + (f" × {length} epochs" if (length := _other_length(plan)) else ""),
            time if plan.missing else "-")


def _times(seconds: Sequence[float | None]) -> str:
    known = [s for s in seconds if s is not None]
    unknown = len(seconds) - len(known)
    if not known and seconds:
        return ""
    return duration(sum(known)) + (f" + {unknown} unknown" if unknown else "")


def as_json(cells: Sequence[CellPlan], queue: Sequence[PlannedRun], no_data: Mapping[str, str],
            device: str) -> dict[str, Any]:
    """Return cells, the queue with complete configurations, and totals."""
    seconds = {run.config: run.seconds for run in queue}
    known = [run.seconds for run in queue if run.seconds is not None]
    return {
        "cells": [_cell(plan, [seconds[config] for config in plan.missing]) for plan in cells],
        "queue": [{"rank": rank, "title": run.title, "worth": WORTH[run.worth], "cells": [c.key for c in run.cells],
                   "resumes": run.resumes, "seconds": run.seconds, "data": run.config.experiment not in no_data,
                   "config": run.config.to_dict()} for rank, run in enumerate(queue)],
        "missing_data": dict(no_data),
        "totals": {"cells": len(cells), "measured": sum(plan.measured.n > 0 for plan in cells), "missing": len(queue),
                   "seconds": sum(known), "unknown": len(queue) - len(known), "device": device},
    }


def _cell(plan: CellPlan, seconds: Sequence[float | None]) -> dict[str, Any]:
    cell, found = plan.cell, plan.measured
    return {
        "key": cell.key, "table": cell.table, "experiment": cell.experiment, "method": cell.method,
        "metric": cell.metric, "settings": dict(cell.settings), "unit": cell.format.unit.strip(),
        "paper": {"mean": cell.printed.mean, "std": cell.printed.std, "text": str(cell.printed)},
        "mean": found.mean, "std": found.std, "n": found.n, "seeds": list(found.seeds), "folds": list(found.folds),
        "epochs": found.epochs, "difference": found.difference, "mark": shown_mark(found), "note": found.note,
        "runs": [entry.id for entry in found.entries], "missing": len(plan.missing),
        "seconds": None if None in seconds else sum(filter(None, seconds)),
    }
