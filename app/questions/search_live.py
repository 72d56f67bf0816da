"""The trials of a search for the browser: all of them at first, then those that have changed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acenode.compare.metrics import MetricFormat
from acenode.config.ranges import SearchRange
from acenode.runs.questions import SearchStore
from acenode.search.journal import SearchJournal, TrialRecord
from acenode.search.results import FEW, SearchReport, importance, params_text, read_report, value_text

from .. import labels
from ..services import services

BEST = 10  # trials in the table
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
        since: the `revision` of an earlier answer; the trials that have changed since are returned, or all.
    """
    journal = _journal(SearchStore(services().store), name)
    found = report(name)
    generation, _, revision = since.partition(".")
    known = int(revision) if generation == str(journal.generation) and revision.isdecimal() else -1
    measure, keys = found.measure, [one.key for one in found.search.ranges]
    shares = _shares(journal.path, found)
    return {
        "state": found.status.state, "error": found.status.error, "has_best": found.best is not None,
        "metric": measure.heading, "higher": measure.higher_is_better,
        "ranges": [_range(one) for one in found.search.ranges],
        "revision": f"{journal.generation}.{journal.revision}", "all": known < 0,
        "trials": [_row(found.search.ranges, trial, measure) for trial in found.trials if trial.revision > known],
        "summary": found.counts_text, "best": found.best_text,
        "progress": sum(found.counts.get(state, 0) for state in ("finished", "pruned", "failed")) / found.search.trials,
        "importance": [[labels.plain(key), share] for key, share in shares.items()], "few": FEW,
        "top": [_best(trial, measure, keys, found.search.experiment) for trial in found.ranked()[:BEST]],
        "now": [_now(trial, measure) for trial in found.trials if found.state_of(trial) == "running"],
        "nothing": _nothing(found.status.state),
    }


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


def _range(one: SearchRange) -> dict[str, Any]:
    return {"title": labels.plain(one.key), "low": one.low, "high": one.high, "log": one.log,
            "whole": not one.values and one.whole, "choices": [value_text(value) for value in one.values]}


def _row(ranges: Sequence[SearchRange], trial: TrialRecord, measure: MetricFormat) -> list[Any]:
    """Return number, state, value and settings of a trial; a listed value is its index."""
    settings = [None if one.key not in trial.params else one.values.index(trial.params[one.key]) if one.values
                else trial.params[one.key] for one in ranges]
    return [trial.number, trial.state, None if trial.value is None else trial.value * measure.scale, settings]


def _best(trial: TrialRecord, measure: MetricFormat, keys: list[str], experiment: str) -> dict[str, Any]:
    return {"number": trial.number, "value": measure.text(trial.value), "default": trial.default,
            "settings": [value_text(trial.params[key]) if key in trial.params else "–" for key in keys],
            "link": f"{experiment}?runs={trial.run}" if trial.run else ""}


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
