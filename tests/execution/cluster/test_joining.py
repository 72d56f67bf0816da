"""Clusters that cannot be joined: what is refused before Ray starts, and what ends while Ray still tries.

Nothing here starts Ray: a program that sleeps or fails stands in for the driver process.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ray_runs import config, until

from acenode.cli import main
from acenode.errors import UserError
from acenode.execution.cluster import ray_cluster
from acenode.execution.cluster.ray_cluster import RayCluster
from acenode.execution.cluster.size import ClusterSize
from acenode.execution.execute import create
from acenode.execution.launcher import Launcher
from acenode.runs.store import Run, RunStore

ADDRESS = "10.0.0.5:6379"
PROMPT = 30.0  # seconds, on a busy machine; Ray would try for 180


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Return a function that makes a line of shell the driver process."""
    def replace(line: str) -> None:
        program = tmp_path / "driver"
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
    return replace


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that says what the network answers: an error for names, one for connections."""
    class Connection:
        def close(self) -> None:
            pass

    def answer(*, name: Exception | None = None, connection: Exception | None = None) -> None:
        def resolve(*args: Any, **more: Any) -> list[Any]:
            if name is not None:
                raise name
            return []

        def connect(*args: Any, **more: Any) -> Connection:
            if connection is not None:
                raise connection
            return Connection()

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        monkeypatch.setattr(socket, "create_connection", connect)
    return answer


REFUSED = ConnectionRefusedError(111, "Connection refused")
UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    return Launcher(RunStore(tmp_path / "runs"), tmp_path / "data", cluster=RayCluster(ADDRESS))


def test_a_run_fails_with_the_reason_where_nothing_answers(launcher: Launcher, driver: Callable[[str], None],
                                                           network: Callable[..., None]) -> None:
    driver("exec sleep 600")
    network(connection=REFUSED)
    runs = [launcher.start(config(seed=seed)) for seed in range(2)]
    assert launcher.wait(PROMPT)
    for run in runs:
        status = run.status()
        assert status["state"] == "failed"
        assert status["error"].startswith(f"there is no Ray cluster at {ADDRESS} (Connection refused); start it with")
        assert "\n" not in status["error"]
    launcher.close()


def test_a_launcher_closes_while_a_run_waits_to_join(launcher: Launcher, driver: Callable[[str], None],
                                                     network: Callable[..., None]) -> None:
    driver("exec sleep 600")
    network()
    run = launcher.start(config())
    assert launcher.cluster is not None
    until(lambda: launcher.cluster._driver is not None)  # type: ignore[union-attr]
    process = launcher.cluster._driver.process  # type: ignore[union-attr]
    closing = threading.Thread(target=launcher.close, daemon=True)
    closing.start()
    closing.join(PROMPT)
    assert not closing.is_alive()
    assert process.poll() is not None
    assert run.status()["state"] == "stopped"


def test_a_run_that_waits_to_join_is_stopped_and_others_wait_on(driver: Callable[[str], None], tmp_path: Path,
                                                                network: Callable[..., None]) -> None:
    driver("exec sleep 600")
    network()
    cluster, store, stops = RayCluster(ADDRESS), RunStore(tmp_path / "runs"), [threading.Event(), threading.Event()]
    runs = [create(store, config(seed=seed), elsewhere=True) for seed in range(2)]
    threads = [threading.Thread(target=cluster.train, args=(run, tmp_path, stop), daemon=True)
               for run, stop in zip(runs, stops, strict=True)]
    for thread in threads:
        thread.start()
    until(lambda: cluster._driver is not None)
    stops[0].set()
    threads[0].join(PROMPT)
    assert [run.status()["state"] for run in runs] == ["stopped", "queued"]
    stops[1].set()
    cluster.close()
    threads[1].join(PROMPT)
    assert runs[1].status()["state"] == "stopped"


def test_a_head_that_never_answers_is_one_line_with_what_to_do(driver: Callable[[str], None],
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "START_SECONDS", 0.2)
    driver("exec sleep 600")
    with pytest.raises(UserError) as caught:
        RayCluster(ADDRESS).start()
    assert "no connection within 0 s" in str(caught.value)
    assert "start it with `ray start --head`" in str(caught.value)
    assert "docs/cluster.md" in str(caught.value)


def test_a_cluster_with_another_token_is_one_line_with_what_to_do(driver: Callable[[str], None]) -> None:
    driver("""echo 'Unauthenticated: RPC error: InvalidAuthToken: Authentication token is missing' >&2
