"""Runs on a local Ray and on other machines: same numbers, streaming, stop; killed workers, nodes, Ray and commands."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from short_runs import PATIENCE, epochs, forever, same, saved, some_epochs, trained_here, until, worker_pid

from acenode.errors import UserError
from acenode.execution.cluster.ray_cluster import RayCluster
from acenode.execution.execute import execute
from acenode.execution.launcher import Launcher
from acenode.runs.process import identity
from acenode.runs.store import Run, RunStore

pytestmark = pytest.mark.long
QUICK_TO_NOTICE = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_timeout_ms": 2000,
                   "health_check_failure_threshold": 4}
ON_RAY = ["--on", "ray", "--threads", "1"]
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}  # also for IPv6


@pytest.fixture(autouse=True)
def _equal_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_worker_niceness", "0")  # Ray's workers would wait for everything else on a busy machine


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run that others are compared with, trained in a thread."""
    return trained_here(tmp_path_factory.mktemp("unbroken"), some_epochs())


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A head without processors, and one node that trains."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False,
                                                         "_system_config": QUICK_TO_NOTICE})
    made.add_node(num_cpus=1)
    yield made
    made.shutdown()


def launch(cluster: RayCluster, root: Path) -> Iterator[Launcher]:
    made = Launcher(RunStore(root / "runs"), root / "data", cluster=cluster)
    yield made
    made.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with RayCluster(threads=1, cpus=2) as made:
        yield made


