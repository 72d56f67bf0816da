"""A launcher that trains nothing: every run gains an epoch whenever the search looks, with values from a formula."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from acenode.config import Config
from acenode.config.groups import Training
from acenode.config.ranges import read_ranges
from acenode.files import json_bytes
from acenode.runs.questions import Search, SearchStore
from acenode.runs.store import Run, RunStore
from acenode.search.results import SearchReport, read_report
from acenode.search.run import SearchRun


class EpochLauncher:
    """Adds one epoch to each started run at every call of `advance`.

    Args:
        store: where runs are created.
        value: the validation accuracy of a configuration after an epoch.
        before: is called with the number of epochs so far before each epoch, and may raise.
    """

    def __init__(self, store: RunStore, value: Callable[[Config, int], float],
                 before: Callable[[int], None] = lambda epochs: None) -> None:
        self.store, self.value, self.before = store, value, before
        self.active: dict[str, tuple[Run, Config]] = {}
        self.epochs = 0  # in all
        self.stopped: list[str] = []

    def start(self, config: Config, extra: Mapping[str, Any] | None = None) -> Run:
        run = self.store.create(config, dict(extra or {}))
        self.active[run.id] = (run, config)
        return run

    def resume(self, run: Run) -> None:
        run.set_state("queued", error=None)
        self.active[run.id] = (run, run.config())

    def stop(self, run: Run) -> None:
        if self.active.pop(run.id, None):
            self.stopped.append(run.id)
            run.set_state("stopped")

    def advance(self) -> None:
        for run, config in list(self.active.values()):
            self.before(self.epochs)
            self.epochs += 1
            values = [r["validation_accuracy"] for r in run.metrics()[0]]
            epoch, value = len(values) + 1, self.value(config, len(values) + 1)
            with open(run.path / "metrics.jsonl", "ab") as file:
                file.write(json_bytes({"kind": "epoch", "epoch": epoch, "validation_accuracy": value,
                                       "best": value > max(values, default=-math.inf)}) + b"\n")
            ended = epoch == config.part(Training).epochs
            run.set_state("finished" if ended else "running")
            if ended:
                del self.active[run.id]


def hill(config: Config, epoch: int) -> float:
    """An accuracy that is best at a learning rate of 0.05 and grows with the epochs."""
    return 0.9 - 0.2 * (math.log10(config.get("learning_rate")) - math.log10(0.05)) ** 2 - 0.2 / epoch


def a_search(name: str = "rates", **given: Any) -> Search:
    """A search over the learning rate and two settings of attention, of three epochs a trial."""
    return Search(**{"name": name, "experiment": "mnist", "method": "ace", "trials": 12, "held": {"epochs": 3},
                     "ranges": read_ranges(["learning_rate=log:1e-3..1, attention=evolving,none, "
                                            "penalty_weight=1e-4..1e-2"]), "pruner": "none", **given})


def conduct(runs: RunStore, search: Search, value: Callable[[Config, int], float] = hill, *, stop_after: int = 0,
            before: Callable[[int], None] = lambda epochs: None) -> tuple[str, EpochLauncher]:
    """Create a search if it does not exist and conduct it; `stop_after` requests a stop after so many epochs."""
    store = SearchStore(runs)
    if search.name not in store.names():
        store.write(search)
    launcher = EpochLauncher(runs, value, before)

    def workers() -> int:
        if not store.stop(search.name).exists():
            launcher.advance()
        if stop_after and launcher.epochs >= stop_after:
            store.stop(search.name).touch()
        return 1

    return SearchRun(store, search, launcher, workers=workers).run(), launcher


def report_of(runs: RunStore, name: str = "rates") -> SearchReport:
    return read_report(SearchStore(runs), name)
