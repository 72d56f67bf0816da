"""The launcher: queue, threads, stop, resume, delete, and runs that a dead process left."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from quick_settings import QUICK

from acenode import SolveError, UserError, experiments
from acenode.config import Config
from acenode.execution.launcher import Launcher
from acenode.experiments.image_task import ImageTask
from acenode.runs.process import _started, identity
from acenode.runs.store import Run, RunStore
from acenode.training.task import Loss


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    made = Launcher(RunStore(tmp_path / "runs"), tmp_path / "data")
    yield made
    made.close()


def config(method: str = "odenet", **given: Any) -> Config:
    settings = {**QUICK, "device": "cpu", "solver": "rk4", "step_size": 0.5, **given}
    return experiments.get("mnist").configure(method, **settings)


def forever(**given: Any) -> Config:
    """A run that lasts until it is stopped."""
    return config(epochs=10_000, batch_size=64, **given)


def elsewhere(run: Run, state: str) -> Run:
    """Mark the run as if another living process, the parent of this one, had it."""
    run.set_state(state, process=identity() | {"pid": os.getppid(), "started": _started(os.getppid())})
    return run


def until_running(launcher: Launcher, run: Run) -> None:
    with launcher.changed:
        assert launcher.changed.wait_for(lambda: run.id in launcher.running, 30)


def test_runs_are_trained_in_order_one_per_device(launcher: Launcher) -> None:
    first = launcher.start(forever())
    until_running(launcher, first)
    second, third = launcher.start(config(seed=1)), launcher.start(config(seed=2))
    assert launcher.queue() == [second.id, third.id]
    assert second.status()["state"] == "queued"
    launcher.move(third, 0)
    assert launcher.queue() == [third.id, second.id]
    assert [launcher.position(r.id) for r in (third, second, first)] == [0, 1, None]
    launcher.stop(first)
    launcher.stop(first)  # twice, as two users may
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
    with pytest.raises(UserError, match="already queued or running"):
        launcher.resume(run)
    until_running(launcher, run)
    while len(run.metrics()[0]) <= before:
        assert run.id in launcher.active()
    launcher.stop(run)
    assert launcher.wait(60)
    assert run.status()["state"] == "stopped"


def test_a_queued_run_can_be_stopped_and_deleted(launcher: Launcher) -> None:
    busy = launcher.start(forever())
    until_running(launcher, busy)
    waiting = launcher.start(config())
    with pytest.raises(UserError, match="is running: stop it first"):
        launcher.delete(busy)
    launcher.stop(waiting)
    assert waiting.status()["state"] == "stopped"
    launcher.delete(waiting)
    assert not waiting.path.exists()
    launcher.delete(waiting)  # already deleted
    other = elsewhere(launcher.store.create(config(), {}), "running")
    with pytest.raises(UserError, match="running in another process"):
        launcher.delete(other)
    (other.path / "status.json").write_text("{")
    launcher.delete(other)
    assert not other.path.exists()


def test_several_workers_train_at_the_same_time(launcher: Launcher) -> None:
    launcher.set_workers("cpu", 2)
    one, two = launcher.start(forever()), launcher.start(forever(seed=1))
    until_running(launcher, one)
    until_running(launcher, two)
    for count, device in ((0, "cpu"), (1, "abacus")):
        with pytest.raises(UserError):
            launcher.set_workers(device, count)


def test_closing_writes_checkpoints_of_running_runs(tmp_path: Path) -> None:
    launcher = Launcher(RunStore(tmp_path), tmp_path)
    run = launcher.start(forever())
    until_running(launcher, run)
    waiting = launcher.start(config())
    launcher.close()
    assert run.status()["state"] == waiting.status()["state"] == "stopped"
    assert (run.path / "checkpoints" / "last.pt").exists()
    before = {r.id for r in launcher.store}
    for ask in (lambda: launcher.start(config()), lambda: launcher.resume(waiting)):
        with pytest.raises(UserError, match="closing"):
            ask()
    assert {r.id for r in launcher.store} == before  # no run was created
    assert waiting.status()["state"] == "stopped"
    again = Launcher(launcher.store, tmp_path)
    try:
        again.resume(waiting)
        assert again.wait(60)
        assert waiting.status()["state"] == "finished"
    finally:
        again.close()


def test_a_damaged_run_does_not_prevent_closing(tmp_path: Path) -> None:
    launcher = Launcher(RunStore(tmp_path), tmp_path)
    run = launcher.start(forever())
    until_running(launcher, run)
    torn, waiting = launcher.start(config()), launcher.start(config())
    (torn.path / "status.json").write_text("{")
    launcher.close()
    assert run.status()["state"] == waiting.status()["state"] == "stopped"


def test_an_error_fails_one_run_only(launcher: Launcher) -> None:
    stuck = {**QUICK, "device": "cpu", "max_steps": 1, "rtol": 1e-6, "atol": 1e-6}
    bad = launcher.start(experiments.get("mnist").configure("ace", **stuck))
    good = launcher.start(config())
    assert launcher.wait(120)
    assert bad.status()["state"] == "failed"
    assert "step limit" in bad.status()["error"]
    assert good.status()["state"] == "finished"


def test_a_run_that_cannot_start_fails(launcher: Launcher) -> None:
    run = launcher.store.create(config(), {})
    run.set_state("stopped")
    (run.path / "lock").mkdir()  # so the run cannot be locked
    launcher.resume(run)
    assert launcher.wait(60)
    status = run.status()
    assert status["state"] == "failed"
    assert "lock" in status["error"]
    (run.path / "lock").rmdir()
    launcher.resume(run)
    assert launcher.wait(60)
    assert run.status()["state"] == "finished"


def test_recovery_marks_runs_of_dead_processes_only(tmp_path: Path) -> None:
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


def test_a_failed_run_resumes_from_its_checkpoint_and_retries_from_the_beginning(
        launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, calls = ImageTask.loss, []

    def breaks(self: ImageTask, batch: tuple, *, detach_attention: bool) -> Loss:
        calls.append(1)
        if len(calls) == 4:  # in the second epoch of two iterations each
            raise SolveError("underflow in dt", 0.5, 1e-9, "loosen rtol and atol")
        return whole(self, batch, detach_attention=detach_attention)

    monkeypatch.setattr(ImageTask, "loss", breaks)
    run = launcher.start(config(epochs=2))
    assert launcher.wait(60)
    assert run.status()["state"] == "failed"
    launcher.resume(run)
    assert launcher.wait(60)
    assert run.status()["state"] == "finished"
    assert run.status()["error"] is None
    assert "resumed on cpu at epoch 1" in (run.path / "log.txt").read_text()
    assert [r["step"] for r in run.metrics()[0] if r["kind"] == "step"] == [0, 1, 2, 3]
    again = launcher.retry(run)
    assert launcher.wait(60)
    assert again.id != run.id
    assert again.config() == run.config()
    assert again.result()["test"] == run.result()["test"]  # type: ignore[index]


def test_a_refused_resume_changes_nothing(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    queued_elsewhere = elsewhere(launcher.store.create(config(), {}), "queued")
    with pytest.raises(UserError, match="is queued: there is nothing to resume"):
        launcher.resume(queued_elsewhere)
    needs_gpu = launcher.store.create(config(device="cuda"), {})
    needs_gpu.set_state("stopped")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError, match="no CUDA device"):
        launcher.resume(needs_gpu)
    assert needs_gpu.status()["state"] == "stopped"  # and not queued
    assert launcher.queue() == []


def test_a_run_whose_last_state_could_not_be_written_can_be_resumed(launcher: Launcher,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full when `stopped` is written, at the end of training and in the queue."""
    run = launcher.start(forever())
    until_running(launcher, run)
    waiting = launcher.start(config())

    def full(*given: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    while run.status()["state"] != "running":
        assert run.id in launcher.active()
    for place in ("writer.write_json", "store.write_json", "reserve.Reserve.use"):
        monkeypatch.setattr(f"acenode.runs.{place}", full)
    with pytest.raises(OSError, match="No space"):
        launcher.stop(waiting)
    launcher.stop(run)
    assert launcher.wait(60)
    monkeypatch.undo()
    assert (run.status()["state"], waiting.status()["state"]) == ("running", "queued")
    with FileLock(run.path / "lock"), pytest.raises(UserError, match="is running: there is nothing to resume"):
        launcher.resume(run)  # another thread trains it
    launcher.stop(run)
    assert run.stored_state() == "interrupted"
    assert "its last state could not be written" in run.status()["error"]
    run.set_state("running")
    launcher.resume(run)
    until_running(launcher, run)
    launcher.delete(waiting)
    launcher.stop(run)
    assert launcher.wait(60)
    assert run.status()["state"] == "stopped"
    for state in ("running", "queued"):
        run.set_state(state)
        launcher.resume(run)
        launcher.stop(run)
        assert launcher.wait(60)
    run.set_state("running")
    launcher.delete(run)
    assert list(launcher.store) == []


@pytest.mark.parametrize("state", ["running", "queued"])
def test_a_run_of_another_process_is_asked_to_stop(state: str, launcher: Launcher) -> None:
    run = elsewhere(launcher.store.create(config(), {}), state)
    with pytest.raises(UserError, match=f"is {state}: there is nothing to resume"):
        launcher.resume(run)
    launcher.stop(run)
    assert (run.path / "stop").exists()
    assert run.stored_state() == state


def test_threads_may_stop_resume_and_delete_the_same_runs(launcher: Launcher) -> None:
    """Six threads send random requests for three runs; each raises UserError or leaves a valid state."""
    made = [launcher.start(forever(seed=i)) for i in range(3)]
    errors: list[BaseException] = []

    def press(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(25):
            run = rng.choice(made)
            action = rng.choice((launcher.stop, launcher.resume, launcher.resume,
                                 launcher.delete if run is made[2] else launcher.stop, lambda r: launcher.move(r, 0)))
            try:
                action(run)
                queue = launcher.queue()
                assert len(set(queue)) == len(queue), "a run is queued twice"
            except UserError:
                pass
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=press, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for run in made:
        with contextlib.suppress(UserError):  # the deleted one
            launcher.stop(run)
    assert launcher.wait(60)
    for run in made[:2]:
        assert run.status()["state"] == "stopped"
        launcher.resume(run)
        until_running(launcher, run)  # it can still be trained
        launcher.stop(run)
        assert launcher.wait(60)
        launcher.delete(run)
    with contextlib.suppress(UserError):
        launcher.delete(made[2])
    assert list(launcher.store) == []


def test_concurrent_resumes_queue_a_run_once(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = launcher.start(forever())
    until_running(launcher, busy)
    run = launcher.start(config())
    launcher.stop(run)
    inside, refused = threading.Barrier(2), []
    whole = Run.status

    def slow(self: Run) -> dict[str, Any]:
        status = whole(self)
        if self.id == run.id and threading.current_thread().name.startswith("resumer"):
            with contextlib.suppress(threading.BrokenBarrierError):
                inside.wait(0.3)  # both read the state before either continues, unless a lock prevents it
        return status

    def resume() -> None:
        try:
            launcher.resume(run)
        except UserError as error:
            refused.append(str(error))

    monkeypatch.setattr(Run, "status", slow)
    threads = [threading.Thread(target=resume, name=f"resumer-{i}") for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert launcher.queue() == [run.id]
    assert len(refused) == 1
    assert "already queued" in refused[0]


# What the devices do -------------------------------------------------------------------------------------------------


def test_device_states_count_running_runs(launcher: Launcher) -> None:
    launcher.set_workers("cpu", 2)
    idle = launcher.device_states()[0]
    assert (idle.name, idle.workers, idle.running) == ("cpu", 2, 0)
    assert idle.title.startswith("CPU, ")
    run = launcher.start(forever())
    until_running(launcher, run)
    cpu = launcher.device_states()[0]
    assert cpu.running == 1
    if Path("/proc/meminfo").exists():
        assert cpu.memory_used is not None
        assert cpu.memory_total is not None
        assert 0 < cpu.memory_used < cpu.memory_total
    assert [d.name for d in launcher.device_states()] == list(launcher.limits)
