"""Whole runs by the graph engine on a GPU: what they log, where they fall back, and how they end."""

from __future__ import annotations

import statistics
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from graph_training import CUDA, reserved_bytes
from problems import relative
from quick_settings import QUICK

from acenode import experiments
from acenode.execution.engine_choice import EngineChoice
from acenode.execution.execute import Outcome, create, execute
from acenode.experiments.image_task import ImageTask
from acenode.runs.store import RunStore
from acenode.runs.writer import load_checkpoint

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("exact")]


def run(tmp_path: Path, stop: threading.Event | None = None, **given: Any) -> Outcome:
    settings = {**QUICK, "batch_size": 64, "device": "cuda", **given}
    config = experiments.get("mnist").configure("ace", **settings)
    return execute(create(RunStore(tmp_path), config), tmp_path, stop=stop)


def test_a_solve_of_too_many_steps_falls_back_to_native_steps(tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acenode.accelerate.cuda_graph.engine.CAPACITY", 1)
    monkeypatch.setattr("acenode.accelerate.cuda_graph.engine.MAX_CAPACITY", 1)
    outcome = run(tmp_path)
    assert outcome.state == "finished", outcome.error
    assert outcome.run.description()["trained_by"] == "native"
    assert "graph engine not used: a solve of pass one took more than 1 steps" in (
        outcome.run.path / "log.txt").read_text()


def test_a_stopped_run_resumes_to_the_same_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, stop, batch = run(tmp_path / "whole", epochs=2), threading.Event(), ImageTask.batch

    def asking(self: ImageTask, epoch: int, iteration: int) -> Any:
        if (epoch, iteration) == (1, 2):
            stop.set()
        return batch(self, epoch, iteration)

    monkeypatch.setattr(ImageTask, "batch", asking)
    stopped = run(tmp_path / "stopped", stop, epochs=2)
    assert stopped.state == "stopped"
    monkeypatch.undo()
    again = execute(stopped.run, tmp_path)
    assert again.state == "finished", again.error
    log = (again.run.path / "log.txt").read_text()
    assert "resumed on cuda:0 at epoch 1, iteration 3" in log
    assert log.count("graph engine: pass one recorded in") == 2
    last = [load_checkpoint(o.run.path / "checkpoints" / "last.pt", CUDA)["trainer"]["model"] for o in (whole, again)]
    theirs, mine = (torch.cat([x.flatten() for x in state.values()]) for state in last)
    assert relative(mine, theirs) < 1e-3


def test_a_run_is_trained_by_graphs_and_records_that(tmp_path: Path) -> None:
    found, plain = run(tmp_path), run(tmp_path, engine="reference")
    assert (found.state, plain.state) == ("finished", "finished"), (found.error, plain.error)
    assert found.run.description()["trained_by"] == "graph"
    assert "graph engine: pass one recorded in" in (found.run.path / "log.txt").read_text()


def test_accuracy_after_an_epoch_equals_the_reference(tmp_path: Path) -> None:
    """Over three seeds: accuracies of the same seed differ less than those of different seeds."""
    found, plain = ([run(tmp_path, engine=engine, seed=seed).metrics["accuracy"] for seed in range(3)]
                    for engine in ("graph", "reference"))
    noise = max(statistics.stdev(plain), 0.01)
    assert abs(statistics.mean(found) - statistics.mean(plain)) < noise / 3**0.5
    assert max(abs(a - b) for a, b in zip(found, plain, strict=True)) < 2 * noise


@pytest.mark.parametrize("settings", [{}, {"solver": "rk4", "step_size": 0.5}])
def test_nan_fails_the_run_with_the_words_of_native_steps(settings: dict[str, Any], tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    batch = ImageTask.batch

    def spoilt(self: ImageTask, epoch: int, iteration: int) -> Any:
        x, y = batch(self, epoch, iteration)
        return (x * torch.nan if iteration == 3 else x), y

    monkeypatch.setattr(ImageTask, "batch", spoilt)
    found = run(tmp_path, **settings)
    monkeypatch.setattr("acenode.execution.execute.choose_engine", lambda *_: EngineChoice("native"))
    plain = run(tmp_path, **settings)
    assert (found.state, plain.state) == ("failed", "failed")
    assert found.error == plain.error
    assert "NaN" in (found.error or "")


def test_a_pass_that_cannot_be_recorded_is_trained_natively(tmp_path: Path,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    read_out = ImageTask.read_out

    def asks(self: ImageTask, h1: torch.Tensor, batch: Any) -> Any:
        loss, metrics = read_out(self, h1, batch)
        assert loss.isfinite().item()  # reads a value of the device, which cannot be recorded
        return loss, metrics

    run(tmp_path)  # allocates what the libraries keep
    before = reserved_bytes()
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(ImageTask, "read_out", asks)
            outcome = run(tmp_path)
        assert outcome.state == "finished", outcome.error
        log = (outcome.run.path / "log.txt").read_text()
        assert log.count("graph engine not used") == 1
        assert outcome.run.description()["trained_by"] == "native"
        assert reserved_bytes() <= before + (32 << 20)  # a failed recording holds no memory


def test_running_out_of_memory_while_recording_falls_back_to_native_steps(tmp_path: Path,
                                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    read_out = ImageTask.read_out

    def greedy(self: ImageTask, h1: torch.Tensor, batch: Any) -> Any:
        if torch.cuda.is_current_stream_capturing():
            torch.empty(1 << 46, device=CUDA)
        return read_out(self, h1, batch)

    monkeypatch.setattr(ImageTask, "read_out", greedy)
    outcome = run(tmp_path)
    assert outcome.state == "finished", outcome.error
    assert outcome.run.description()["trained_by"] == "native"
    (line,) = [x for x in (outcome.run.path / "log.txt").read_text().splitlines() if "graph engine" in x]
    assert "out of memory" in line
    monkeypatch.undo()
    assert run(tmp_path).run.description()["trained_by"] == "graph"  # with no effect on the next run


@pytest.mark.parametrize(("settings", "word"), [
    ({"solver": "rk4", "step_size": 0.5, "attention": "fixed"}, "steps of rk4 would average more"),
    ({"gradient": "adjoint"}, "with adjoint gradients a fixed-step one")])
def test_the_log_says_what_the_engine_does_not_support(settings: dict[str, Any], word: str, tmp_path: Path) -> None:
    outcome = run(tmp_path, **settings)
    assert outcome.state == "finished", outcome.error
    (line,) = [x for x in (outcome.run.path / "log.txt").read_text().splitlines() if "graph engine" in x]
    assert word in line
