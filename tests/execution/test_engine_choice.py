"""Which engine trains a run, and the log line where the graph engine does not; without a GPU."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from eager_recorder import ImmediateRecorder

from acenode import experiments
from acenode.accelerate.cuda_graph.engine import GraphEngine, unsupported_reason
from acenode.accelerate.cuda_graph.series import StepRecordings, make_recordings
from acenode.backend import Backend
from acenode.device.gpu import STREAMS_PER_DEVICE, StreamPool
from acenode.execution.engine_choice import choose_engine

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
        for _ in range(STREAMS_PER_DEVICE + 1):
            with pytest.raises(torch.OutOfMemoryError):
                choose_engine(task, CPU, "auto")
    assert len(pool.idle) == 1
    log: list[str] = []
    names = [choose_engine(task, CPU, "graph", Backend(log=log.append)).name for _ in range(STREAMS_PER_DEVICE + 1)]
    assert names == ["graph"] * STREAMS_PER_DEVICE + ["native"]
    assert log == ["graph engine not used: other runs use all CUDA streams; training without it"]


@pytest.mark.parametrize(("iterations", "compiles"), [(None, True), (4999, False), (5000, True)])
def test_torch_compiles_only_for_long_trainings(iterations: int | None, compiles: bool,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    fake_streams(monkeypatch)
    engine = choose_engine(small_task(), CPU, "auto", iterations=iterations).engine
    assert isinstance(engine, GraphEngine)
    assert engine.compiles == compiles


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
