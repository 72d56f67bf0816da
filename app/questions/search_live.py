"""The trials of a search for the browser: texts, the best ones, and charts if they have changed."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acenode.compare.metrics import MetricFormat
from acenode.config.ranges import SearchRange
from acenode.runs.questions import SearchStore
from acenode.search.journal import SearchJournal, TrialRecord
from acenode.search.results import FEW, SearchReport, importance, params_text, read_report, value_text

from .. import labels
from ..results.search_figures import MOST, SearchFigures
from ..services import services

BEST, NOW = 10, 4  # trials in the table, and running ones that are named
AGAIN = 1.1  # importance is computed again when there are so many times the finished trials


@dataclass(frozen=True)
class _Importance:
    finished: int
    shares: dict[str, float]


_lock = threading.Lock()
_journals: dict[tuple[Path, tuple[SearchRange, ...]], SearchJournal] = {}
_importance: dict[Path, _Importance] = {}


def report(name: str) -> SearchReport:
    """Return a search with its trials; of its journal, only what is new since the last call is read."""
    store = SearchStore(services().store)
    return read_report(store, name, _journal(store, name))


def _journal(store: SearchStore, name: str) -> SearchJournal:
    search = store.read(name)
    with _lock:
        return _journals.setdefault((store.journal(name), search.ranges),
                                    SearchJournal(store.journal(name), search.ranges))


def view(name: str, since: str = "") -> dict[str, Any]:
    """Return what the browser draws.

    Args:
        name: the search; a UserError says why there is none.
        since: the `revision` of an earlier answer; there are no charts if they have not changed since.
    """
    journal = _journal(SearchStore(services().store), name)
    found = report(name)
    measure, state = found.measure, found.status.state
    ranges, shares = found.search.ranges, _shares(journal.path, found)
    revision = f"{journal.generation}.{journal.revision}.{state}.{len(shares)}"
    now = [_now(trial, measure) for trial in found.trials if found.state_of(trial) == "running"]
    more = f"; and {len(now) - NOW} more" * (len(now) > NOW)
    count = len(found.trials)
    answer = {
        "state": state, "has_best": found.best is not None, "trials": count, "revision": revision,
        "summary": found.counts_text, "best": found.best_text[:1].upper() + found.best_text[1:],
        "progress": sum(found.counts.get(ended, 0) for ended in ("finished", "pruned", "failed")) / found.search.trials,
        "now": f"Training: {'; '.join(now[:NOW])}{more}" if now else "",
        "note": (f"The charts show {MOST} of {count:,} trials: the best, and evenly spaced ones" * (count > MOST)),
        "table": {
            "heads": ["Trial", f"Validation {measure.heading}", *(_title(one) for one in ranges), "Run"],
            "rows": [_best(trial, measure, [one.key for one in ranges], found.search.experiment)
                     for trial in found.ranked()[:BEST]]}}
    if revision != since:
        drawn = SearchFigures(found)
        answer |= {"words": drawn.words(), "figures": drawn.all(shares, FEW, _nothing(state))}
    return answer


def _nothing(state: str) -> str:
    """Say what to do while no trial is finished."""
    if state == "running":
        return "Waiting for the first finished trial…"
    return "No trial is finished yet: press " + ("More trials" if state == "finished" else "Resume")


def _shares(path: Path, found: SearchReport) -> dict[str, float]:
    """Return the importance of each setting, computed again when a tenth more trials are finished."""
    finished = found.counts.get("finished", 0)
    with _lock:
        before = _importance.get(path)
    if before is not None and before.finished <= finished < max(before.finished + 1, AGAIN * before.finished):
        return before.shares
    shares = importance(found.search.ranges, found.trials, found.measure.higher_is_better)
    with _lock:
        _importance[path] = _Importance(finished, shares)
    return shares


def _title(one: SearchRange) -> str:
    title = labels.plain(one.key)
    return title[:1].upper() + title[1:]


def _best(trial: TrialRecord, measure: MetricFormat, keys: list[str], experiment: str) -> dict[str, Any]:
    settings = [value_text(trial.params[key]) if key in trial.params else "–" for key in keys]
    return {"cells": [f"{trial.number} (defaults)" if trial.default else str(trial.number), measure.text(trial.value),
                      *settings], "link": f"{experiment}?runs={trial.run}" if trial.run else ""}


def _now(trial: TrialRecord, measure: MetricFormat) -> str:
    """Say how far a running trial is."""
    entry = services().catalogue.entry(trial.run) if trial.run else None
    stage = "starting"
    if entry is not None and entry.state != "running":
        stage = "waits for a worker" if entry.state == "queued" else entry.state
    elif entry is not None and entry.epochs:
        best = f", validation {measure.text(entry.best)}" if entry.best is not None else ""
        stage = f"epoch {min(entry.epoch + 1, entry.epochs)} of {entry.epochs}{best}"
    return f"trial {trial.number} ({params_text(trial.params)}): {stage}"
