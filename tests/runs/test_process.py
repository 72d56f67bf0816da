"""Heartbeats: a run on another machine is alive while a reader sees its heartbeat change, whatever the clocks say."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from quick_settings import QUICK
from short_runs import until

from acenode import UserError, experiments
from acenode.cli import main
from acenode.execution.execute import create, execute
from acenode.execution.launcher import Launcher
from acenode.experiments.image_task import ImageTask
from acenode.player import data as player_data
from acenode.runs import process
from acenode.runs.catalogue import Catalogue
from acenode.runs.entry import UNREADABLE
from acenode.runs.process import (
    SILENT_SECONDS,
    UNSEEN_SECONDS,
    HeartbeatWatch,
    each_within_limit,
    identity,
    try_lock,
    within_limit,
)
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


def stored(run: Run) -> dict[str, Any]:
    return json.loads((run.path / "status.json").read_text())


def test_an_old_heartbeat_is_dead_until_it_is_seen_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, beat = HeartbeatWatch(), time.time() - UNSEEN_SECONDS - 1
    assert not watch.alive("run", beat)
    assert not watch.alive("run", beat)
    assert watch.alive("run", beat + 1)
    assert not watch.alive("other", time.time(), trust_clock=False)
    monkeypatch.setattr(process, "REMEMBERED", 3)
    for i in range(9):
        watch.alive(str(i), beat)
    assert len(watch._seen) == 3


def test_a_run_of_another_machine_is_alive_for_a_minute_after_the_reader_saw_its_heartbeat_change(
        run: Run, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = Catalogue(RunStore(run.path.parent))

    def state() -> str:
        found = run.status()["state"]
        assert [e.state for e in catalogue.entries()] == [found]
        return found

    beat = time.time()
    for set_by in (0, -9000, 7200):  # the writer's clock was set back, and forward: no reason to be alive for hours
        run.set_state("running", process=ELSEWHERE, heartbeat=beat + set_by)
        assert state() == "running"
        monkeypatch.setattr(time, "time", lambda: beat + 5000)  # the reader's clock is set
        clock.now += SILENT_SECONDS - 1
        assert state() == "running"
        clock.now += 2
        assert state() == "interrupted"
        assert run.stored_state() == "running"


def test_which_processes_are_alive(run: Run, clock: Clock) -> None:
    def state(process: dict[str, Any], heartbeat: float = 0.0) -> str:
        run.set_state("running", process=process, heartbeat=heartbeat)
        return run.status()["state"]

    now, here = time.time(), {k: v for k, v in identity().items() if k != "pid_namespace"}  # as older versions wrote
    reboot = identity() | {"started": "another boot/1"}
    assert state(reboot, now) == "interrupted"
    assert state(reboot, now + 1) == "running"  # another machine of the same name, since its heartbeat changes
    clock.now += SILENT_SECONDS + 1
    assert state(here) == "running"
    for pid in (2**22 + 1, 10**400):  # there is no process of this number
        assert state(here | {"pid": pid}, now + 1) == "interrupted"
        assert "process" in run.status()["error"]
    container = identity() | {"pid": 2**22 + 1, "pid_namespace": "pid:[1]"}  # of the same name, with its own numbers
    assert state(container, now) == "running"
    clock.now += SILENT_SECONDS + 1
    assert state(container, now) == "interrupted"


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
    monkeypatch.setattr("acenode.runs.writer.RENEW_SECONDS", 0.01)
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


# The lock of a run ----------------------------------------------------------------------------------------------------


def test_a_second_lock_is_refused_until_the_first_is_released(tmp_path: Path) -> None:
    folder, path = Run(tmp_path), tmp_path / "lock"
    assert not folder.locked
    assert not path.exists()  # looking does not create it
    lock = try_lock(path)
    assert lock is not None
    assert try_lock(path) is None
    assert folder.locked
    thread = threading.Thread(target=lock.release)  # another thread may release it
    thread.start()
    thread.join(10)
    assert not folder.locked
    assert path.exists()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_an_error(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(UserError, match=r"cannot lock .*lock \(.*\): fix that, or keep runs in another folder with"):
        try_lock(tmp_path / "lock")


# A mount that has stalled ---------------------------------------------------------------------------------------------


@pytest.fixture
def short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LIMIT", 0.2)


class Mount:
    """Blocks every look at the paths of one folder, as a stalled mount does, until it answers again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder: Path | None = None
        self.answers = threading.Event()
        self.blocked: list[str] = []
        for name in ("stat", "lstat", "open", "scandir", "listdir"):
            monkeypatch.setattr(os, name, self._through(getattr(os, name)))

    def _through(self, real: Any) -> Any:
        def call(path: Any = ".", *given: Any, **named: Any) -> Any:
            if self.folder is not None and isinstance(path, str | Path) and Path(path).is_relative_to(self.folder):
                self.blocked.append(threading.current_thread().name)
                assert self.answers.wait(60)
            return real(path, *given, **named)

        return call


