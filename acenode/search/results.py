"""What the trials of a search found: how many ended how, the best one, and the importance of each setting."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acenode.compare.metrics import MetricFormat, metric_format, metric_name
from acenode.config.ranges import SearchRange
from acenode.runs.questions import Search, SearchStatus, SearchStore
from acenode.search.journal import SearchJournal, TrialRecord

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


FEW = 10  # finished trials that importance needs
STEPS = 50  # grid points of an interval, at most
NARROWEST = 0.5 / 1.64  # width of a kernel in grid steps: nine tenths of it lie in its own cell
TINY = 1e-12
Floats = NDArray[np.float64]


def importance(ranges: Sequence[SearchRange], trials: Sequence[TrialRecord],
               higher_is_better: bool) -> dict[str, float]:
    """Return the share of each setting in being among the best tenth of the finished trials, the largest first.

    Returns:
        shares that add up to 1; empty if fewer than 10 trials are finished.
    """
    done = [trial for trial in trials if trial.state == "finished" and trial.value is not None]
    if len(done) < FEW:
        return {}
    used = [trial for trial in done
            if all(one.contains(trial.params[one.key]) for one in ranges if one.key in trial.params)]
    sign = -1.0 if higher_is_better else 1.0
    losses = np.array([sign * (trial.value or 0.0) for trial in used])
    share = min(0.5, max(0.1, 5 / len(done)))
    if len(used) < 2:
        return {}
    last = math.ceil(share * len(used)) - 1
    best = losses <= np.partition(losses, last)[last]
    found = {one.key: _divergence(one, used, best) for one in ranges if any(one.key in t.params for t in used)}
    total = sum(found.values())
    order = sorted(found, key=found.__getitem__, reverse=True)
    return {key: found[key] / total if total else 1 / len(found) for key in order}


def _divergence(one: SearchRange, trials: Sequence[TrialRecord], best: NDArray[np.bool_]) -> float:
    """Return how far the values of the best trials are distributed differently, among the trials with this setting."""
    has = np.array([one.key in trial.params for trial in trials])
    cells, size = _cells(one, [trial.params[one.key] for trial in trials if one.key in trial.params])
    among_best = cells[best[has]]
    if size < 2 or len(cells) < 2 or not len(among_best):
        return 0.0
    top, everywhere = _density(one, among_best, size), _density(one, cells, size)
    weight = (len(among_best) / best.sum()) ** 2 / (len(cells) / len(trials))
    return float(weight * (everywhere @ (top / everywhere - 1) ** 2))


def _cells(one: SearchRange, values: Sequence[object]) -> tuple[NDArray[np.intp], int]:
    """Return the grid cell of every value, and the number of cells; the cells of a list are its values."""
    if one.values:
        return np.array([one.values.index(value) for value in values], dtype=np.intp), len(one.values)
    assert one.low is not None
    assert one.high is not None
    size = STEPS
    if one.whole:
        width = one.high - one.low
        size = min(STEPS, math.ceil(math.log2(width + 1)) + 1 if one.log else round(width) + 1)
    numbers = np.asarray(values, dtype=np.float64)
    low, high = one.low, one.high
    if one.log:
        numbers, low, high = np.log(numbers), math.log(low), math.log(high)
    if high <= low or size < 2:
        return np.zeros(len(numbers), dtype=np.intp), 1
    indices = np.ceil((numbers - low) / ((high - low) / (size - 1)) - 0.5)
    return np.clip(indices, 0, size - 1).astype(np.intp), size


def _density(one: SearchRange, cells: NDArray[np.intp], size: int) -> Floats:
    """Return the probability of each cell by a kernel density estimate with a uniform or wide prior."""
    counts = np.bincount(cells, minlength=size)
    at = np.flatnonzero(counts)
    weights = counts[at].astype(np.float64)
    kernels = _kernels_of_list(at, size) if one.values else _kernels_of_grid(at, weights, size)
    mixed = np.append(weights, 1.0)
    return (mixed / mixed.sum()) @ kernels + TINY


def _kernels_of_list(at: NDArray[np.intp], size: int) -> Floats:
    """Return a row of probabilities for each observed value of a list, and a uniform one."""
    rows = np.full((len(at) + 1, size), 1 / (len(at) + 1))
    rows[np.arange(len(at)), at] += 1
    return rows / rows.sum(axis=1, keepdims=True)


def _kernels_of_grid(at: NDArray[np.intp], weights: Floats, size: int) -> Floats:
    """Return a row for each observed cell, a normal kernel cut off at the ends of the grid, and a wide one."""
    summed, total = np.cumsum(weights), weights.sum()
    mean = at @ weights / total
    deviation = math.sqrt((at - mean) ** 2 @ weights / max(1.0, total - 1))
    first = np.searchsorted(summed, total // 4, side="left")
    third = np.searchsorted(summed, total * 3 // 4, side="right")
    spread = at[min(len(at) - 1, third)] - at[first]
    width = max(1.059 * min(spread / 1.34, deviation) * total ** -0.2, NARROWEST)
    centres = np.append(at, (size - 1) / 2)
    widths = np.append(np.full(len(at), width), float(size))
    edges = (np.arange(size + 1) - 0.5 - centres[:, None]) / widths[:, None]
    below = np.array([[0.5 * math.erfc(-edge / math.sqrt(2)) for edge in row] for row in edges])
    mass = np.diff(below, axis=1)
    return mass / (below[:, -1:] - below[:, :1])
