"""A cluster of several nodes without a shared folder: the run directory follows, and a node may vanish."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from quick_settings import until
from ray_runs import PATIENCE, config, epochs, forever, same, saved, trained_here, worker_pid

from acenode.execution.cluster.ray_cluster import RayCluster
from acenode.execution.launcher import Launcher
from acenode.runs.store import Run, RunStore

pytestmark = pytest.mark.long
QUICK_TO_NOTICE = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_timeout_ms": 2000,
                   "health_check_failure_threshold": 4}


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


@pytest.fixture(scope="module")
def launcher(nodes: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    root = tmp_path_factory.mktemp("machines")
    with RayCluster(nodes.address, threads=1, shared=False) as cluster:
        made = Launcher(RunStore(root / "runs"), root / "data", cluster=cluster)
        yield made
        made.close()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained_here(tmp_path_factory.mktemp("unbroken"), config())


def test_a_run_of_another_machine_streams_and_stops_and_resumes(launcher: Launcher) -> None:
    run = launcher.start(forever())
    until(lambda: epochs(run) >= 1)
    assert run.status()["state"] == "running"
    assert run.locked
    pid = worker_pid(run)
    assert pid is not None
    here = {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if link.exists()}
    assert not any(str(run.path) in link for link in here)  # it works in a folder of its own
    seen = len(run.metrics()[0])
    until(lambda: len(run.metrics()[0]) > seen)
    launcher.stop(run)
    assert launcher.wait(PATIENCE)
    assert run.status()["state"] == "stopped"
    assert saved(run)
    assert not run.locked


def test_a_killed_worker_gets_the_checkpoint_back(launcher: Launcher, unbroken: Run) -> None:
    run = launcher.start(config())
    until(lambda: saved(run))
    pid = worker_pid(run)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert launcher.wait(PATIENCE)
    assert run.status()["state"] == "finished"
    assert "resumed" in (run.path / "log.txt").read_text()
    assert same(run, unbroken)
    assert len(run.snapshots()) == len(unbroken.snapshots())


def test_a_node_that_vanishes_is_replaced_by_another(launcher: Launcher, nodes: Any, unbroken: Run) -> None:
    run = launcher.start(config())
    until(lambda: saved(run))
    pid = worker_pid(run)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)  # not to finish before the other node is there
    (node,) = nodes.worker_nodes
    nodes.add_node(num_cpus=1)
    os.kill(pid, signal.SIGCONT)
    nodes.remove_node(node, allow_graceful=False)
    assert launcher.wait(PATIENCE)
    assert run.status()["state"] == "finished"
    assert "resumed" in (run.path / "log.txt").read_text()
    assert same(run, unbroken)
