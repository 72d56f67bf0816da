"""The address of a cluster, its size, and the errors of commands that train on it; nothing here starts Ray."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from quick_settings import QUICK

from acenode import experiments
from acenode.cli import main
from acenode.errors import UserError
from acenode.execution.cluster import ray_cluster
from acenode.execution.cluster.ray_cluster import RayCluster, address_of
from acenode.execution.cluster.size import ClusterSize, cluster_size
from acenode.execution.devices import DeviceState
from acenode.execution.execute import attempt
from acenode.execution.launcher import Launcher
from acenode.runs.store import Run, RunStore


def node(cpus: float, gpus: float = 0, alive: bool = True) -> dict[str, Any]:
    return {"Alive": alive, "Resources": {"CPU": cpus, **({"GPU": gpus} if gpus else {})}}


def test_runs_that_fit_are_counted_by_machine() -> None:
    assert cluster_size([node(3), node(5), node(8, alive=False)], 2, 0.25) == ClusterSize(8, 0, 2, 3)
    assert cluster_size([node(16, 1), node(2, 2), node(64)], 1, 0.1) == ClusterSize(82, 3, 3, 12)
    assert cluster_size([node(1)], 2, 0.25).runs == 0


def test_the_size_is_described_for_people() -> None:
    assert ClusterSize(1, 0, 1, 1).title == "Ray, 1 CPU on 1 machine"
    assert ClusterSize(16, 2, 3, 8).title == "Ray, 16 CPUs, 2 GPUs on 3 machines"


def test_addresses() -> None:
    assert address_of("ray") is None
    assert address_of("ray:auto") == "auto"
    assert address_of("ray:10.0.0.1:6379") == "10.0.0.1:6379"


@pytest.mark.parametrize("on", ["", "dask", "ray:", "rays"])
def test_other_places_are_refused(on: str) -> None:
    with pytest.raises(UserError, match="--on takes ray"):
        address_of(on)


def test_a_client_s_address_is_refused() -> None:
    with pytest.raises(UserError, match="on a machine of the cluster"):
        RayCluster("ray://10.0.0.1:10001")


def test_a_missing_ray_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                   tmp_path: Path) -> None:
    monkeypatch.setattr(ray_cluster.importlib.util, "find_spec", lambda name: None)
    assert main(["train", "mnist", "--method", "ace", "--on", "ray", "--runs", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "acenode: Ray is not installed: run `pip install 'acenode[ray]'`\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("words", "error"), [
    (["--on", "dask"], "--on takes ray"), (["--threads", "2"], "add --on ray"), (["--gpu", "0.5"], "add --on ray"),
    (["--on", "ray", "--threads", "0"], "--threads takes"), (["--on", "ray", "--gpu", "2"], "--gpu takes")])
def test_options_that_make_no_sense_are_one_line(words: list[str], error: str, capsys: pytest.CaptureFixture[str],
                                                 tmp_path: Path) -> None:
    assert main(["train", "mnist", "--method", "ace", "--runs", str(tmp_path), *words]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert error in lines[0]


def test_the_app_refuses_other_places(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["app", "--on", "dask", "--runs", str(tmp_path)]) == 2
    assert "--on takes ray" in capsys.readouterr().err


def test_a_driver_that_does_not_start_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(UserError, match="a local Ray could not be started"):
        RayCluster().start()


class StandIn(RayCluster):
    """Trains in this process what a cluster would train."""

    def __init__(self, runs: int) -> None:
        super().__init__()
        self.runs, self.trained, self.closed = runs, [], False

    @property
    def size(self) -> ClusterSize:
        return ClusterSize(2 * self.runs, 0, 1, self.runs)

    def train(self, run: Run, data_root: Path, stop: threading.Event) -> None:
        self.trained.append(run.id)
        attempt(run, data_root, stop)

    def close(self) -> None:
        self.closed = True


def test_a_launcher_with_a_cluster_trains_everything_there(tmp_path: Path) -> None:
    cluster = StandIn(2)
    launcher = Launcher(RunStore(tmp_path / "runs"), tmp_path / "data", cluster=cluster)
    configs = [experiments.get("mnist").configure("odenet", **QUICK, seed=seed) for seed in range(2)]
    runs = [launcher.start(config) for config in configs]
    assert launcher.wait(120)
    assert [run.status()["state"] for run in runs] == ["finished", "finished"]
    assert set(cluster.trained) == {run.id for run in runs}
    assert launcher.device_states() == [DeviceState("ray", "Ray, 4 CPUs on 1 machine", 2, 0, None, None, None)]
    launcher.set_workers("ray", 1)
    assert launcher.device_states()[0].workers == 1
    launcher.close()
    assert cluster.closed


def test_a_cluster_trains_more_runs_at_a_time_than_a_machine(tmp_path: Path) -> None:
    launcher = Launcher(RunStore(tmp_path / "runs"), tmp_path, cluster=RayCluster())
    launcher.set_workers("ray", 100)
    assert launcher.workers("auto") == 100
    with pytest.raises(UserError, match="1 to 500 runs at a time"):
        launcher.set_workers("ray", 501)
    launcher.close()
