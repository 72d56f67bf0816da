"""Write the cells of the paper's tables and the queue of missing runs, as text or for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from acenode.compare.cells import shown_mark, terminal_legend
from acenode.compare.metrics import duration
from acenode.compare.reproduction import WORTH, CellPlan, PlannedRun
from acenode.config import Config

HEADS = ("table", "data", "method", "metric", "paper", "measured", "runs", "epochs", "mark", "missing", "time")


def as_text(cells: Sequence[CellPlan], queue: Sequence[PlannedRun], no_data: Mapping[str, str], device: str,
            gpu: str = "", on_gpu: Mapping[Config, float | None] | None = None) -> str:
    """Write one line a cell, the totals, the runs that are worth most, and what the marks mean.

    Args:
        cells: the cells.
        queue: their missing runs.
        no_data: the commands that get missing data, by experiment.
        device: `cpu` or `cuda`.
        gpu: the name of another device.
        on_gpu: how many seconds runs take there. It is named where no time is known here.
    """
    here, there = {run.config: run.seconds for run in queue}, on_gpu or {}
    place = "a GPU" if device == "cuda" else "this processor"

    def times(configs: Sequence[Config], ending: str = "", own_ending: str = "") -> str:
        """Write the time on this device; without one, that on the other device; empty if no time is known."""
        own, other = _times([here[c] for c in configs]), _times([there.get(c) for c in configs])
        return f"{own}{ending}{own_ending}" if own else f"{other}{ending} on {gpu}" if other else ""

    rows = [HEADS, *(_row(plan, times(plan.missing)) for plan in cells)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADS))]
    lines = ["  ".join(part.ljust(width) for part, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    measured = sum(plan.measured.n > 0 for plan in cells)
    whole = times([run.config for run in queue], " one after another", f" on {place}")
    lines += ["", f"{measured} of {len(cells)} cells measured; {_with_time(f'{_runs(len(queue))} missing', whole)}"]
    if None in here.values():
        lines.append(f"a time that names no device is for {place}, and is known once a similar run has finished there")
    lines += [f"the data of {experiment} is missing: {command}" for experiment, command in no_data.items()]
    other_length = {config for plan in cells if _other_length(plan) for config in plan.missing}
    for worth in sorted({run.worth for run in queue}):
        own = [run for run in queue if run.worth == worth]
        names = list(dict.fromkeys(f"{run.config.experiment} {run.config.method}" + (
            f" of {run.config.get('epochs')} epochs" if run.config in other_length else "") for run in own))
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        time = times([run.config for run in own])
        lines.append(f"{WORTH[worth]}: {_with_time(_runs(len(own)), time)} ({shown})")
    return "\n".join([*lines, terminal_legend()])


def _runs(count: int) -> str:
    return f"{count} run{'s' * (count != 1)}"


def _with_time(runs: str, time: str) -> str:
    return f"{runs}, {time}" if time else runs


def _other_length(plan: CellPlan) -> str:
    """Return the epochs of the missing runs if they are not those of the measured ones, else an empty text."""
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
    """Write the sum of the known times, and how many are unknown; empty if all are."""
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
    known = [s for s in seconds if s is not None]
    return {
        "key": cell.key, "table": cell.table, "experiment": cell.experiment, "method": cell.method,
        "metric": cell.metric, "settings": dict(cell.settings), "unit": cell.format.unit.strip(),
        "paper": {"mean": cell.printed.mean, "std": cell.printed.std, "text": str(cell.printed)},
        "mean": found.mean, "std": found.std, "n": found.n, "seeds": list(found.seeds), "folds": list(found.folds),
        "epochs": found.epochs, "difference": found.difference, "mark": shown_mark(found), "note": found.note,
        "runs": [entry.id for entry in found.entries], "missing": len(plan.missing),
        "seconds": sum(known) if len(known) == len(seconds) else None,
    }
