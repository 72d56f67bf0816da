"""Runs an hour: whole short runs on the bundled digits, in threads, in processes and on a local Ray.

Every run has one torch thread. The three ways take turns at each number of workers, so that other work on the machine
slows all of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from acenode import experiments
from acenode.config import Config
from acenode.data.folder import data_dir
from acenode.errors import UserError
from acenode.execution.cluster.ray_cluster import RayCluster
from acenode.execution.launcher import Launcher
from acenode.runs.store import RunStore

WORKERS = (1, 2, 4, 8)
WAYS = ("threads", "processes", "ray")
RUNS, RUNS_EACH = 4, 1  # measured runs in all, at least, and of every worker


@dataclass(frozen=True)
class Rate:
    """How fast a number of workers train in one way."""

    way: str
    workers: int
    runs: int
    seconds: float
    starting: float  # seconds from the first request to the end of one run of every worker

    @property
    def an_hour(self) -> float:
        return 3600 * self.runs / self.seconds


@dataclass(frozen=True)
class Rates:
    """All of them."""

    rates: list[Rate]

    @property
    def text(self) -> str:
        """Describe them for people: a table with a row for each number of workers."""
        ways = list(dict.fromkeys(rate.way for rate in self.rates))
        lines = [f"runs an hour, {os.cpu_count()} cores, one torch thread a run (seconds until every worker has "
                 "trained its first run):", f"{'at a time':>9}" + "".join(f"{way:>20}" for way in ways)]
        for workers in dict.fromkeys(rate.workers for rate in self.rates):
            cells = [f"{rate.an_hour:,.0f} ({rate.starting:.1f} s)" for rate in self.rates if rate.workers == workers]
            lines.append(f"{workers:>9}" + "".join(f"{cell:>20}" for cell in cells))
        return "\n".join(lines)


def measure_rates(folder: Path, progress: Callable[[str], None], *, workers: Sequence[int] = WORKERS,
                  ways: Sequence[str] = WAYS, runs: int = RUNS) -> Rates:
    """Measure every way with every number of workers."""
    found = []
    for count in workers:
        for way in ways:
            rate = _rate(way, count, max(runs, RUNS_EACH * count), folder / f"{way}-{count}")
            progress(f"  {count} at a time, {way}: {rate.runs} runs in {rate.seconds:.1f} s")
            found.append(rate)
    return Rates(found)


def config(seed: int) -> Config:
    """Return a run of some seconds."""
    return experiments.get("mnist").configure("odenet", seed=seed, epochs=2, device="cpu", analysis=False, snapshots=2,
                                              solver="euler", step_size=0.5)


def _rate(way: str, workers: int, runs: int, folder: Path) -> Rate:
    """Train so many runs after one for each worker, which starts its process and loads torch."""
    cluster = RayCluster(threads=1, cpus=workers) if way == "ray" else None
    launcher = Launcher(RunStore(folder), data_dir(), {"cpu": "thread" if way == "threads" else "process"}, cluster)
    try:
        launcher.set_workers("ray" if cluster is not None else "cpu", workers)
        begun = time.monotonic()
        _train(launcher, workers)
        started = time.monotonic()
        _train(launcher, runs)
        return Rate(way, workers, runs, time.monotonic() - started, started - begun)
    finally:
        launcher.close()


def _train(launcher: Launcher, count: int) -> None:
    runs = [launcher.start(config(seed)) for seed in range(count)]
    launcher.wait()
    for one in runs:
        if (status := one.status())["state"] != "finished":
            raise UserError(f"a run {status['state']}: {status['error']}")
