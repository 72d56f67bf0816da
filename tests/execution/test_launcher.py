"""The launcher: queue, threads, stop, resume, delete, and runs that a dead process left."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from short_runs import config, forever

from acenode import SolveError, UserError, experiments
from acenode.execution.launcher import Job, Launcher, seconds_until_start
from acenode.experiments.image_task import ImageTask
from acenode.runs.process import _started, identity
from acenode.runs.store import Run, RunStore
from acenode.training.task import Loss


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    made = Launcher(RunStore(tmp_path / "runs"), tmp_path / "data")
    yield made
    made.close()


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


def test_a_run_whose_last_state_could_not_be_written_can_be_resumed(launcher: Launcher,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full when `stopped` is written, at the end of training and in the queue."""
    run = launcher.start(forever())
    until_running(launcher, run)
    waiting = launcher.start(config())

    def full(*given: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    while run.status()["state"] != "running":
        assert run.id in launcher.running
    for place in ("writer.write_json", "store.write_json", "writer.Reserve.use"):
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

    def press(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(25):
            run = rng.choice(made)
            action = rng.choice((launcher.stop, launcher.resume, launcher.resume,
                                 launcher.delete if run is made[2] else launcher.stop, lambda r: launcher.move(r, 0)))
            with contextlib.suppress(UserError):
                action(run)
                queue = launcher.queue()
                assert len(set(queue)) == len(queue), "a run is queued twice"

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(press, range(6)))
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


def test_concurrent_resumes_queue_a_run_once(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = launcher.start(forever())
    until_running(launcher, busy)
    run = launcher.start(config())
    launcher.stop(run)
    inside, whole = threading.Barrier(2), Run.status

    def slow(self: Run) -> dict[str, Any]:
        status = whole(self)
        if self.id == run.id and threading.current_thread().name.startswith("resumer"):
            with contextlib.suppress(threading.BrokenBarrierError):
                inside.wait(0.3)  # both read the state before either continues, unless a lock prevents it
        return status

    monkeypatch.setattr(Run, "status", slow)
    with ThreadPoolExecutor(2, "resumer") as pool:
        (refused,) = filter(None, [one.exception() for one in [pool.submit(launcher.resume, run) for _ in range(2)]])
    assert launcher.queue() == [run.id]
    assert "already queued" in str(refused)


# When a queued run starts, on made-up queues --------------------------------------------------------------------------


CONFIG = experiments.get("mnist").configure("ace")


def job(run: str, *devices: str, slot: str = "", running: bool = False) -> Job:
    return Job(run, CONFIG, devices or ("cpu",), slot or run, running)


ONE, QUEUE = {"cpu": 1}, [job("a", running=True), job("b"), job("c"), job("d")]
TWO_RUN = [job("a", running=True), job("b", running=True), job("c"), job("d")]
SEEDS = [job("a", slot="x", running=True), job("b", slot="x", running=True), job("c", slot="y"), job("d", slot="y"),
         job("e")]
DEVICES = [job("a", "cpu", running=True), job("b", "cuda:0", running=True), job("c", "cpu"),
           job("d", "cuda:0", "cuda:1"), job("e", "cuda:0", "cuda:1")]


@pytest.mark.parametrize(("jobs", "workers", "seconds", "starts"), [
    (QUEUE, ONE, (10, 20, 30, 5), [10, 30, 60]), (QUEUE[1:], ONE, (20, 30, 5), [0, 20, 50]),
    (TWO_RUN, {"cpu": 2}, (10, 100, 20, 1), [10, 30]), (TWO_RUN, {"cpu": 3}, (10, 100, 20, 1), [0, 10]),
    (TWO_RUN, ONE, (10, 100, 20, 1), [10, 30]),  # one worker was taken away meanwhile
    (SEEDS, ONE, (10, 12, 20, 20, 1), [12, 12, 32]),  # trained as one computation, they take one worker
    (DEVICES, {"cpu": 1, "cuda:0": 1, "cuda:1": 1}, (100, 10, 1, 5, 5), [100, 0, 5]),
    (QUEUE[:3], ONE, (None, 1, 1), [None, None]), (QUEUE[:3], ONE, (10, None, 1), [10, None]),
    (QUEUE[:3], {"cpu": 2}, (None, 3, 1), [0, 3])])  # the other worker is free
def test_when_queued_runs_start(jobs: list[Job], workers: dict[str, int], seconds: tuple[float | None, ...],
                                starts: list[float | None]) -> None:
    known = {one.run: time for one, time in zip(jobs, seconds, strict=True)}
    assert [seconds_until_start(one.run, jobs, workers, lambda each: known[each.run]) for one in jobs
            if not one.running] == starts
    assert seconds_until_start("z", jobs, workers, lambda _: 1.0) is None
