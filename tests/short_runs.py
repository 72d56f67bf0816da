"""Short runs on the bundled digits: what to train, how to wait for it, what it measured, where it is trained."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quick_settings import QUICK

from acenode import experiments
from acenode.config import Config
from acenode.execution.execute import attempt, create
from acenode.runs.store import Run, RunStore

PATIENCE = 240.0  # seconds, on a machine that is busy


def config(method: str = "odenet", **given: Any) -> Config:
    """Return a configuration that takes a second to train."""
    settings = {**QUICK, "device": "cpu", "solver": "euler", "step_size": 1.0, **given}
    return experiments.get("mnist").configure(method, **settings)


def some_epochs(**given: Any) -> Config:
    """Return a configuration with checkpoints after each epoch, some seconds in all."""
    return config(**{"batch_size": 64, "epochs": 14} | given)


def forever(**given: Any) -> Config:
    """Return a configuration that trains until it is stopped."""
    return some_epochs(epochs=10_000, **given)


def until(happened: Callable[[], bool]) -> None:
    """Wait until something has happened."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def numbers(run: Run) -> list[dict[str, Any]]:
    """Return all metrics but times."""
    return [{k: v for k, v in r.items() if k not in ("seconds", "elapsed")} for r in run.metrics()[0]]


def epochs(run: Run) -> int:
    """Return how many epochs were reported."""
    return sum(record["kind"] == "epoch" for record in run.metrics()[0])


def saved(run: Run) -> bool:
    """Return whether the run has a checkpoint. That of an epoch is written after the epoch was reported."""
    return (run.path / "checkpoints" / "last.pt").exists()


class AfterEpoch:
    """A stop event that is set once the first epoch was reported."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def is_set(self) -> bool:
        return epochs(self.run) > 0


class Attempts:
    """Stands in for training: a run lasts until it ends here, or all are released."""

    def __init__(self) -> None:
        self.device: dict[str, str] = {}  # by run
        self.groups: list[tuple[int, int]] = []  # seed, and how many seeds its computation has
        self.ended: defaultdict[str, threading.Event] = defaultdict(threading.Event)
        self.release = threading.Event()

    def __call__(self, run: Run, data_root: Path, stop: threading.Event, device: str, group: Any = None) -> str:
        self.device[run.id] = device
        self.groups.append((run.config().seed, 1 if group is None else group.count))
        while not (self.release.is_set() or stop.is_set() or self.ended[run.id].wait(0.01)):
            pass
        run.set_state("stopped")
        return "stopped"

    def wait_for(self, count: int) -> list[tuple[int, int]]:
        until(lambda: len(self.groups) >= count)
        return sorted(self.groups)


def trained_here(folder: Path, wanted: Config) -> Run:
    """Train a run in this thread without a break."""
    run = create(RunStore(folder), wanted)
    assert attempt(run, folder / "data", threading.Event()) == "finished"
    return run


def same(run: Run, other: Run) -> bool:
    """Return whether two runs measured the same."""
    return numbers(run) == numbers(other) and run.result()["test"] == other.result()["test"]  # type: ignore[index]


def worker_pid(run: Run) -> int | None:
    """Return the process of the Ray worker that trains a run: Ray gives it the name of the task."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::") and run.id.encode() in path.read_bytes():
                return int(path.parent.name)
        except OSError:
            continue
    return None
