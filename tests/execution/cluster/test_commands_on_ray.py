"""Commands that train on a local Ray: the numbers of a seed, and search, resume and reproduce on it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from quick_settings import QUICK
from ray_runs import config, epochs, same, trained_here

from acenode import experiments
from acenode.cli import main
from acenode.compare import reproduction
from acenode.compare.paper import CELLS
from acenode.compare.reproduction import PlannedRun
from acenode.execution.execute import attempt, create
from acenode.runs.store import Run, RunStore

pytestmark = pytest.mark.long
ON_RAY = ["--on", "ray", "--threads", "1"]
EPOCHS = 3


@pytest.fixture(autouse=True)
def _equal_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_worker_niceness", "0")  # Ray's workers would wait for everything else on a busy machine


def by_command(folder: Path, *more: str) -> Run:
    """Train the run of `config` by a command of its own."""
    settings = config(epochs=EPOCHS).to_dict()
    given = [f"--set={key}={str(settings[key]).lower()}" for key in
             ("solver", "step_size", "batch_size", "snapshots", "analysis")]
    words = ["train", "mnist", "--method", "odenet", "--epochs", str(EPOCHS), "--seed", "0", "--device", "cpu", *given]
    subprocess.run([sys.executable, "-m", "acenode.cli", *words, *more, "--runs", str(folder)], check=True,
                   capture_output=True)
    (run,) = RunStore(folder)
    return run


@pytest.fixture(scope="module")
def in_a_thread(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained_here(tmp_path_factory.mktemp("thread"), config(epochs=EPOCHS))


def test_a_seed_gives_the_same_numbers_by_command_thread_and_ray(tmp_path: Path, in_a_thread: Run) -> None:
    by_cli, by_ray = by_command(tmp_path / "cli"), by_command(tmp_path / "ray", *ON_RAY)
    for run in (by_cli, by_ray):
        assert run.description()["environment"]["threads"] == 1
        assert epochs(run) == EPOCHS
        assert same(run, in_a_thread)


class StopAfter(threading.Event):
    """An event that is set once it has been looked at so many times."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.left = looks

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


def test_a_stopped_run_is_resumed_on_ray(tmp_path: Path, in_a_thread: Run) -> None:
    run = create(RunStore(tmp_path / "runs"), config(epochs=EPOCHS))
    assert attempt(run, tmp_path / "data", StopAfter(30)) == "stopped"
    assert epochs(run) < EPOCHS
    assert main(["resume", run.id, *ON_RAY, "--runs", str(tmp_path / "runs")]) == 0
    assert run.status()["state"] == "finished"
    assert same(run, in_a_thread)


def test_a_search_on_ray_is_continued_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = ["--runs", str(tmp_path / "runs"), "--workers", "2", "--json"]
    words = ["search", "mnist", "--method", "resnet", "--over", "learning_rate=log:1e-3..1", "--epochs", "1", "--set",
             "batch_size=512", "--name", "rates", "--device", "cpu"]
    assert main([*words, "--trials", "2", *ON_RAY, *runs]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["by_state"] == {"finished": 2}
    assert first["all_trials"][0]["default"]
    assert main(["search", "resume", "rates", "--trials", "3", *ON_RAY, *runs]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["by_state"] == {"finished": 3}
    assert again["all_trials"][:2] == first["all_trials"]
    for run in RunStore(tmp_path / "runs"):
        assert run.result() is None  # never tested


def test_reproduce_trains_its_plan_on_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    cell = CELLS["mnist/resnet/accuracy"]
    planned = experiments.get("mnist").configure("resnet", device="cpu", **QUICK)
    monkeypatch.setattr(reproduction, "queue", lambda *args: [PlannedRun(planned, (cell,), 0)])
    monkeypatch.setattr(reproduction, "missing_data", lambda cells, root: {})
    assert main(["reproduce", "--device", "cpu", "--workers", "1", *ON_RAY, "--runs", str(tmp_path / "runs")]) == 0
    (run,) = RunStore(tmp_path / "runs")
    assert f"finished  mnist resnet seed 0 ({run.id}): accuracy " in capsys.readouterr().out
    assert run.status()["state"] == "finished"
