"""Runs of several seeds trained together: each is an ordinary run with the numbers that it has alone."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from quick_settings import quick_settings

from acenode import experiments
from acenode.cli import main
from acenode.execution.execute import create, execute
from acenode.execution.processes import ProcessPool
from acenode.execution.together import execute_together
from acenode.runs.store import Run, RunStore

LINE = "not trained as one computation with other seeds"
pytestmark = pytest.mark.long


def make_runs(folder: Path, method: str, seeds: int, **given: Any) -> list[Run]:
    settings = quick_settings(method, {"device": "cpu", **given})
    return [create(RunStore(folder), experiments.get("mnist").configure(method, seed=seed, **settings))
            for seed in range(seeds)]


def steps_of(run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]


def test_each_seed_is_an_ordinary_run_with_its_own_numbers(tmp_path: Path) -> None:
    together, alone = (make_runs(tmp_path / name, "odenet", 2) for name in ("together", "alone"))
    outcomes = execute_together(together, tmp_path)
    assert [o.state for o in outcomes] == ["finished", "finished"]
    for run, other in zip(together, alone, strict=True):
        execute(other, tmp_path)
        files = {str(p.relative_to(run.path)) for p in run.path.rglob("*") if p.is_file()}
        assert files == {str(p.relative_to(other.path)) for p in other.path.rglob("*") if p.is_file()}
        for got, wanted in zip(steps_of(run), steps_of(other), strict=True):
            for key in ("nfe_forward", "steps", "L_h", "validation_loss"):
                if key in wanted:
                    assert got[key] == pytest.approx(wanted[key], rel=1e-3), key
            if "validation_accuracy" in wanted:  # rounding may change the class of a sample or two of 287
                assert got["validation_accuracy"] == pytest.approx(wanted["validation_accuracy"], abs=2.1 / 287)
        last, expected = (r.path / "checkpoints" / "last.pt" for r in (run, other))
        assert last.stat().st_size < 1.1 * expected.stat().st_size  # not the parameters of the other seed
    assert steps_of(together[0])[0]["L_h"] != steps_of(together[1])[0]["L_h"]


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


def test_a_method_that_is_not_supported_is_trained_seed_by_seed(tmp_path: Path) -> None:
    runs = make_runs(tmp_path / "runs", "resnet", 2)
    assert [o.state for o in execute_together(runs, tmp_path)] == ["finished", "finished"]
    for run in runs:
        assert LINE in (run.path / "log.txt").read_text()


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


def test_seeds_on_a_gpu_are_trained_in_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU: the device of the processes is replaced by the processor."""
    train, devices = ProcessPool.train, list[str]()

    def on_the_processor(self: ProcessPool, device: str, *rest: Any) -> None:
        devices.append(device)
        train(self, "cpu", *rest)

    runs, seen = make_runs(tmp_path / "runs", "resnet", 2), list[str]()
    monkeypatch.setattr(ProcessPool, "train", on_the_processor)
    monkeypatch.setattr("acenode.execution.together.device_of", lambda name: torch.device("cuda"))
    outcomes = execute_together(runs, tmp_path, progress=lambda run, status: seen.append(run.id))
    assert devices == ["cuda", "cuda"]
    assert [(o.run.id, o.state) for o in outcomes] == [(run.id, "finished") for run in runs]
    assert all(o.metrics == (o.run.result() or {})["test"] for o in outcomes)
    assert set(seen) == {run.id for run in runs}
    for run in runs:
        assert f"{LINE}: on a GPU every run has a process of its own" in (run.path / "log.txt").read_text()
