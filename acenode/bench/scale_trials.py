"""The scheduler's side of many trials, without training: 10,000 recorded ones and 100 workers.

Measured at several numbers of recorded trials: listing the runs and the search, choosing settings, deciding after an
epoch whether to prune, and what a reader that follows the search reads. Then 100 workers: what their threads and their
files cost. Times have the processor time beside them, which other work on the machine hardly changes.
"""

from __future__ import annotations

import gc
import json
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from acenode.bench.process_cost import Cost, cost_of, memory
from acenode.bench.scale_workers import WorkerCost, measure_workers
from acenode.bench.synthetic_search import synthetic_search
from acenode.config import Config
from acenode.config.groups import Training
from acenode.files import json_bytes
from acenode.runs.catalogue import Catalogue
from acenode.runs.process import identity
from acenode.runs.questions import Search, SearchStore
from acenode.runs.store import Run, RunStore
from acenode.search.journal import SearchJournal
from acenode.search.plan import trial_config
from acenode.search.results import importance, read_report
from acenode.search.run import SearchRun, TrialEvent
from acenode.search.sampling import load_optuna

SIZES = (100, 1_000, 10_000)  # recorded trials
WORKERS = 100
MORE = 30  # trials that are conducted on top of the recorded ones
EPOCHS = 4


@dataclass(frozen=True)
class TrialCosts:
    """Times and bytes at one number of recorded trials."""

    trials: int
    first_listing: Cost  # of the runs, by a new process without an index
    next_listing: Cost
    listing_memory: int
    reading: Cost  # the journal, at first
    following: Cost  # what is new in the journal
    summary: Cost  # best trials and importance
    opening: Cost  # of the journal by Optuna, before the first trial of a resumed search
    optuna_memory: int
    choosing: dict[str, Cost]  # for each trial: its start, all decisions and its end, by sampler and pruner


@dataclass(frozen=True)
class ManyTrials:
    """The costs at all sizes, and of the workers."""

    workers: int
    sizes: list[TrialCosts]
    each_worker: WorkerCost

    @property
    def text(self) -> str:
        """Describe them for people."""
        def row(title: str, value: Callable[[TrialCosts], str]) -> str:
            return f"  {title:<52}" + "".join(f"{value(one):>20}" for one in self.sizes)

        ways = list(self.sizes[0].choosing)
        slowest = {way: self.workers * self.sizes[-1].choosing[way].cpu for way in ways}
        return "\n".join([
            f"{'recorded trials; time (processor time)':<54}" + "".join(f"{one.trials:>20,}" for one in self.sizes),
            row("list all runs, at first", lambda one: str(one.first_listing)),
            row("list all runs again", lambda one: str(one.next_listing)),
            row("memory of that list", lambda one: f"{one.listing_memory / 1e6:.0f} MB"),
            row("read the journal, at first", lambda one: str(one.reading)),
            row("read what is new in it", lambda one: str(one.following)),
            row("best trials and importance", lambda one: str(one.summary)),
            row("open the journal with Optuna, once", lambda one: str(one.opening)),
            row("memory of Optuna's study", lambda one: f"{one.optuna_memory / 1e6:.0f} MB"),
            *(row(f"one trial of {EPOCHS} epochs: {way}", lambda one, way=way: str(one.choosing[way]))  # type: ignore[misc]
              for way in ways),
            f"{self.workers} workers wait for the scheduler at {self.sizes[-1].trials:,} trials if a trial takes less "
            "than " + ", ".join(f"{seconds:.1f} s ({way})" for way, seconds in slowest.items()),
            self.each_worker.text])


def measure_trials(folder: Path, progress: Callable[[str], None], *, sizes: Sequence[int] = SIZES,
                   workers: int = WORKERS) -> ManyTrials:
    """Measure at every size, then the workers."""
    found = []
    for count in sizes:
        found.append(_measure(folder / str(count), count, workers))
        progress(f"  {count:,} trials: listed in {found[-1].first_listing.seconds:.2f} s")
    return ManyTrials(workers, found, measure_workers(folder / "workers", workers))


