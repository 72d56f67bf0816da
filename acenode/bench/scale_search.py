"""A search of 200 trials on the bundled digits with pruning, on a local Ray."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from acenode.config.ranges import read_ranges
from acenode.data.folder import data_dir
from acenode.execution.cluster.ray_cluster import RayCluster
from acenode.execution.launcher import Launcher
from acenode.runs.questions import Search, SearchStore
from acenode.runs.store import RunStore
from acenode.search.results import read_report
from acenode.search.run import SearchRun, TrialEvent

TRIALS, WORKERS, EPOCHS = 200, 2, 4
OVER = "learning_rate=log:1e-3..1, momentum=0..0.95"


@dataclass(frozen=True)
class SearchCost:
    """What a search found, and how long it took."""

    trials: int
    workers: int
    seconds: float
    training: float  # seconds of training of all trials together
    epochs: int  # trained in all
    counts: dict[str, int]
    best: float | None  # validation accuracy
    default: float | None

    @property
    def text(self) -> str:
        """Describe it for people."""
        ended = ", ".join(f"{count} {state}" for state, count in self.counts.items())
        values = [f"{100 * value:.2f}%" if value is not None else "none" for value in (self.best, self.default)]
        return (f"search of {self.trials} trials of {EPOCHS} epochs on {self.workers} local Ray workers: "
                f"{self.seconds:.0f} s, {3600 * self.trials / self.seconds:,.0f} trials an hour ({ended})\n"
                f"  pruning saved {1 - self.epochs / (EPOCHS * self.trials):.0%} of the epochs; the workers trained "
                f"{self.training / (self.workers * self.seconds):.0%} of the time\n"
                f"  best validation accuracy {values[0]}, of the defaults {values[1]}")


def measure_search(folder: Path, progress: Callable[[str], None], *, trials: int = TRIALS) -> SearchCost:
    """Conduct the search."""
    store = SearchStore(RunStore(folder))
    held = {"epochs": EPOCHS, "solver": "euler", "step_size": 1.0, "analysis": False, "snapshots": 2}
    search = Search("rates", "mnist", "odenet", read_ranges([OVER]), trials, held=held, device="cpu")
    store.write(search)
    ended = Counter[str]()

    def event(found: TrialEvent) -> None:
        ended[found.kind] += 1
        done = sum(count for kind, count in ended.items() if kind != "started")
        if found.kind != "started" and done % 20 == 0:
            progress(f"  {ended['finished']} finished, {ended['pruned']} pruned")

    launcher = Launcher(store.runs, data_dir(), cluster=RayCluster(threads=1, cpus=WORKERS))
    try:
        launcher.set_workers("ray", WORKERS)
        begun = time.monotonic()
        SearchRun(store, search, launcher, workers=lambda: WORKERS, on_event=event).run()
        seconds = time.monotonic() - begun
    finally:
        launcher.close()
    report, runs = read_report(store, "rates"), list(store.runs)
    epochs = sum(record["kind"] == "epoch" for run in runs for record in run.metrics()[0])
    return SearchCost(trials, WORKERS, seconds, sum(float(run.status().get("seconds") or 0) for run in runs), epochs,
                      dict(report.counts), report.best.value if report.best else None,
                      report.default.value if report.default else None)
