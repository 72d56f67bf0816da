"""Heartbeats: a run on another machine is alive while a reader sees its heartbeat change, whatever the clocks say."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from quick_settings import QUICK

from acenode import experiments
from acenode.execution.execute import execute
from acenode.execution.launcher import Launcher
from acenode.experiments.image_task import ImageTask
from acenode.runs import heartbeat, process
from acenode.runs.catalogue import Catalogue
from acenode.runs.heartbeat import SILENT_SECONDS, UNSEEN_SECONDS, HeartbeatWatch
from acenode.runs.process import identity
from acenode.runs.store import Run, RunStore
from acenode.runs.writer import RunWriter

ELSEWHERE = {"pid": 4, "started": "another boot/1", "host": "another machine"}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The monotonic clock of a reader that has seen nothing yet."""
    made = Clock()
    monkeypatch.setattr(process, "_WATCH", HeartbeatWatch(made))
    return made


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return RunStore(tmp_path / "runs").create(experiments.get("mnist").configure("resnet", **QUICK), {})


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.005)


def stored(run: Run) -> dict[str, Any]:
    return json.loads((run.path / "status.json").read_text())


def test_a_heartbeat_is_alive_for_a_minute_after_the_reader_saw_it_change() -> None:
    clock = Clock()
    watch, beat = HeartbeatWatch(clock), time.time()
    assert watch.alive("run", beat)
    clock.now += SILENT_SECONDS - 1
    assert watch.alive("run", beat)
    clock.now += 2
    assert not watch.alive("run", beat)
    assert watch.alive("run", beat - 7200)  # its clock was set back
    clock.now += SILENT_SECONDS + 1
    assert not watch.alive("run", beat - 7200)
    assert watch.alive("run", beat + 7200)  # forward: no reason to be alive for two hours
    clock.now += SILENT_SECONDS + 1
    assert not watch.alive("run", beat + 7200)


def test_an_old_heartbeat_is_dead_until_it_is_seen_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, beat = HeartbeatWatch(), time.time() - UNSEEN_SECONDS - 1
    assert not watch.alive("run", beat)
    assert not watch.alive("run", beat)
    assert watch.alive("run", beat + 1)
    assert not watch.alive("other", time.time(), trust_clock=False)
    monkeypatch.setattr(heartbeat, "REMEMBERED", 3)
    for i in range(9):
        watch.alive(str(i), beat)
    assert len(watch._seen) == 3


def test_a_run_of_another_machine_is_judged_by_its_heartbeat(run: Run, clock: Clock,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = Catalogue(RunStore(run.path.parent))

    def state() -> str:
        found = run.status()["state"]
        assert [e.state for e in catalogue.entries()] == [found]
        return found

    beat = time.time()
    run.set_state("running", process=ELSEWHERE, heartbeat=beat)
    assert state() == "running"
    monkeypatch.setattr(time, "time", lambda: beat + 5000)  # the reader's clock is set
    assert state() == "running"
    clock.now += SILENT_SECONDS + 1
    assert state() == "interrupted"
    run.set_state("running", process=ELSEWHERE, heartbeat=beat - 9000)
    assert state() == "running"


def test_containers_that_share_a_name_do_not_share_process_numbers(run: Run, clock: Clock) -> None:
    run.set_state("running", process=identity() | {"pid": 2**22 + 1, "pid_namespace": "pid:[1]"})
    assert run.status()["state"] == "running"
    clock.now += SILENT_SECONDS + 1
    assert run.status()["state"] == "interrupted"


def test_a_machine_of_the_same_name_is_alive_once_its_heartbeat_changes(run: Run, clock: Clock) -> None:
    other = identity() | {"started": "another boot/1"}
    run.set_state("running", process=other, heartbeat=time.time())
    assert run.status()["state"] == "interrupted"  # as after a reboot
    run.set_state("running", process=other, heartbeat=time.time() + 1)
    assert run.status()["state"] == "running"


def test_a_run_written_before_there_were_namespaces_is_read_as_before(run: Run) -> None:
    here = {k: v for k, v in identity().items() if k != "pid_namespace"}
    run.set_state("running", process=here, heartbeat=0.0)
    assert run.status()["state"] == "running"
    run.set_state("running", process=here | {"pid": 2**22 + 1})
    assert run.status()["state"] == "interrupted"


def test_the_launcher_renews_queued_runs_without_writing_to_them(run: Run, clock: Clock, tmp_path: Path,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acenode.execution.launcher.RENEW_SECONDS", 0.01)
    launcher = Launcher(RunStore(tmp_path / "runs"), tmp_path)
    launcher.limits["cpu"] = 0
    try:
        run.set_state("stopped")
        launcher.resume(run)
        content, catalogue = stored(run), Catalogue(launcher.store)
        run.set_state("queued", process=ELSEWHERE, heartbeat=0.0)  # as the folder looks from another machine
        for _ in range(2):
            os.utime(run.path, (1.0, 1.0))
            until(lambda: run.path.stat().st_mtime > 1.0)
            assert run.status()["state"] == catalogue.entries()[0].state == "queued"
            clock.now += SILENT_SECONDS - 1
        run.set_state("queued", **{k: content[k] for k in ("process", "heartbeat")})
    finally:
        launcher.close()
    run.set_state("queued", process=ELSEWHERE, heartbeat=0.0)
    os.utime(run.path, (1.0, 1.0))
    catalogue.entries()
    clock.now += SILENT_SECONDS + 1
    assert run.status()["state"] == catalogue.entries()[0].state == "interrupted"
    os.utime(run.path)  # a machine that slept
    assert catalogue.entries()[0].state == run.status()["state"] == "queued"


@pytest.fixture
def quick_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "RENEW_SECONDS", 0.01)
    monkeypatch.setattr("acenode.runs.writer.HEARTBEAT_SECONDS", 0.005)


@pytest.fixture
def writer(run: Run, quick_heartbeats: None) -> Iterator[RunWriter]:
    made = RunWriter(run)
    made.acquire()
    yield made
    made.release()


def test_a_silent_writer_renews_the_heartbeat_and_nothing_else(writer: RunWriter, run: Run) -> None:
    time.sleep(0.05)
    assert stored(run)["state"] == "queued"  # nothing to renew yet
    writer.status("running", progress=0.25)
    before = stored(run)
    until(lambda: stored(run)["heartbeat"] > before["heartbeat"])
    assert stored(run) == before | {"heartbeat": stored(run)["heartbeat"]}
    writer.end("finished", None)
    last = stored(run)
    time.sleep(0.05)
    assert stored(run) == last
    assert last["state"] == "finished"
    writer.release()
    assert not [t for t in threading.enumerate() if t.name == f"acenode-heartbeat-{run.id}"]


def test_heartbeats_do_not_bring_a_deleted_run_back(writer: RunWriter, run: Run) -> None:
    writer.status("running")
    with writer._status_lock:
        run.delete()
    time.sleep(0.05)
    assert not run.path.exists()


@pytest.mark.usefixtures("quick_heartbeats")
def test_loading_and_testing_renew_the_heartbeat(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renewed = []

    def silent(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            before = stored(run)["heartbeat"]
            until(lambda: stored(run)["heartbeat"] > before)
            renewed.append(stored(run)["state"])
            return real(*given, **named)

        return call

    monkeypatch.setattr(ImageTask, "__init__", silent(ImageTask.__init__))
    monkeypatch.setattr(ImageTask, "evaluate", silent(ImageTask.evaluate))
    assert execute(run, tmp_path).state == "finished"
    assert renewed == ["running"] * 4  # the data, a validation, and the tests of the last and the best parameters
    assert run.status()["state"] == "finished"
