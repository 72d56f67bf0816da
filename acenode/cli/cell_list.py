"""Write the cells of the paper's tables and the queue of missing runs, as text or for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from acenode.results.cell_text import shown_mark
from acenode.results.reproduction import WORTH, CellPlan, PlannedRun
from acenode.results.run_times import duration

HEADS = ("table", "data", "method", "metric", "paper", "measured", "runs", "epochs", "mark", "missing", "time")


def as_text(cells: Sequence[CellPlan], queue: Sequence[PlannedRun], no_data: Mapping[str, str], device: str) -> str:
    """Write one line a cell, the totals, and the runs that are worth most."""
    seconds = {run.config: run.seconds for run in queue}
    rows = [HEADS, *(_row(plan, [seconds[config] for config in plan.missing]) for plan in cells)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADS))]
    lines = ["  ".join(part.ljust(width) for part, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    measured = sum(plan.measured.n > 0 for plan in cells)
    times = [run.seconds for run in queue]
    lines += ["", f"{measured} of {len(cells)} cells measured; {len(queue)} runs missing, {_times(times)} one after "
                  f"another on {'a GPU' if device == 'cuda' else 'this processor'}"]
    lines += [f"the data of {experiment} is missing: {command}" for experiment, command in no_data.items()]
    for worth in sorted({run.worth for run in queue}):
        own = [run for run in queue if run.worth == worth]
        names = list(dict.fromkeys(f"{run.config.experiment} {run.config.method}" for run in own))
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        lines.append(f"{WORTH[worth]}: {len(own)} runs, {_times([run.seconds for run in own])} ({shown})")
    return "\n".join(lines)


def _row(plan: CellPlan, seconds: Sequence[float | None]) -> tuple[str, ...]:
    cell, found = plan.cell, plan.measured
    value = "-" if found.mean is None else cell.format.text(
        found.mean / cell.format.scale, None if found.std is None else found.std / cell.format.scale)
    task = f" {cell.settings['task']}" if "task" in cell.settings else ""
    return (cell.table, cell.experiment, cell.title, f"{cell.format.title}{task}", str(cell.printed), value,
            str(found.n), str(found.epochs or "-"), shown_mark(found), str(len(plan.missing)),
            _times(seconds) if seconds else "-")


def _times(seconds: Sequence[float | None]) -> str:
    """Write the sum of the known times, and how many are unknown."""
    known = [s for s in seconds if s is not None]
    unknown = len(seconds) - len(known)
    if not known:
        return "time unknown" if seconds else "0 s"
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
