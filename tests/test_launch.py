"""The launcher: queue, threads, stop, resume, delete, and what a dead process leaves."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from quick import QUICK

from acenode import UserError, experiments
from acenode.config import Config
from acenode.launch import Launcher
from acenode.runs import Run, RunStore


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    made = Launcher(RunStore(tmp_path / "runs"), tmp_path / "data")
    yield made
    made.close()


def config(method: str = "odenet", **given: Any) -> Config:
    return experiments.get("mnist").configure(method, **{**QUICK, "device": "cpu", **given})


def forever(**given: Any) -> Config:
    """A run that is not done before it is stopped."""
    return config(epochs=10_000, batch_size=64, **given)


def until_running(launcher: Launcher, run: Run) -> None:
    with launcher.changed:
        assert launcher.changed.wait_for(lambda: run.id in launcher.running, 30)


def test_runs_are_trained_in_order_one_a_device(launcher: Launcher) -> None:
    first = launcher.start(forever())
    until_running(launcher, first)
    second, third = launcher.start(config(seed=1)), launcher.start(config(seed=2))
    assert launcher.queue() == [second.id, third.id]
    assert second.status()["state"] == "queued"
    launcher.move(third, 0)
    assert launcher.queue() == [third.id, second.id]
    launcher.stop(first)
    launcher.stop(first)  # two people press it
    assert launcher.wait(120)
    assert [r.status()["state"] for r in (first, second, third)] == ["stopped", "finished", "finished"]
    assert third.result()["seconds"] > 0  # type: ignore[index]


def test_a_stopped_run_resumes(launcher: Launcher) -> None:
    run = launcher.start(forever())
    until_running(launcher, run)
    launcher.stop(run)
    assert launcher.wait(60)
    before = len(run.metrics()[0])
    launcher.resume(run)
    with pytest.raises(UserError, match="already waiting or running"):
        launcher.resume(run)
    until_running(launcher, run)
    while len(run.metrics()[0]) <= before:
        assert run.id in launcher.active()
    launcher.stop(run)
    assert launcher.wait(60)
    assert run.status()["state"] == "stopped"


def test_a_waiting_run_can_be_stopped_and_deleted(launcher: Launcher) -> None:
    busy = launcher.start(forever())
    until_running(launcher, busy)
    waiting = launcher.start(config())
    with pytest.raises(UserError, match="is running: stop it first"):
        launcher.delete(busy)
    launcher.stop(waiting)
    assert waiting.status()["state"] == "stopped"
    launcher.delete(waiting)
    assert not waiting.path.exists()
    launcher.delete(waiting)  # somebody else was faster
    elsewhere = launcher.store.create(config(), {})
    elsewhere.mark("running")  # as another process would
    with pytest.raises(UserError, match="trained by another process"):
        launcher.delete(elsewhere)
    (elsewhere.path / "status.json").write_text("{")
    launcher.delete(elsewhere)
    assert not elsewhere.path.exists()


def test_more_workers_train_side_by_side(launcher: Launcher) -> None:
    launcher.set_workers("cpu", 2)
    one, two = launcher.start(forever()), launcher.start(forever(seed=1))
    until_running(launcher, one)
    until_running(launcher, two)
    for count, device in ((0, "cpu"), (1, "abacus")):
        with pytest.raises(UserError):
            launcher.set_workers(device, count)


def test_closing_checkpoints_what_runs(tmp_path: Path) -> None:
    launcher = Launcher(RunStore(tmp_path), tmp_path)
    run = launcher.start(forever())
    until_running(launcher, run)
    waiting = launcher.start(config())
    launcher.close()
    assert run.status()["state"] == waiting.status()["state"] == "stopped"
    assert (run.path / "checkpoints" / "last.pt").exists()
    with pytest.raises(UserError, match="closing"):
        launcher.start(config())


def test_failure_ends_one_run_alone(launcher: Launcher) -> None:
    bad = launcher.start(config("ace", max_steps=1, rtol=1e-6, atol=1e-6))
    good = launcher.start(config())
    assert launcher.wait(120)
    assert bad.status()["state"] == "failed"
    assert "step limit" in bad.status()["error"]
    assert good.status()["state"] == "finished"


def test_recovery_marks_the_dead_and_leaves_the_living(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    dead, alive = store.create(config(), {}), store.create(config(), {})
    (tmp_path / "foreign").mkdir()
    for run, started in ((dead, "another boot"), (alive, None)):
        status = json.loads((run.path / "status.json").read_text())
        status["state"] = "running"
        if started:
            status["process"] = {"pid": os.getpid(), "started": started, "host": status["process"]["host"]}
        (run.path / "status.json").write_text(json.dumps(status))
    launcher = Launcher(store, tmp_path)
    try:
        assert [r.id for r in launcher.recover()] == [dead.id]
        assert dead.stored_state() == "interrupted"
        assert alive.stored_state() == "running"
        assert launcher.recover() == []
    finally:
        launcher.close()
