"""What the trials of a search found: how many ended how, the best one, and the importance of each setting."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from inspect import signature
from typing import Any

from acenode.compare.metrics import MetricFormat, metric_format, metric_name
from acenode.config.ranges import SearchRange
from acenode.runs.questions import Search, SearchStatus, SearchStore
from acenode.search.journal import SearchJournal, TrialRecord
from acenode.search.sampling import distribution, load_optuna

ORDER = ("finished", "pruned", "failed", "running", "unfinished", "queued")


@dataclass(frozen=True)
class SearchReport:
    """A search with its trials."""

    search: Search
    status: SearchStatus
    trials: Sequence[TrialRecord]

    @property
    def measure(self) -> MetricFormat:
        """The validation metric."""
        return metric_format(metric_name(self.search.experiment), self.search.experiment)

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
        return next(iter(self.ranked()), None)

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
        done = [trial for trial in self.trials if trial.state == "finished" and trial.value is not None]
        return sorted(done, key=lambda trial: (-self.measure.sign * (trial.value or 0.0), trial.number))

    @property
    def counts_text(self) -> str:
        """The counts in words: `12 of 30 trials finished, 5 pruned`."""
        done = self.counts.get("finished", 0)
        others = [f"{count} {state}" for state, count in self.counts.items() if state != "finished"]
        return ", ".join([f"{done} of {self.search.trials} trials finished", *others])

    @property
    def so_far_text(self) -> str:
        """A sentence that the best settings may change; empty if the search is finished."""
        state = self.status.state
        return "" if state == "finished" else f"the search is {state}: these are the best settings so far"

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
    """Read a search and its trials; no run is opened. Of a `journal` that was read before, only what is new is read."""
    search = store.read(name)
    journal = journal or SearchJournal(store.journal(name), search.ranges)
    return SearchReport(search, store.status(name), journal.refresh())


def params_text(params: Mapping[str, Any]) -> str:
    """Write the settings of a trial: `learning_rate=0.00123, attention=fixed`."""
    return ", ".join(f"{key}={value_text(value)}" for key, value in params.items())


def value_text(value: Any) -> str:
    """Write a value with four significant digits."""
    return str(value).lower() if isinstance(value, bool) else f"{value:.4g}" if isinstance(value, float) else str(value)


FEW = 10  # finished trials that importance needs


def importance(ranges: Sequence[SearchRange], trials: Sequence[TrialRecord],
               higher_is_better: bool) -> dict[str, float]:
    """Return the share of each setting in being among the best tenth of the finished trials, the largest first; empty
    if fewer than 10 trials are finished, or without Optuna.

    This is Optuna's PED-ANOVA, which takes some seconds for 10,000 trials.
    """
    done = [trial for trial in trials if trial.state == "finished" and trial.value is not None]
    used = [trial for trial in done
            if all(one.contains(trial.params[one.key]) for one in ranges if one.key in trial.params)]
    if len(done) < FEW or len(used) < 2 or find_spec("optuna") is None:
        return {}
    optuna, kinds = load_optuna(), {one.key: distribution(one) for one in ranges}
    study = optuna.create_study(direction="maximize" if higher_is_better else "minimize")
    study.add_trials([optuna.trial.create_trial(
        params=trial.params, distributions={key: kinds[key] for key in trial.params}, value=trial.value)
        for trial in used])
    evaluator = optuna.importance.PedAnovaImportanceEvaluator
    quantile = next(key for key in ("target_quantile", "baseline_quantile") if key in signature(evaluator).parameters)
    share = min(0.5, max(0.1, 5 / len(done)))
    return dict(optuna.importance.get_param_importances(study, evaluator=evaluator(**{quantile: share})))