echo '{"error": "Failed to connect to Ray cluster"}'
exit 1""")
    with pytest.raises(UserError) as caught:
        RayCluster(ADDRESS).start()
    assert "the token is missing or incorrect" in str(caught.value)
    assert "both sides need the same RAY_AUTH_MODE and token: see docs/cluster.md" in str(caught.value)


def test_a_driver_ends_with_its_command_while_it_joins() -> None:
    pytest.importorskip("ray")
    program = """
import time
from acenode.execution.cluster import driver
driver._connect = lambda options, place: (print("joins", flush=True), time.sleep(600))
driver._take_output = lambda: open("/dev/null", "wb")
driver.main()
"""
    words = [sys.executable, "-c", program, "--cpus=1", "--threads=1", "--gpu=1", f"--address={ADDRESS}"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"joins\n"
            process.stdin.close()
            assert process.wait(PROMPT) == 1
        finally:
            process.kill()


def _no_driver(*args: Any, **more: Any) -> None:
    raise AssertionError("Ray is started")


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "_DriverProcess", _no_driver)


@pytest.mark.usefixtures("no_ray")
@pytest.mark.parametrize("words", [["train", "mnist", "--method", "ace"], ["app", "--headless"]])
def test_a_name_that_is_not_known_is_refused_at_once(words: list[str], network: Callable[..., None], tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "execv", _no_driver)
    network(name=UNKNOWN)
    assert main([*words, "--on", "ray:not-a-host:6379", "--runs", str(tmp_path / "runs")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("acenode: there is no machine not-a-host (Name or service not known)")


@pytest.mark.usefixtures("no_ray")
def test_an_invalid_port_is_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "mnist", "--method", "ace", "--on", "ray:10.0.0.5:99999", "--runs", str(tmp_path)]) == 2
    assert capsys.readouterr().err == ("acenode: 10.0.0.5:99999 has no port from 1 to 65535: --on takes "
                                       "ray:IP:PORT\n")


def test_the_app_refuses_an_address_where_nothing_answers(network: Callable[..., None], tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda program, words: started.append(words))
    words = ["app", "--headless", "--on", f"ray:{ADDRESS}", "--runs", str(tmp_path / "runs")]
    network(connection=REFUSED)
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"acenode: there is no Ray cluster at {ADDRESS} (Connection refused)")
    assert started == []
    network()
    main(words)
    assert f"--on=ray:{ADDRESS}" in started[0]


def test_a_command_says_how_long_it_waits_for_a_head(network: Callable[..., None], tmp_path: Path,
                                                     driver: Callable[[str], None],
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    network(connection=REFUSED)  # the head may be starting
    driver("exit 1")
    assert main(["train", "mnist", "--method", "ace", "--on", f"ray:{ADDRESS}", "--runs", str(tmp_path / "runs")]) == 2
    first, last = capsys.readouterr().err.splitlines()
    assert first == f"joining {ADDRESS} (waits up to 180 s)"
    assert "start it with `ray start --head`" in last


@pytest.mark.usefixtures("no_ray")
def test_a_finished_run_is_refused_before_ray_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = create(RunStore(tmp_path / "runs"), config())
    run.set_state("finished")
    (run.path / "result.json").write_text('{"test": {}}')
    assert main(["resume", run.id, "--on", "ray", "--runs", str(tmp_path / "runs")]) == 2
    assert capsys.readouterr().err == f"acenode: {run.id} is finished: there is nothing to resume\n"


@pytest.mark.usefixtures("no_ray")
def test_more_threads_than_the_machine_has_are_refused_before_ray_starts(tmp_path: Path,
                                                                         capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "mnist", "--method", "ace", "--on", "ray", "--threads", "1024", "--runs",
                 str(tmp_path / "runs")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "too few CPUs for a run with 1024 threads" in line
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())


@pytest.mark.parametrize("more", [[], ["--workers", "1"]])
def test_a_search_says_that_it_starts_a_local_ray(more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    def train(self: RayCluster, run: Run, data_root: Path, stop: threading.Event) -> None:
        run.set_state("failed", error="it was not trained")

    monkeypatch.setattr(RayCluster, "start", lambda self: ClusterSize(1, 0, 1, 1))
    monkeypatch.setattr(RayCluster, "train", train)
    words = ["search", "mnist", "--method", "resnet", "--over", "learning_rate=log:1e-3..1", "--epochs", "1",
             "--trials", "1", "--on", "ray", "--threads", "1", "--runs", str(tmp_path / "runs")]
    main([*words, *more])
    assert capsys.readouterr().err.splitlines()[0] == "starting a local Ray"
