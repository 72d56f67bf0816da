"""Run folders for the tests of export, written without training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export_runs import CONFIG, CREATED, ENVIRONMENT, metrics, result, snapshot, step

from acenode.files import write_json
from acenode.runs.store import Run
from acenode.runs.writer import RunWriter

Make = Callable[..., Run]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return a function that writes a run with the given parts."""

    def made(name: str = "run", *, config: dict[str, Any] | None = None, status: dict[str, Any] | None = None,
             records: list[dict[str, Any]] | None = None, outcome: dict[str, Any] | None = None,
             snapshots: dict[int, dict[str, np.ndarray]] | None = None, **extra: Any) -> Run:
        run = Run(tmp_path / name)
        run.path.mkdir()
        write_json(run.path / "config.json", {"format": 1, "id": name, "created": CREATED, "params": 1234,
                                              "config": CONFIG | (config or {}), "environment": ENVIRONMENT, **extra})
        write_json(run.path / "status.json", {"state": "finished", "error": None, "seconds": 2.0, "heartbeat": 0.0,
                                              "process": {"pid": 1}, **(status or {})})
        recorder = RunWriter(run)
        if records:
            recorder.append(records)
        for number, arrays in (snapshots or {}).items():
            recorder.snapshot(f"epoch-{number:05d}", arrays)
        if outcome is not None:
            write_json(run.path / "result.json", outcome)
        return run

    return made


@pytest.fixture
def ace(make: Make) -> Run:
    """Return a finished ACE run."""
    return make("ace", records=metrics(), outcome=result(), snapshots={n: snapshot(n) for n in range(3)})


@pytest.fixture
def pairs(make: Make) -> Run:
    """Return a finished run with pairwise attention, which every format can export."""
    return make("pairs", records=metrics(), outcome=result(), snapshots={0: snapshot(kind="pairwise")})


@pytest.fixture
def resnet(make: Make) -> Run:
    """Return a finished run that solves no ODE and has no attention."""
    return make("resnet", config={"method": "resnet", "attention": "none"}, outcome=result(),
                records=metrics(attention=False, solver=False),
                snapshots={n: snapshot(n, kind="none") for n in range(2)})


@pytest.fixture
def running(make: Make) -> Run:
    """Return a run in its first epoch, trained by this process."""
    run = make("running", records=[step(0), step(1)], snapshots={0: snapshot(0)})
    RunWriter(run).status("running", progress=0.2, seconds=0.5)
    return run