def _measure(root: Path, count: int, workers: int) -> TrialCosts:
    store = SearchStore(RunStore(root))
    search = synthetic_search(store, "many", count)
    report = read_report(store, "many")
    for trial in report.trials:
        _write_run(root / trial.run, search, trial.params, trial.number)
    catalogue, before = Catalogue(store.runs), _memory()
    first_listing, again = cost_of(catalogue.entries), cost_of(catalogue.entries)
    listing_memory = _memory() - before
    journal = SearchJournal(store.journal("many"), search.ranges)
    reading = cost_of(journal.refresh)
    summary = cost_of(lambda: (read_report(store, "many", journal).ranked(),
                               importance(search.ranges, journal.trials, True)))
    following, opening, optuna_memory, choosing = Cost(), Cost(), 0, dict[str, Cost]()
    for sampler, pruner in (("tpe", "median"), ("random", "none")):
        cost = _conduct(store, replace(search, sampler=sampler, pruner=pruner), journal, workers)
        choosing[f"{sampler}, pruner {pruner}"] = cost.each
        following = max(following, cost.following)
        opening, optuna_memory = max(opening, cost.opening), max(optuna_memory, cost.memory)
    return TrialCosts(count, first_listing, again, listing_memory, reading, following, summary, opening, optuna_memory,
                      choosing)


def _write_run(path: Path, search: Search, params: Mapping[str, Any], number: int) -> None:
    """Write the folder of a trial as training leaves it; no result, because trials are not tested."""
    config = trial_config(search, lambda one: params[one.key]).to_dict()
    path.mkdir()
    (path / "config.json").write_text(json.dumps({
        "format": 1, "id": path.name, "created": 1_750_000_000.0 + number, "config": config, "params": 31_690,
        "search": search.name, "trial": number}))
    (path / "status.json").write_text(json.dumps({
        "state": "finished", "error": None, "progress": 1.0, "phase": "training", "epoch": 12, "epochs": 12,
        "seconds": 30.0, "best": 0.95, "last": 0.94, "heartbeat": 1_750_000_000.0 + number, "process": identity()}))


# Conduct trials with runs that report an epoch whenever the search looks --------------------------------------------


@dataclass
class _SchedulerCost:
    each: Cost  # of the scheduler for one trial
    opening: Cost
    memory: int
    following: Cost


class _Reporting:
    """A launcher that trains nothing: every run has another epoch whenever `advance` is called."""

    def __init__(self, store: RunStore) -> None:
        self.store, self.epochs = store, dict[str, int]()
        self.runs: dict[str, Run] = {}
        self.spent = Cost()  # here, which is not the scheduler's

    @contextmanager
    def aside(self) -> Iterator[None]:
        begun = Cost.now()
        yield
        self.spent += Cost.now() - begun

    def start(self, config: Config, extra: Mapping[str, Any] | None = None) -> Run:
        run = self.store.create(config, dict(extra or {}))
        self.runs[run.id], self.epochs[run.id] = run, 0
        return run

    def resume(self, run: Run) -> None:
        raise NotImplementedError

    def stop(self, run: Run) -> None:
        if self.runs.pop(run.id, None):
            run.set_state("stopped")

    def advance(self) -> None:
        with self.aside():
            for name, run in list(self.runs.items()):
                self.epochs[name] += 1
                rate = run.config().get("learning_rate")
                value = 0.97 - 0.05 * (math.log10(rate) + 0.8) ** 2 - 0.3 / self.epochs[name]
                with open(run.path / "metrics.jsonl", "ab") as file:
                    file.write(json_bytes({"kind": "epoch", "epoch": self.epochs[name], "validation_accuracy": value,
                                           "best": True}) + b"\n")
                if self.epochs[name] == run.config().part(Training).epochs:
                    run.set_state("finished")
                    del self.runs[name]


class _Turns(threading.Event):
    """An event that is never set: instead of waiting between two looks, let the runs report another epoch."""

    def __init__(self, turn: Callable[[], None]) -> None:
        super().__init__()
        self.turn = turn

    def wait(self, timeout: float | None = None) -> bool:
        self.turn()
        return False


def _conduct(store: SearchStore, search: Search, journal: SearchJournal, workers: int) -> _SchedulerCost:
    """Conduct some trials more than are recorded, at most `workers` at a time, and time the scheduler."""
    load_optuna()
    recorded = len(journal.refresh())
    more = replace(search, trials=recorded + MORE, held={"epochs": EPOCHS})
    launcher, following, ready = _Reporting(store.runs), Cost(), list[Cost]()
    before, grown = _memory(), 0

    def at_a_time() -> int:
        if not ready:
            ready.append(Cost.now())
        return workers

    def event(found: TrialEvent) -> None:
        nonlocal following, grown
        with launcher.aside():
            if found.kind != "started":
                following = max(following, cost_of(journal.refresh))
                grown = max(grown, _memory() - before)

    begun = Cost.now()
    SearchRun(store, more, launcher, workers=at_a_time, on_event=event).run(_Turns(launcher.advance))
    spent = Cost.now() - ready[0] - launcher.spent
    return _SchedulerCost(spent / MORE, ready[0] - begun, grown, following)


def _memory() -> int:
    gc.collect()
    return memory([os.getpid()])
