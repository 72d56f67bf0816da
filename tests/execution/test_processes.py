"""Runs in worker processes: same numbers, stop, kill, failure, the end of the app, and how long processes are kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from short_runs import config, forever, numbers, until

from acenode.execution import processes
from acenode.execution.launcher import Launcher
from acenode.runs.process import alive
from acenode.runs.store import Run, RunStore


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """One launcher for most tests, since a process takes seconds to start."""
    root = tmp_path_factory.mktemp("processes")
    made = Launcher(RunStore(root / "runs"), root / "data", {"cpu": "process"})
    yield made
    made.close()


@pytest.fixture
def launcher(shared: Launcher) -> Iterator[Launcher]:
    yield shared
    for run in [shared.store.open(name) for name in (*shared.queue(), *shared.running)]:
        shared.stop(run)
    assert shared.wait(60)
    shared.set_workers("cpu", 1)


def until_training(run: Run) -> int:
    """Wait until an iteration was reported; return the number of the process."""
    until(lambda: run.status()["state"] == "running" and len(run.metrics()[0]) > 0)
    return run.status()["process"]["pid"]


def exists(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_the_numbers_are_those_of_a_thread_alone_and_beside_others(launcher: Launcher, tmp_path: Path) -> None:
    thread = Launcher(launcher.store, tmp_path)
    try:
        alone = thread.start(config())
        assert thread.wait(60)
        assert alone.status()["process"]["pid"] == os.getpid()  # one at a time: a thread
    finally:
        thread.close()
    launcher.set_workers("cpu", 2)
    other, beside = launcher.start(forever(seed=1)), launcher.start(config())
    until(lambda: beside.status()["state"] == "finished")
    pids = {r.status()["process"]["pid"] for r in (other, beside)}
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert numbers(beside) == numbers(alone)
    assert beside.result()["test"] == alone.result()["test"]  # type: ignore[index]
    assert beside.description()["environment"]["threads"] == torch.get_num_threads()


def test_a_run_stops_resumes_and_is_trained_by_the_same_process(launcher: Launcher) -> None:
    run, waiting = launcher.start(forever()), launcher.start(config(seed=1))
    pid = until_training(run)
    assert alive(run.status()["process"], 0.0, run.path)
    assert run.locked
    assert launcher.queue() == [waiting.id]
    launcher.stop(run)
    launcher.stop(run)
    assert launcher.wait(60)
    assert (run.status()["state"], waiting.status()["state"]) == ("stopped", "finished")
    assert waiting.status()["process"]["pid"] == pid
    assert not run.locked
    before = len(run.metrics()[0])
    launcher.resume(run)
    until(lambda: len(run.metrics()[0]) > before)
    assert run.status()["process"]["pid"] == pid
    assert "resumed on cpu" in (run.path / "log.txt").read_text()
    launcher.stop(run)
    assert launcher.wait(60)
    launcher.delete(run)
    assert not run.path.exists()


def test_a_killed_process_interrupts_its_run_only(launcher: Launcher) -> None:
    launcher.set_workers("cpu", 2)
    killed, other = launcher.start(forever()), launcher.start(forever(seed=1))
    pid = until_training(killed)
    until_training(other)
    waiting = launcher.start(config(seed=2))
    os.kill(pid, signal.SIGKILL)
    until(lambda: waiting.status()["state"] == "finished")  # the launcher goes on
    assert killed.stored_state() == "interrupted"
    assert "was killed by SIGKILL" in killed.status()["error"]
    assert other.status()["state"] == "running"
    launcher.resume(killed)
    assert until_training(killed) != pid
    assert killed.status()["error"] is None


def test_closing_waits_for_the_checkpoints_and_ends_the_processes(shared: Launcher) -> None:
    """The last test of this launcher."""
    run = shared.start(forever())
    pid = until_training(run)
    shared.close()
    assert run.status()["state"] == "stopped"
    assert (run.path / "checkpoints" / "last.pt").exists()
    assert not exists(pid)


def test_a_run_stops_with_a_checkpoint_when_the_app_is_killed(tmp_path: Path) -> None:
    code = ("import sys, time; from pathlib import Path\n"
            "from acenode.execution.launcher import Launcher; from acenode.runs.store import RunStore\n"
            "launcher = Launcher(RunStore(Path(sys.argv[1])), Path(sys.argv[1]), {'cpu': 'process'})\n"
            "launcher.resume(launcher.store.open('last'))\n"
            "time.sleep(100)\n")
    run = RunStore(tmp_path / "runs").create(forever(), {})
    run.set_state("stopped")
    app = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "runs")])
    try:
        pid = until_training(run)
    finally:
        app.kill()
        app.wait()
    until(lambda: not exists(pid))
    assert run.stored_state() == "stopped"
    assert (run.path / "checkpoints" / "last.pt").exists()


@pytest.mark.parametrize(("program", "words"), [("/bin/false", "ended with exit code 1"),
                                                ("/no/such/program", "no process could be started")])
def test_a_process_that_does_not_start_fails_the_run(program: str, words: str, tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes.sys, "executable", program)
    launcher = Launcher(RunStore(tmp_path / "runs"), tmp_path, {"cpu": "process"})
    run = launcher.start(config())
    assert launcher.wait(10)
    launcher.close()
    assert run.status()["state"] == "failed"
    assert words in run.status()["error"]


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace workers by a program that starts at once and ends each run when it is asked to stop."""
    program = tmp_path / "worker"
    program.write_text("#!/bin/sh\nwhile read stop && read stop; do echo \"$stop\" | sed s/stop/ended/; done\n")
    program.chmod(0o755)
    monkeypatch.setattr(processes.sys, "executable", str(program))


def begin(pool: processes.ProcessPool, run: Run, device: str = "cpu") -> tuple[threading.Thread, threading.Event]:
    stop = threading.Event()
    thread = threading.Thread(target=pool.train, args=(device, run, run.path, stop))
    thread.start()
    return thread, stop


@pytest.mark.usefixtures("stub")
def test_processes_are_kept_for_a_while_and_never_more_than_were_needed_at_once(tmp_path: Path) -> None:
    pool, run = processes.ProcessPool(), RunStore(tmp_path).create(forever(), {})
    pids = []
    for _ in range(3):
        runs = [begin(pool, run) for _ in range(2)]
        for thread, stop in runs:
            stop.set()
            thread.join(10)
        assert len(pool.idle) <= 2
        pids.append({worker.process.pid for worker in pool.idle})
    assert pids[0] == pids[1] == pids[2]
    thread, stop = begin(pool, run, "cuda")
    stop.set()
    thread.join(10)
    assert [worker.device for worker in pool.idle].count("cuda") == 1  # devices do not share processes
    pool.end_idle(3600.0)
    assert len(pool.idle) == 3
    ended = [worker.process for worker in pool.idle]
    pool.end_idle(0.0)
    assert pool.idle == []
    assert [process.wait(10) for process in ended] == [0, 0, 0]
    pool.end_idle(0.0)
    assert pool.ending == []
