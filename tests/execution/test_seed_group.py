"""Which runs are trained as one computation; each is an ordinary run with the numbers that it has alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from quick_settings import quick_settings

from acenode import experiments
from acenode.cli import main
from acenode.config import Config
from acenode.execution import launcher as launcher_module
from acenode.execution.engine_choice import SeedGroup, fallback_line, separate_reason
from acenode.execution.execute import create, execute
from acenode.execution.launcher import Launcher
from acenode.execution.processes import ProcessPool, execute_together
from acenode.runs.store import Run, RunStore

LIMIT = 60.0  # seconds
LINE = "not trained as one computation with other seeds"


class StartedRuns:
    """Stands in for training: a run ends once it is released."""

    def __init__(self) -> None:
        self.release, self.changed = threading.Event(), threading.Condition()
        self.groups: list[tuple[int, int]] = []  # seed, and how many seeds its computation has

    def attempt(self, run: Run, data_root: Path, stop: threading.Event, device: str, group: SeedGroup | None) -> None:
        with self.changed:
            self.groups.append((run.config().seed, 1 if group is None else group.count))
            self.changed.notify_all()
        self.release.wait(LIMIT)
        run.set_state("finished")

    def wait_for(self, count: int) -> list[tuple[int, int]]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.groups) >= count, LIMIT)
            return sorted(self.groups)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> StartedRuns:
    runs = StartedRuns()
    monkeypatch.setattr(launcher_module, "attempt", runs.attempt)
    return runs


@pytest.fixture
def launcher(tmp_path: Path, started: StartedRuns) -> Iterator[Launcher]:
    made = Launcher(RunStore(tmp_path), tmp_path)
    yield made
    started.release.set()
    made.close()


def configure(method: str, seed: int, **given: Any) -> Config:
    return experiments.get("mnist").configure(method, seed=seed, **quick_settings(method, {"device": "cpu", **given}))


def test_seeds_that_are_queued_together_start_together(launcher: Launcher, started: StartedRuns) -> None:
    with launcher.queue_together():
        for seed in range(3):
            launcher.start(configure("odenet", seed))
        other = launcher.start(configure("odenet", 3, learning_rate=0.01))
    assert started.wait_for(3) == [(0, 3), (1, 3), (2, 3)]
    assert launcher.queue() == [other.id]  # the device trains one computation at a time
    assert launcher.device_states()[0].running == 1  # they share one worker
    started.release.set()
    assert started.wait_for(4)[3] == (3, 1)


@pytest.mark.parametrize("together", [True, False])
def test_seeds_of_other_methods_and_those_queued_one_by_one_are_ordinary_runs(
        together: bool, launcher: Launcher, started: StartedRuns) -> None:
    """What a run computes does not depend on how fast the next one was queued."""
    with launcher.queue_together() if together else nullcontext():
        runs = [launcher.start(configure("resnet" if together else "odenet", seed)) for seed in range(3)]
    assert started.wait_for(1) == [(0, 1)]
    assert launcher.queue() == [run.id for run in runs[1:]]
    started.release.set()
    assert started.wait_for(3) == [(0, 1), (1, 1), (2, 1)]
    line = fallback_line("this method has no ODE layer between an encoder and a read-out")
    for run in runs:
        log = (run.path / "log.txt").read_text() if together else ""
        assert (log.count(line), (run.path / "log.txt").exists()) == (int(together), together)


@pytest.mark.parametrize(("experiment", "method", "given", "device", "reason"), [
    ("mnist", "ace", {}, "cpu", None), ("mnist", "ace", {"attention": "none"}, "cpu", None),
    ("mnist", "resnet", {}, "cpu", "this method has no ODE layer between an encoder and a read-out"),
    *(("mnist", method, given, "cpu", "it needs our own Runge–Kutta steps with gradient=backprop")
      for method, given in (("rknet", {}), ("odenet", {"solver": "explicit_adams"}),
                            ("odenet", {"gradient": "checkpointed"}), ("odenet", {"engine": "reference"}))),
    *(("mnist", "ace", given, "cpu", "the model keeps running averages, which belong to one seed")
      for given in ({"initial": "correlation"}, {"attention": "fixed"})),
    *((experiment, "ace", {}, "cpu", "this model is not an encoder, an ODE layer and a read-out")
      for experiment in ("physionet", "ushcn")),
    ("mnist", "ace", {}, "cuda:0", "on a GPU every run has a process of its own")])
def test_which_seeds_are_one_computation(experiment: str, method: str, given: dict[str, Any], device: str,
                                         reason: str | None) -> None:
    assert separate_reason(experiments.get(experiment).configure(method, **given), device) == reason


def make_runs(folder: Path, method: str, seeds: int, **given: Any) -> list[Run]:
    settings = quick_settings(method, {"device": "cpu", **given})
    return [create(RunStore(folder), experiments.get("mnist").configure(method, seed=seed, **settings))
            for seed in range(seeds)]


@pytest.mark.long
def test_each_seed_is_an_ordinary_run_with_its_own_numbers(tmp_path: Path) -> None:
    together, alone = (make_runs(tmp_path / name, "odenet", 2) for name in ("together", "alone"))
    outcomes = execute_together(together, tmp_path)
    assert [o.state for o in outcomes] == ["finished", "finished"]
    for run, other in zip(together, alone, strict=True):
        execute(other, tmp_path)
        files = {str(p.relative_to(run.path)) for p in run.path.rglob("*") if p.is_file()}
        assert files == {str(p.relative_to(other.path)) for p in other.path.rglob("*") if p.is_file()}
        for got, wanted in zip(run.metrics()[0], other.metrics()[0], strict=True):
            for key in ("nfe_forward", "steps", "L_h", "validation_loss"):
                if key in wanted:
                    assert got[key] == pytest.approx(wanted[key], rel=1e-3), key
            if "validation_accuracy" in wanted:  # rounding may change the class of a sample or two of 287
                assert got["validation_accuracy"] == pytest.approx(wanted["validation_accuracy"], abs=2.1 / 287)
        last, expected = (r.path / "checkpoints" / "last.pt" for r in (run, other))
        assert last.stat().st_size < 1.1 * expected.stat().st_size  # not the parameters of the other seed
    assert together[0].metrics()[0][0]["L_h"] != together[1].metrics()[0][0]["L_h"]


@pytest.mark.long
def test_a_stopped_run_continues_alone(tmp_path: Path) -> None:
    runs, stop = make_runs(tmp_path / "runs", "odenet", 2, epochs=2), threading.Event()

    def progress(run: Run, status: dict[str, Any]) -> None:
        if status["epoch"] == 1:
            stop.set()

    outcomes = execute_together(runs, tmp_path, stop=stop, progress=progress)
    assert {o.state for o in outcomes} == {"stopped"}
    assert execute(runs[1], tmp_path).state == "finished"
    (again,) = execute_together(runs[:1], tmp_path)
    assert again.state == "finished"


@pytest.mark.long
def test_the_command_trains_a_run_for_each_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "mnist", "--method", "odenet", "--runs", str(tmp_path), "--device", "cpu"]
    settings = quick_settings("odenet", {})
    epochs = settings.pop("epochs")
    words += ["--epochs", str(epochs), *(part for k, v in settings.items() for part in ("--set", f"{k}={v}"))]
    assert main([*words, "--seeds", "1,4", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [entry["state"] for entry in printed] == ["finished", "finished"]
    assert sorted(run.config().seed for run in RunStore(tmp_path)) == [1, 4]
    assert main([*words, "--seeds", "0,1", "--seed", "3"]) == 2
    assert "either --seed or --seeds" in capsys.readouterr().err


@pytest.mark.long
def test_seeds_on_a_gpu_are_trained_in_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU: the device of the processes is replaced by the processor."""
    train, devices = ProcessPool.train, list[str]()

    def on_the_processor(self: ProcessPool, device: str, *rest: Any) -> None:
        devices.append(device)
        train(self, "cpu", *rest)

    runs, seen = make_runs(tmp_path / "runs", "resnet", 2), list[str]()
    monkeypatch.setattr(ProcessPool, "train", on_the_processor)
    monkeypatch.setattr("acenode.execution.processes.device_of", lambda name: torch.device("cuda"))
    outcomes = execute_together(runs, tmp_path, progress=lambda run, status: seen.append(run.id))
    assert devices == ["cuda", "cuda"]
    assert [(o.run.id, o.state) for o in outcomes] == [(run.id, "finished") for run in runs]
    assert all(o.metrics == (o.run.result() or {})["test"] for o in outcomes)
    assert set(seen) == {run.id for run in runs}
    for run in runs:
        assert f"{LINE}: on a GPU every run has a process of its own" in (run.path / "log.txt").read_text()
