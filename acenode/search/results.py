"""What the trials of a search found: how many ended how, the best one, and lines of text."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from acenode.compare import metric_format
from acenode.compare.metric_format import MetricFormat
from acenode.runs.searches import Search, SearchStatus, SearchStore
from acenode.runs.store import RunStore
from acenode.runs.studies import MAX_NAME, StudyStore
from acenode.search.journal import SearchJournal, TrialRecord

ORDER = ("finished", "pruned", "failed", "running", "unfinished", "queued")
WINNER = "-winner"  # ends the name of the study of the best settings


@dataclass(frozen=True)
class SearchReport:
    """A search with its trials."""

    search: Search
    status: SearchStatus
    trials: Sequence[TrialRecord]

    @property
    def measure(self) -> MetricFormat:
        """The validation metric."""
        return metric_format.of(metric_format.name_of(self.search.experiment), self.search.experiment)

    @functools.cached_property
    def counts(self) -> Mapping[str, int]:
        """How many trials are in each state."""
        found = Counter(map(self.state_of, self.trials))
        return {state: found[state] for state in ORDER if found[state]}

    def state_of(self, trial: TrialRecord) -> str:
        """Return the state of a trial; `unfinished` if it is open in the journal but the search does not run."""
        return "unfinished" if trial.state == "running" and not self.status.running else trial.state

    @functools.cached_property
    def best(self) -> TrialRecord | None:
        """The finished trial with the best validation value, the first of equal ones."""
        return best_of(self.trials, self.measure.higher_is_better)

    @property
    def default(self) -> TrialRecord | None:
        """The trial that tried the defaults."""
        return next((trial for trial in self.trials if trial.default), None)

    @property
    def tried(self) -> int:
        """How many trials have begun."""
        return sum(trial.state != "queued" for trial in self.trials)

    def ranked(self) -> list[TrialRecord]:
        """Return the finished trials, the best first."""
        sign = -1 if self.measure.higher_is_better else 1
        done = [trial for trial in self.trials if trial.state == "finished" and trial.value is not None]
        return sorted(done, key=lambda trial: (sign * (trial.value or 0.0), trial.number))

    @property
    def counts_text(self) -> str:
        """The counts in words: `12 of 30 trials finished, 5 pruned`."""
        done = self.counts.get("finished", 0)
        others = [f"{count} {state}" for state, count in self.counts.items() if state != "finished"]
        return ", ".join([f"{done} of {self.search.trials} trials finished", *others])

    @property
    def so_far_text(self) -> str:
        """A sentence that the best settings may change; empty if the search is finished."""
        if self.status.state == "finished":
            return ""
        return f"the search is {self.status.state}: these are the best settings so far"

    @property
    def best_text(self) -> str:
        """The best trial in words, with the default's value beside it; empty if no trial is finished."""
        if self.best is None:
            return ""
        text = (f"best validation {self.measure.title} {self.measure.text(self.best.value)} (trial "
                f"{self.best.number}: {params_text(self.best.params)})")
        if self.best.default:
            return f"{text}, which are the defaults"
        if self.default is not None and self.default.value is not None and self.default.state == "finished":
            text += f"; defaults: {self.measure.text(self.default.value)}"
        return text


def read_report(store: SearchStore, name: str, journal: SearchJournal | None = None) -> SearchReport:
    """Read a search and its trials; no run is opened.

    Args:
        store: the searches of a folder.
        name: the search.
        journal: one that was read before, which then reads only what is new.
    """
    search = store.read(name)
    journal = journal or SearchJournal(store.journal(name), search.ranges)
    return SearchReport(search, store.status(name), journal.refresh())


def winner_name(search: str) -> str:
    """Return the name of the study that compares the best settings of a search with the defaults."""
    return f"{search[:MAX_NAME - len(WINNER)]}{WINNER}"


def made_winner(runs: RunStore, search: str) -> str | None:
    """Return the name of the study of the best settings if it was made, or None."""
    name = winner_name(search)
    return name if StudyStore(runs).exists(name) else None


def best_of(trials: Sequence[TrialRecord], higher_is_better: bool) -> TrialRecord | None:
    """Return the best finished trial, the first of equal ones, or None."""
    best: TrialRecord | None = None
    for trial in trials:
        if trial.state != "finished" or trial.value is None:
            continue
        if best is None or best.value is None or (
                trial.value > best.value if higher_is_better else trial.value < best.value):
            best = trial
    return best


def params_text(params: Mapping[str, Any]) -> str:
    """Write the settings of a trial: `learning_rate=0.00123, attention=fixed`."""
    return ", ".join(f"{key}={value_text(value)}" for key, value in params.items())


def value_text(value: Any) -> str:
    """Write a value with four significant digits."""
    return str(value).lower() if isinstance(value, bool) else f"{value:.4g}" if isinstance(value, float) else str(value)
