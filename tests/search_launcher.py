"""Searches that train nothing: every run gains an epoch whenever the search looks, with values from a formula."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from acenode.bench.synthetic import EpochLauncher
from acenode.config import Config
from acenode.config.ranges import read_ranges
from acenode.runs.questions import Search, SearchStore
from acenode.runs.store import RunStore
from acenode.search.results import SearchReport, read_report
from acenode.search.run import SearchRun


def hill(config: Config, epoch: int) -> float:
    """An accuracy that is best at a learning rate of 0.05 and grows with the epochs."""
    return 0.9 - 0.2 * (math.log10(config.get("learning_rate")) - math.log10(0.05)) ** 2 - 0.2 / epoch


def a_search(name: str = "rates", **given: Any) -> Search:
    """A search over the learning rate and two settings of attention, of three epochs a trial."""
    return Search(**{"name": name, "experiment": "mnist", "method": "ace", "trials": 12, "held": {"epochs": 3},
                     "ranges": read_ranges(["learning_rate=log:1e-3..1, attention=evolving,none, "
                                            "penalty_weight=1e-4..1e-2"]), "pruner": "none", **given})


def conduct(runs: RunStore, search: Search, value: Callable[[Config, int], float] = hill, *,
            stop_after: int = 0) -> tuple[str, EpochLauncher]:
    """Create a search if it does not exist and conduct it; `stop_after` requests a stop after so many epochs."""
    store = SearchStore(runs)
    if search.name not in store.names():
        store.write(search)
    launcher = EpochLauncher(runs, value)

    def workers() -> int:
        if not store.stop(search.name).exists():
            launcher.advance()
        if stop_after and launcher.epochs >= stop_after:
            store.stop(search.name).touch()
        return 1

    return SearchRun(store, search, launcher, workers=workers).run(), launcher


def report_of(runs: RunStore, name: str = "rates") -> SearchReport:
    return read_report(SearchStore(runs), name)
