"""What the browser draws of a study or of a search while it trains."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from acenode.compare.metrics import MetricFormat
from acenode.compare.study_grid import MISSING, GridCell, StudyGrid, make_grid, repeat_title
from acenode.runs.entry import Entry
from acenode.runs.questions import SearchStore, StudyStore
from acenode.search.journal import SearchJournal, TrialRecord
from acenode.search.results import FEW, SearchReport, importance, params_text, read_report, value_text

from .. import labels, messages
from ..results.search_figures import MOST, SearchFigures, title_of
from ..services import services

BEST, NOW = 10, 4  # trials in the table, and running ones that are named
AGAIN = 1.1  # importance is computed again when there are so many times the finished trials

_journal_of = cache(SearchJournal)  # which reads only what is new
_importance: dict[Path, tuple[int, dict[str, float]]] = {}  # of how many finished trials, and the shares


def grid_of(name: str) -> StudyGrid:
    return make_grid(StudyStore(services().store).read(name), services().catalogue.entries())


def study(name: str) -> dict[str, Any]:
    return describe(grid_of(name))


def describe(grid: StudyGrid) -> dict[str, Any]:
    """Return texts of all cells of a study, the runs that train now, and the time that is left."""
    launcher = services().launcher if services().launcher_ready else None  # do not wait for torch
    queue = {run_id: place for place, run_id in enumerate(launcher.queue() if launcher else [], 1)}
    rows, now = [], []
    for row in grid.rows:
        spread = f" ± {grid.measure.number(row.std)}" if row.std is not None else ""
        rows.append({"name": row.name, "baseline": row is grid.baseline,
                     "mean": "" if row.mean is None else grid.measure.number(row.mean) + spread,
                     "cells": [_cell(grid, cell, queue) for cell in row.cells]})
        for cell in row.cells:
            if cell.state == "running" and (entry := cell.entry) is not None:
                left = f", {labels.duration(entry.seconds_left)} left" if entry.seconds_left else ""
                stage = _stage(entry, None if grid.study.metric else grid.measure, tested=True)
                now.append(f"{row.name}, {repeat_title(grid.study, cell.repeat)}: {stage}{left}")
    return {
        "columns": [repeat_title(grid.study, repeat) for repeat in grid.study.repeats],
        "rows": rows, "metric": grid.measure.heading,
        "finished": grid.finished, "runs": len(grid.cells), "progress": grid.progress,
        "now": now,
        "left": time_text(grid) if grid.running else "", "busy": bool(grid.running),
        "states": " ".join(f"{cell.entry.id if cell.entry else ''}:{cell.state}" for cell in grid.cells),
    }


def time_text(grid: StudyGrid) -> str:
    """Say how long the queued and running runs still take, from their own speed and that of similar runs."""
    from acenode.execution.study_run import cell_seconds  # needs torch, which the page of a search does not wait for

    from .. import estimates

    seconds = estimates.known_seconds()
    devices = [str(cell.entry.config.get("device", "auto")) if cell.entry else "auto" for cell in grid.running]
    times = [cell_seconds(replace(cell, config=replace(cell.config, device=device)), seconds)
             for cell, device in zip(grid.running, devices, strict=True)]
    known = [time for time in times if time is not None]
    if not known:
        return ""
    workers = services().launcher.workers(devices[0]) if services().launcher_ready else 1
    text = f"about {labels.duration(max(sum(known) / workers, max(known)))} left"
    return text if len(known) == len(times) else f"{text}, and {len(times) - len(known)} runs of unknown time"


def _cell(grid: StudyGrid, cell: GridCell, queue: dict[str, int]) -> dict[str, Any]:
    entry, state = cell.entry, cell.state
    if cell.value is not None:
        state, text = "finished", grid.measure.number(cell.value)
    elif state == "running":
        text = f"{100 * cell.progress:.0f}%" if cell.progress < 1 else "testing"
    elif entry is not None and state == "queued":
        place = queue.get(entry.id)
        text = f"{labels.ordinal(place)} in queue" if place else "queued"
    else:
        text = "–" if state == MISSING else f"{state} at {100 * cell.progress:.0f}%" if cell.progress else state
    return {"state": state, "progress": cell.progress, "text": text,
            "about": "Not trained yet" if state == MISSING else state.capitalize(),
            "link": f"{entry.experiment}?runs={entry.id}" if entry else ""}


def _stage(entry: Entry, measure: MetricFormat | None, *, tested: bool) -> str:
    best = f", validation {measure.text(entry.best)}" if entry.best is not None and measure else ""
    if tested and entry.progress >= 1:
        return f"testing{best}"
    return f"epoch {min(entry.epoch + 1, entry.epochs)} of {entry.epochs}{best}" if entry.epochs else "starting"


def _journal(name: str) -> SearchJournal:
    store = SearchStore(services().store)
    return _journal_of(store.journal(name), store.read(name).ranges)


def report(name: str) -> SearchReport:
    return read_report(SearchStore(services().store), name, _journal(name))


def search(name: str, since: str = "") -> dict[str, Any]:
    """Return texts on a search, its best trials, and charts if they have changed since the answer of this revision."""
    journal, found = _journal(name), report(name)
    measure, state, ranges = found.measure, found.status.state, found.search.ranges
    shares, count = _shares(journal.path, found), len(found.trials)
    revision = f"{journal.generation}.{journal.revision}.{state}.{len(shares)}"
    done = sum(found.counts.get(ended, 0) for ended in ("finished", "pruned", "failed"))
    now = [_trial_now(trial, measure) for trial in found.trials if found.state_of(trial) == "running"]
    more = f"; and {len(now) - NOW} more" * (len(now) > NOW)
    answer = {
        "states": f"{state}/{found.best is not None}", "busy": state == "running", "trials": count,
        "revision": revision,
        "summary": found.counts_text, "best": messages.capital(found.best_text), "progress": done / found.search.trials,
        "now": f"Training: {'; '.join(now[:NOW])}{more}" if now else "",
        "note": f"The charts show {MOST} of {count:,} trials: the best, and evenly spaced ones" * (count > MOST),
        "table": {"heads": ["Trial", f"Validation {measure.heading}", *(title_of(one.key) for one in ranges), "Run"],
                  "rows": [
            {"cells": [f"{trial.number} (defaults)" if trial.default else str(trial.number), measure.text(trial.value),
                       *(value_text(trial.params.get(one.key, "–")) for one in ranges)],
             "link": f"{found.search.experiment}?runs={trial.run}" if trial.run else ""}
            for trial in found.ranked()[:BEST]]}}
    if revision != since:
        nothing = "Waiting for the first finished trial…" if state == "running" else (
            f"No trial is finished yet: press {'More trials' if state == 'finished' else 'Resume'}")
        drawn = SearchFigures(found)
        answer |= {"words": drawn.words(), "figures": drawn.all(shares, FEW, nothing)}
    return answer


def _shares(path: Path, found: SearchReport) -> dict[str, float]:
    """Return the importance of each setting, computed again when a tenth more trials are finished."""
    finished = found.counts.get("finished", 0)
    before, shares = _importance.get(path, (-1, {}))
    if not 0 <= before <= finished < max(before + 1, AGAIN * before):
        shares = importance(found.search.ranges, found.trials, found.measure.higher_is_better)
        _importance[path] = finished, shares
    return shares


def _trial_now(trial: TrialRecord, measure: MetricFormat) -> str:
    entry = services().catalogue.entry(trial.run) if trial.run else None
    stage = "starting" if entry is None else "waits for a worker" if entry.state == "queued" else (
        _stage(entry, measure, tested=False) if entry.state == "running" else entry.state)
    return f"trial {trial.number} ({params_text(trial.params)}): {stage}"
