"""Clusters that cannot be joined: what is refused before Ray starts, and what ends while Ray still tries.

Nothing here starts Ray: a program that sleeps or fails stands in for the driver process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from quick_settings import QUICK
from short_runs import config

from acenode import experiments
from acenode.cli import main
from acenode.errors import UserError
from acenode.execution.cluster import ray_cluster
from acenode.execution.cluster.ray_cluster import ClusterSize, RayCluster, address_of, cluster_size
from acenode.execution.devices import DeviceState
from acenode.execution.execute import attempt
from acenode.execution.launcher import Launcher
from acenode.runs.store import RunStore

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


def test_a_run_fails_with_the_reason_where_nothing_answers(driver: Callable[[str], None], tmp_path: Path,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    driver("exec sleep 600")
    refused = ConnectionRefusedError(111, "Connection refused")
    monkeypatch.setattr(socket, "create_connection", Mock(side_effect=refused))
    launcher = Launcher(RunStore(tmp_path / "runs"), tmp_path / "data", cluster=RayCluster(ADDRESS))
    runs = [launcher.start(config(seed=seed)) for seed in range(2)]
    assert launcher.wait(PROMPT)
    for run in runs:
        status = run.status()
        assert status["state"] == "failed"
        assert status["error"].startswith(f"there is no Ray cluster at {ADDRESS} (Connection refused); start it with")
        assert "\n" not in status["error"]
    launcher.close()


@pytest.mark.parametrize(("line", "words"), [
    ("exec sleep 600", "no connection within 0 s"),
    ("""echo 'Unauthenticated: RPC error: InvalidAuthToken: Authentication token is missing' >&2
echo '{"error": "Failed to connect to Ray cluster"}'
exit 1""", "the token is missing or incorrect")])
def test_a_head_that_does_not_answer_or_has_another_token_is_one_line_with_what_to_do(
        line: str, words: str, driver: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "START_SECONDS", 0.2 if "sleep" in line else PROMPT)
    driver(line)
    with pytest.raises(UserError) as caught:
        RayCluster(ADDRESS).start()
    assert words in str(caught.value)
    assert "start it with `ray start --head`; with a token, both sides need the same RAY_AUTH_MODE and token: see " \
        "docs/cluster.md" in str(caught.value)


def test_a_driver_ends_with_its_command_while_it_joins() -> None:
    pytest.importorskip("ray")
    program = """
import time
from acenode.execution.cluster import driver
driver._connect = lambda options, place: (print("joins", flush=True), time.sleep(600))
driver.take_output = lambda: open("/dev/null", "wb")
driver.main()
"""
    words = [sys.executable, "-c", program, json.dumps(RayCluster(ADDRESS).options)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"joins\n"
            process.stdin.close()
            assert process.wait(PROMPT) == 1
        finally:
            process.kill()


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "_DriverProcess", Mock(side_effect=AssertionError("Ray is started")))


@pytest.mark.usefixtures("no_ray")
@pytest.mark.parametrize("words", [["train", "mnist", "--method", "ace"], ["app", "--headless"]])
def test_a_name_that_is_not_known_is_refused_at_once(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "execv", Mock(side_effect=AssertionError("the app is started")))
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    monkeypatch.setattr(socket, "getaddrinfo", Mock(side_effect=unknown))
    assert main([*words, "--on", "ray:not-a-host:6379", "--runs", str(tmp_path / "runs")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("acenode: there is no machine not-a-host (Name or service not known)")


# The address of a cluster, its size, and the errors of commands that train on it; nothing here starts -----------------


def node(cpus: float, gpus: float = 0, alive: bool = True) -> dict[str, Any]:
    return {"Alive": alive, "Resources": {"CPU": cpus, **({"GPU": gpus} if gpus else {})}}


def test_runs_that_fit_are_counted_by_machine() -> None:
    assert cluster_size([node(3), node(5), node(8, alive=False)], 2, 0.25) == ClusterSize(8, 0, 2, 3)
    assert cluster_size([node(16, 1), node(2, 2), node(64)], 1, 0.1) == ClusterSize(82, 3, 3, 12)
    assert cluster_size([node(1)], 2, 0.25).runs == 0


@pytest.mark.parametrize("on", ["", "dask", "ray:", "rays"])
def test_other_places_are_refused(on: str) -> None:
    with pytest.raises(UserError, match="--on takes ray"):
        address_of(on)
    with pytest.raises(UserError, match="on a machine of the cluster"):
        RayCluster("ray://10.0.0.1:10001")


def test_a_missing_ray_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                   tmp_path: Path) -> None:
    monkeypatch.setattr(ray_cluster.importlib.util, "find_spec", lambda name: None)
    assert main(["train", "mnist", "--method", "ace", "--on", "ray", "--runs", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "acenode: Ray is not installed: run `pip install 'acenode[ray]'`\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_ray")
@pytest.mark.parametrize(("words", "error"), [
    (["--on", "dask"], "--on takes ray"), (["--threads", "2"], "add --on ray"), (["--gpu", "0.5"], "add --on ray"),
    (["--on", "ray", "--threads", "0"], "--threads takes"), (["--on", "ray", "--gpu", "2"], "--gpu takes"),
    (["--on", "ray", "--threads", "1024"], "too few CPUs for a run with 1024 threads")])
def test_options_that_make_no_sense_are_one_line(words: list[str], error: str, capsys: pytest.CaptureFixture[str],
                                                 tmp_path: Path) -> None:
    assert main(["train", "mnist", "--method", "ace", "--runs", str(tmp_path), *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert error in line
    assert list(tmp_path.iterdir()) == []


class StandIn(RayCluster):
    """Trains in this process what a cluster would train."""

    size = ClusterSize(4, 0, 1, 2)  # type: ignore[assignment]
    train, close = Mock(side_effect=attempt), Mock()  # type: ignore[assignment]


def test_a_launcher_with_a_cluster_trains_everything_there(tmp_path: Path) -> None:
    cluster = StandIn()
    launcher = Launcher(RunStore(tmp_path / "runs"), tmp_path / "data", cluster=cluster)
    configs = [experiments.get("mnist").configure("odenet", **QUICK, seed=seed) for seed in range(2)]
    runs = [launcher.start(config) for config in configs]
    assert launcher.wait(120)
    assert [run.status()["state"] for run in runs] == ["finished", "finished"]
    assert {call.args[0].id for call in cluster.train.call_args_list} == {run.id for run in runs}
    assert launcher.device_states() == [DeviceState("ray", "Ray, 4 CPUs on 1 machine", 2, 0, None, None, None)]
    launcher.set_workers("ray", 1)
    assert launcher.device_states()[0].workers == 1
    launcher.close()
    cluster.close.assert_called()
