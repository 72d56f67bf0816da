"""Which engine trains a run, without a GPU, and which seeds are one computation, each with the numbers of its own."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from eager_recorder import ImmediateRecorder
from quick_settings import quick_settings
from short_runs import Attempts

from acenode import experiments
from acenode.accelerate.cuda_graph.engine import GraphEngine, unsupported_reason
from acenode.accelerate.cuda_graph.series import StepRecordings, make_recordings
from acenode.backend import Backend
from acenode.cli import main
from acenode.config import Config
from acenode.device.gpu import STREAMS_PER_DEVICE, StreamPool
from acenode.execution import launcher as launcher_module
from acenode.execution.engine_choice import choose_engine, fallback_line, separate_reason
from acenode.execution.execute import Outcome, create, execute
from acenode.execution.launcher import Launcher
from acenode.execution.processes import ProcessPool
from acenode.execution.study_run import execute_queued, launcher_for_seeds
from acenode.runs.store import Run, RunStore

CPU = torch.device("cpu")


class FakeStream(NamedTuple):
    cuda_stream: int


def fake_streams(monkeypatch: pytest.MonkeyPatch) -> StreamPool:
    """Let engines be made on a CPU, with streams that do nothing."""
    number = itertools.count()
    pool = StreamPool(torch.device("cuda"),
                      lambda device: FakeStream(next(number) % STREAMS_PER_DEVICE))  # type: ignore[arg-type, return-value]
    monkeypatch.setattr("acenode.accelerate.cuda_graph.recorder.stream_pool", lambda device: pool)
    monkeypatch.setattr("acenode.accelerate.cuda_graph.recorder.GraphRecorder", lambda stream: ImmediateRecorder())
    monkeypatch.setattr("acenode.accelerate.cuda_graph.engine.unsupported_reason", lambda task, device: None)
    return pool


def small_task() -> Any:
    entry = experiments.get("mnist")
    return entry.make(entry.configure("odenet", device="cpu"), Path(), CPU)


def test_an_engine_that_cannot_be_made_releases_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, task = fake_streams(monkeypatch), small_task()

    def short(*_: object) -> bool:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr("acenode.accelerate.cuda_graph.engine.kernels_available", short)
        with pytest.raises(torch.OutOfMemoryError):
            choose_engine(task, CPU, "auto")
    assert pool.in_use == 0
    log: list[str] = []
    names = [choose_engine(task, CPU, "graph", Backend(log=log.append)).name for _ in range(STREAMS_PER_DEVICE + 1)]
    assert names == ["graph"] * STREAMS_PER_DEVICE + ["native"]
    assert log == ["graph engine not used: other runs use all CUDA streams; training without it"]


def test_the_log_says_why_the_graph_engine_is_not_used() -> None:
    entry, log = experiments.get("mnist"), list[str]()

    def chosen(method: str, **given: Any) -> str | None:
        task = entry.make(entry.configure(method, device="cpu", **given), Path(), CPU)
        return choose_engine(task, CPU, task.config.get("engine"), Backend(log=log.append)).name

    assert [chosen("ace"), chosen("ace", engine="reference"), chosen("resnet"), chosen("rknet")] == [
        "native", "reference", None, "reference"]
    assert log == []
    assert chosen("ace", engine="graph") == "native"
    assert log == ["graph engine not used: it needs a CUDA device; training without it"]

    def reason(method: str = "ace", **given: Any) -> str | None:
        task = entry.make(entry.configure(method, **given), Path(), CPU)
        return unsupported_reason(task, torch.device("cuda"))

    assert reason("resnet") is reason("rknet") is reason("augmented") is None
    assert "fixed-step one of few steps" in (reason(gradient="adjoint") or "")
    assert "average correlations" in (reason(solver="rk4", step_size=0.5, gradient="adjoint", attention="fixed") or "")

    assert reason(solver="rk4", step_size=0.5) is None
    assert reason(solver="rk4", step_size=1e-3) == "rk4 would take more than 256 steps"
    assert reason(solver="rk4", step_size=0.5, attention="fixed", initial="conv") is None
    assert "steps of rk4 would average more" in (reason(solver="rk4", step_size=0.5, attention="fixed") or "")
    assert "steps of adaptive_heun would average more" in (reason(solver="adaptive_heun", attention="fixed") or "")
    assert reason(solver="adaptive_heun") is reason(solver="bosh3", attention="fixed") is None


def test_methods_without_a_solver_are_recorded_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_streams(monkeypatch)
    entry = experiments.get("mnist")
    task = entry.make(entry.configure("resnet", device="cpu"), Path(), CPU)
    assert task.config.get("engine") is None
    assert choose_engine(task, CPU, None).name is None
    monkeypatch.setattr("acenode.accelerate.cuda_graph.engine.torch.zeros", lambda *_, device: torch.tensor(0.0))
    monkeypatch.setattr("acenode.accelerate.cuda_graph.engine.kernels_available", lambda *_: False)
    choice = choose_engine(task, torch.device("cuda"), None)
    assert (choice.name, type(choice.engine)) == ("graph", GraphEngine)


@pytest.mark.parametrize(("gradient", "trained_by", "records_steps"),
                         [("backprop", "native", True), ("checkpointed", "native", False),
                          ("adjoint", "reference", False)])
def test_time_series_do_not_use_the_graph_engine(gradient: str, trained_by: str, records_steps: bool,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    pool = fake_streams(monkeypatch)
    monkeypatch.setattr("acenode.accelerate.cuda_graph.engine.unsupported_reason", unsupported_reason)
    entry, log = experiments.get("physionet"), list[str]()
    task = entry.make(entry.configure("latent-ode", device="cpu", gradient=gradient), Path(), CPU)
    choice = choose_engine(task, torch.device("cuda"), "auto", Backend(log=log.append))
    assert (choice.name, isinstance(choice.engine, StepRecordings)) == (trained_by, records_steps)
    assert pool.in_use == int(records_steps)
    assert log == [choice.fallback] == [
        "graph engine not used: series models have GPU kernels or recorded steps of their own; training without it"]


def test_without_an_unused_stream_steps_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, log = fake_streams(monkeypatch), list[str]()
    while pool.acquire() is not None:
        pass
    entry = experiments.get("physionet")
    task = entry.make(entry.configure("latent-ode", device="cpu"), Path(), CPU)
    assert make_recordings(task.model, torch.device("cuda"), Backend(log=log.append)) is None
    assert log == ["steps are not recorded: other runs use all CUDA streams; training with ordinary steps"]


# Seeds of one configuration ------------------------------------------------------------------------------------------


LINE = "not trained as one computation with other seeds"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Attempts:
    runs = Attempts()
    monkeypatch.setattr(launcher_module, "attempt", runs)
    return runs


@pytest.fixture
def launcher(tmp_path: Path, started: Attempts) -> Iterator[Launcher]:
    made = Launcher(RunStore(tmp_path), tmp_path)
    yield made
    started.release.set()
    made.close()


def configure(method: str, seed: int, **given: Any) -> Config:
    return experiments.get("mnist").configure(method, seed=seed, **quick_settings(method, {"device": "cpu", **given}))


def test_seeds_that_are_queued_together_start_together(launcher: Launcher, started: Attempts) -> None:
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
        together: bool, launcher: Launcher, started: Attempts) -> None:
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
    return [create(RunStore(folder), configure(method, seed, **given)) for seed in range(seeds)]


def execute_together(runs: list[Run], **given: Any) -> list[Outcome]:
    store = RunStore(runs[0].path.parent)
    return execute_queued(launcher_for_seeds(runs[0].config(), store, store.root)[0], runs, **given)


@pytest.mark.long
def test_each_seed_is_an_ordinary_run_with_its_own_numbers(tmp_path: Path) -> None:
    together, alone = (make_runs(tmp_path / name, "odenet", 2) for name in ("together", "alone"))
    outcomes = execute_together(together)
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

    outcomes = execute_together(runs, stop=stop, progress=progress)
    assert {o.state for o in outcomes} == {"stopped"}
    assert execute(runs[1], tmp_path).state == "finished"
    (again,) = execute_together(runs[:1])
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
    for place in ("launcher", "study_run"):
        monkeypatch.setattr(f"acenode.execution.{place}.device_of", lambda name: torch.device("cuda"))
    monkeypatch.setattr(launcher_module, "device_names", lambda: ["cpu", "cuda:0"])
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    launcher, at_a_time = launcher_for_seeds(runs[0].config(), RunStore(runs[0].path.parent), tmp_path)
    assert (at_a_time, launcher.limits) == (6, {"cpu": 1, "cuda:0": 6})
    outcomes = execute_queued(launcher, runs, progress=lambda run, status: seen.append(run.id))
    assert devices == ["cuda:0", "cuda:0"]
    assert [(o.run.id, o.state) for o in outcomes] == [(run.id, "finished") for run in runs]
    assert all(o.metrics == (o.run.result() or {})["test"] for o in outcomes)
    assert set(seen) == {run.id for run in runs}
    for run in runs:
        assert f"{LINE}: on a GPU every run has a process of its own" in (run.path / "log.txt").read_text()