@pytest.fixture(scope="module")
def launcher(cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    yield from launch(cluster, tmp_path_factory.mktemp("ray"))


@pytest.fixture(scope="module")
def far(nodes: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """A launcher whose workers do not see the run directory."""
    with RayCluster(nodes.address, threads=1, shared=False) as cluster:
        yield from launch(cluster, tmp_path_factory.mktemp("machines"))


def test_the_numbers_are_those_of_a_thread_also_beside_others(launcher: Launcher, unbroken: Run) -> None:
    runs = [launcher.start(some_epochs()), launcher.start(some_epochs(seed=1))]
    assert launcher.wait(PATIENCE)
    assert same(runs[0], unbroken)
    assert runs[1].status()["state"] == "finished"
    assert not same(runs[1], unbroken)
    described = runs[0].description()
    assert described["environment"]["threads"] == 1
    assert not list(runs[0].path.glob(".*"))  # neither the probe nor a part of a file is left


def test_ray_is_reached_from_this_machine_only_and_reports_nothing(cluster: RayCluster) -> None:
    assert cluster._driver is not None
    group = os.getpgid(cluster._driver.process.pid)
    listening = _listening({p for p in map(int, filter(str.isdigit, os.listdir("/proc"))) if _ancestors(p, group)})
    assert listening
    assert listening <= LOOPBACK
    variables = Path(f"/proc/{cluster._driver.process.pid}/environ").read_bytes().split(b"\0")
    assert b"RAY_USAGE_STATS_ENABLED=0" in variables


def _ancestors(pid: int, wanted: int) -> bool:
    """Return whether a process descends from another."""
    while pid > 1:
        if pid == wanted:
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            return False
    return False


def _listening(pids: set[int]) -> set[str]:
    """Return the addresses on which the processes listen, as the system writes them."""
    sockets = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                sockets.add(os.readlink(link).removeprefix("socket:[").removesuffix("]"))
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    return {words[1].split(":")[0] for words in lines if words[3] == "0A" and words[9] in sockets}


@pytest.mark.parametrize("place", ["launcher", "far"])
def test_a_run_streams_holds_its_lock_stops_and_resumes(place: str, request: pytest.FixtureRequest) -> None:
    launcher: Launcher = request.getfixturevalue(place)
    run = launcher.start(forever())
    until(lambda: epochs(run) >= 1)
    status = run.status()
    assert (status["state"], status["process"]) == ("running", identity())
    assert run.locked
    with pytest.raises(UserError, match="being trained already"):
        execute(run, launcher.data_root)
    if place == "far":
        links = [os.readlink(link) for link in Path(f"/proc/{worker_pid(run)}/fd").iterdir() if link.exists()]
        assert not any(str(run.path) in link for link in links)  # it works in a folder of its own
    launcher.stop(run)
    assert launcher.wait(PATIENCE)
    assert run.status()["state"] == "stopped"
    assert saved(run)
    assert not run.locked
    before = len(run.metrics()[0])
    launcher.resume(run)
    until(lambda: len(run.metrics()[0]) > before)
    run.request_stop()  # as `acenode stop` does
    assert launcher.wait(PATIENCE)
    assert run.status()["state"] == "stopped"


@pytest.mark.parametrize("place", ["launcher", "far"])
def test_a_killed_worker_is_replaced_and_the_run_continues_from_its_checkpoint(
        place: str, request: pytest.FixtureRequest, unbroken: Run) -> None:
    launcher: Launcher = request.getfixturevalue(place)
    run = launcher.start(some_epochs())
    until(lambda: saved(run) and worker_pid(run) is not None)
    os.kill(worker_pid(run) or 0, signal.SIGKILL)
    assert run.status()["state"] == "running"  # its launcher lives
    assert launcher.wait(PATIENCE)
    assert run.status()["state"] == "finished"
    assert "resumed" in (run.path / "log.txt").read_text()
    assert same(run, unbroken)
    assert len(run.snapshots()) == len(unbroken.snapshots())


def test_a_node_that_vanishes_is_replaced_by_another(far: Launcher, nodes: Any, unbroken: Run) -> None:
    run = far.start(some_epochs())
    until(lambda: saved(run))
    pid = worker_pid(run)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)  # not to finish before the other node is there
    (node,) = nodes.worker_nodes
    nodes.add_node(num_cpus=1)
    os.kill(pid, signal.SIGCONT)
    nodes.remove_node(node, allow_graceful=False)
    assert far.wait(PATIENCE)
    assert run.status()["state"] == "finished"
    assert "resumed" in (run.path / "log.txt").read_text()
    assert same(run, unbroken)


def test_a_killed_ray_is_started_again_and_the_run_continues(launcher: Launcher, cluster: RayCluster,
                                                             unbroken: Run) -> None:
    run = launcher.start(some_epochs())
    until(lambda: saved(run))
    assert cluster._driver is not None
    cluster._driver.process.kill()
    assert launcher.wait(PATIENCE)
    assert run.status()["state"] == "finished"
    assert "resumed" in (run.path / "log.txt").read_text()
    assert same(run, unbroken)


def command(folder: Path, *more: str) -> list[str]:
    """Return the command that trains the configuration of `unbroken`."""
    settings = some_epochs().to_dict()
    given = [f"--set={key}={str(settings[key]).lower()}" for key in
             ("solver", "step_size", "batch_size", "snapshots", "analysis")]
    return [sys.executable, "-m", "acenode.cli", "train", "mnist", "--method", "odenet", "--epochs",
            str(settings["epochs"]), "--device", "cpu", *given, *more, "--runs", str(folder)]


def test_a_command_that_was_killed_is_resumed(launcher: Launcher, unbroken: Run) -> None:
    store = launcher.store
    before = set(store.names())
    process = subprocess.Popen(command(store.root, *ON_RAY), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: any(saved(store.open(name)) for name in {*store.names()} - before))
    process.kill()
    process.wait()
    (name,) = {*store.names()} - before
    run = store.open(name)
    until(lambda: run.stored_state() == "stopped" and not (run.path / "stop").exists())  # its driver has noticed it
    launcher.resume(run)
    assert launcher.wait(PATIENCE)
    assert run.status()["state"] == "finished"
    assert same(run, unbroken)


@pytest.mark.parametrize("more", [[], ON_RAY])
def test_a_seed_gives_the_same_numbers_by_command_thread_and_ray(more: list[str], tmp_path: Path,
                                                                 unbroken: Run) -> None:
    subprocess.run(command(tmp_path, *more), check=True, capture_output=True)
    (run,) = RunStore(tmp_path)
    assert run.description()["environment"]["threads"] == 1
    assert same(run, unbroken)