@pytest.fixture
def mount(monkeypatch: pytest.MonkeyPatch, short_limit: None) -> Iterator[Mount]:
    made = Mount(monkeypatch)
    yield made
    made.answers.set()


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    made = RunStore(tmp_path / "runs")
    for _ in range(3):
        create(made, experiments.get("mnist").configure("resnet"))
    return made


def test_errors_of_a_read_are_raised_and_nested_reads_need_no_further_thread() -> None:
    with pytest.raises(ZeroDivisionError):
        within_limit("place", lambda: 1 / 0)
    assert "place" not in process._blocked
    assert within_limit("a", lambda: within_limit("b", threading.get_ident) == threading.get_ident())
    assert within_limit("a", threading.get_ident) != threading.get_ident()


@pytest.mark.usefixtures("short_limit")
def test_of_many_places_only_those_that_stall_are_left_out() -> None:
    answers = threading.Event()

    def read(place: str) -> str:
        assert place not in ("2", "5") or answers.wait(60)
        return place

    places = [str(i) for i in range(8)]
    for _ in range(2):
        assert each_within_limit(places, read) == ["0", "1", None, "3", "4", None, "6", "7"]
    answers.set()
    until(lambda: "2" not in process._blocked and "5" not in process._blocked)
    assert each_within_limit(places, read) == places


def test_a_stalled_run_is_one_unreadable_entry(store: RunStore, mount: Mount,
                                               capsys: pytest.CaptureFixture[str]) -> None:
    listed = Catalogue(store)
    before = listed.entries()
    run = before[1].run
    mount.folder = run.path
    for catalogue in (listed, listed, Catalogue(store)):
        found = {e.id: e for e in catalogue.entries()}
        assert found.pop(run.id).state == UNREADABLE
        assert [e.state for e in found.values()] == ["queued", "queued"]
    entry = listed.entry(run.id)
    assert entry is not None
    assert "its disk or network mount does not answer" in (entry.error or "")
    assert main(["list", "--runs", str(store.root)]) == 0
    assert "does not answer" in capsys.readouterr().out
    assert main(["show", run.id, "--runs", str(store.root)]) == 2
    assert "does not answer" in capsys.readouterr().err
    assert "does not answer" in player_data.describe(run)["why"]
    with pytest.raises(UserError, match="does not answer"):
        player_data.epoch_block(run, 0)
    launcher = Launcher(store, store.root)
    with pytest.raises(UserError, match="does not answer"):
        launcher.delete(Run(run.path))
    assert launcher.recover(store) == []
    launcher.close()
    assert len(mount.blocked) <= 2  # nobody waits a second time
    mount.answers.set()
    until(lambda: str(run.path) not in process._blocked)
    assert listed.entries() == before


def test_a_stalled_folder_of_runs_is_not_an_empty_one(store: RunStore, mount: Mount,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    listed = Catalogue(store)
    before = listed.entries()
    mount.folder = store.root
    assert listed.entries() == []
    with pytest.raises(UserError, match="does not answer"):
        store.check_readable()
    assert main(["list", "--runs", str(store.root)]) == 2
    caught = capsys.readouterr()
    assert "does not answer" in caught.err
    assert "no runs" not in caught.out
    mount.answers.set()
    until(lambda: str(store.root) not in process._blocked)
    assert listed.entries() == before

