"""Runs for the tests of clusters: what to train, how to wait for it, how to find its worker."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from quick_settings import QUICK

from acenode import experiments
from acenode.config import Config
from acenode.execution.execute import attempt, create
from acenode.runs.store import Run, RunStore

PATIENCE = 240.0  # seconds, on a machine that is busy


def config(**given: Any) -> Config:
    """Return a configuration of several epochs with checkpoints after each, some seconds in all."""
    settings = {**QUICK, "device": "cpu", "solver": "euler", "step_size": 1.0, "batch_size": 64, "epochs": 14, **given}
    return experiments.get("mnist").configure("odenet", **settings)


def forever() -> Config:
    return config(epochs=10_000)


def epochs(run: Run) -> int:
    """Return how many epochs were reported."""
    return sum(record["kind"] == "epoch" for record in run.metrics()[0])


def saved(run: Run) -> bool:
    """Return whether the run has a checkpoint. That of an epoch is written after the epoch was reported."""
    return (run.path / "checkpoints" / "last.pt").exists()


def numbers(run: Run) -> list[dict[str, Any]]:
    """Return all metrics but times."""
    return [{k: v for k, v in r.items() if k not in ("seconds", "elapsed")} for r in run.metrics()[0]]


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
