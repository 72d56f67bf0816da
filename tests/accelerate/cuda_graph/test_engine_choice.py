"""When the graph engine is used, when it makes room, when it gives up, and what it says of that; without a GPU."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from at_once import AtOnce, train
from problems import relative

from acenode import experiments
from acenode.accelerate.cuda_graph.capture import POOL, Streams, leave
from acenode.accelerate.cuda_graph.graph import GraphEngine, engine_for, obstacle
from acenode.accelerate.cuda_graph.graphed import GraphedPass
from acenode.execution.execute import create, execute
from acenode.runs.store import RunStore


class Numbered(NamedTuple):
    cuda_stream: int


def in_turn() -> Streams:
    """Streams that are handed out as torch does."""
    turn = itertools.count()
    return Streams(torch.device("cuda"), lambda device: Numbered(next(turn) % POOL))  # type: ignore[arg-type]


def test_streams_that_come_round_again_are_not_given_twice() -> None:
    streams = in_turn()
    taken = [streams.take() for _ in range(POOL + 3)]
    assert taken[POOL:] == [None] * 3
    assert len({s.cuda_stream for s in taken if s is not None}) == POOL
    assert taken[7] is not None
    streams.give_back(taken[7])
    assert streams.take() is taken[7]


def test_what_torch_keeps_is_given_back_when_the_last_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    streams, cleared = in_turn(), []
    monkeypatch.setattr("acenode.accelerate.cuda_graph.capture._OF", {0: in_turn(), 1: streams})
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: cleared.append("workspaces"), raising=False)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: cleared.append("cache"))
    first, second = streams.take(), streams.take()
    assert first is not None
    assert second is not None
    streams.give_back(first)
    leave()
    assert not cleared
    streams.give_back(second)
    leave()
    assert cleared == ["workspaces", "cache"]  # the first go to the cache too


def some_streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    """For engines that never record."""
    streams = in_turn()
    monkeypatch.setattr("acenode.accelerate.cuda_graph.graph.streams_of", lambda device: streams)
    monkeypatch.setattr("acenode.accelerate.cuda_graph.graph.Recorder", lambda stream: AtOnce())
    monkeypatch.setattr("acenode.accelerate.cuda_graph.graph.obstacle", lambda task, device: None)
    return streams


def small_task() -> Any:
    entry = experiments.get("mnist")
    return entry.make(entry.configure("odenet", device="cpu"), Path(), torch.device("cpu"))


def test_an_engine_that_cannot_be_made_keeps_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    streams, task, cpu = some_streams(monkeypatch), small_task(), torch.device("cpu")

    def short(*_: object) -> bool:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr("acenode.accelerate.cuda_graph.graph.compiler", short)
        for _ in range(POOL + 1):
            with pytest.raises(torch.OutOfMemoryError):
                engine_for(task, cpu, "auto", print)
    assert len(streams.idle) == 1
    log: list[str] = []
    names = [engine_for(task, cpu, "graph", log.append)[0] for _ in range(POOL + 1)]
    assert names == ["graph"] * POOL + ["native"]
    assert log == ["graph engine not used: other runs have all the streams that torch has; training without it"]


@pytest.mark.parametrize(("iterations", "compiles"), [(None, True), (4999, False), (5000, True)])
def test_torch_compiles_for_long_trainings(iterations: int | None, compiles: bool,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    some_streams(monkeypatch)
    engine = engine_for(small_task(), torch.device("cpu"), "auto", print, iterations)[1]
    assert isinstance(engine, GraphEngine)
    assert engine.compiles == compiles


def few_places(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr("acenode.accelerate.cuda_graph.graph.PLACES", 1)
    monkeypatch.setattr("acenode.accelerate.cuda_graph.graph.MOST_PLACES", most)


@pytest.mark.parametrize("initial", ["conv", "correlation"])
def test_a_solve_of_too_many_steps_is_left_to_the_plain_trainer(initial: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few_places(monkeypatch, most=1)
    log: list[str] = []
    (plain, _), (made, _) = train(False, initial=initial), train(True, log=log, initial=initial)
    for name, tensor in plain.task.model.state_dict().items():
        assert torch.equal(made.task.model.state_dict()[name], tensor), name
    assert log[1:] == ["graph engine not used: a solve of pass one took more than 1 steps; training without it"]
    assert isinstance(made.engine, GraphEngine)
    assert made.engine.given_up


def test_recordings_make_room_for_solves_of_more_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    few_places(monkeypatch, most=64)
    log: list[str] = []
    (plain, expected), (made, _) = train(False, 5, "odenet"), train(True, 5, "odenet", log=log)
    assert expected[0]["steps"] > 1  # more than there were places at first
    assert isinstance(made.engine, GraphEngine)
    places = made.engine.passes["one"].steps.span.places
    assert 1 < places < 64
    again = [line for line in log if "recorded for" in line]
    assert again[0] == "graph engine: a solve of pass one took more than 1 steps: the pass is recorded for 2"
    assert len(again) == places.bit_length() - 1
    for name, tensor in plain.task.model.state_dict().items():
        assert relative(made.task.model.state_dict()[name], tensor) < 1e-4, name


@pytest.mark.parametrize(("short", "line"), [
    (False, "graph engine: kernels do not run here (RuntimeError: no such kernel): torch's operations are recorded"),
    (True, "graph engine not used: OutOfMemoryError: CUDA out of memory; training without it")])
def test_kernels_that_do_not_run_cost_the_kernels_alone(short: bool, line: str,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acenode.accelerate.cuda_graph.graph.compiler", lambda *_: True)
    encode = GraphedPass._encode

    def refuses(self: GraphedPass) -> None:
        if self.kernels:
            refusal = torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("no such kernel\nwith details")
            raise refusal[0 if short else 1]
        encode(self)

    monkeypatch.setattr(GraphedPass, "_encode", refuses)
    log: list[str] = []
    (plain, _), (made, _) = train(False), train(True, log=log)
    assert [x for x in log if "recorded in" not in x] == [line]
    assert isinstance(made.engine, GraphEngine)
    assert made.engine.given_up == short
    for name, tensor in plain.task.model.state_dict().items():
        assert relative(made.task.model.state_dict()[name], tensor) < 1e-4, name


def test_a_batch_of_another_shape_is_left_to_the_plain_trainer() -> None:
    log: list[str] = []
    (plain, _), (made, _) = train(False, 1), train(True, 1, log=log)
    before = len(log)
    for trainer in (plain, made):
        whole_batch = trainer.task.batch(0, 1)
        trainer.task.batch = lambda *_, batch=whole_batch: tuple(x[:3] for x in batch)  # type: ignore[method-assign]
        trainer.train_batch()
    assert log[before:] == ["graph engine: a batch has another shape than the first: such passes are done in native "
                            "steps"]
    for name, tensor in plain.task.model.state_dict().items():
        assert relative(made.task.model.state_dict()[name], tensor) < 1e-4, name


def test_what_cannot_be_recorded_is_left_to_the_plain_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(self: GraphedPass) -> None:
        raise RuntimeError("no such operation\nwith details")

    monkeypatch.setattr(GraphedPass, "_encode", refuses)
    log: list[str] = []
    (plain, _), (made, _) = train(False, 1), train(True, 0, log=log)
    assert isinstance(made.engine, GraphEngine)
    made.engine.on_giving_up = lambda: log.append("told")
    made.train_batch()
    for name, tensor in plain.task.model.state_dict().items():
        assert torch.equal(made.task.model.state_dict()[name], tensor), name
    assert log == ["graph engine not used: RuntimeError: no such operation; training without it", "told"]


def test_the_engine_says_why_it_is_not_used() -> None:
    entry, log = experiments.get("mnist"), list[str]()

    def chosen(method: str, **given: Any) -> str | None:
        task = entry.make(entry.configure(method, device="cpu", **given), Path(), torch.device("cpu"))
        return engine_for(task, torch.device("cpu"), task.config.get("engine"), log.append)[0]

    assert [chosen("ace"), chosen("ace", engine="reference"), chosen("resnet"), chosen("rknet")] == [
        "native", "reference", None, "reference"]
    assert log == []
    assert chosen("ace", engine="graph") == "native"
    assert log == ["graph engine not used: it needs a CUDA device; training without it"]

    def against(**given: Any) -> str | None:
        return obstacle(entry.make(entry.configure("ace", **given), Path(), torch.device("cpu")), torch.device("cuda"))

    assert against(solver="rk4", step_size=0.5) is None
    assert against(solver="rk4", step_size=1e-3) == "rk4 would take more than 256 steps"
    assert against(solver="rk4", step_size=0.5, attention="fixed", initial="conv") is None
    assert "one more than rk4 makes" in (against(solver="rk4", step_size=0.5, attention="fixed") or "")
    assert "one more than adaptive_heun makes" in (against(solver="adaptive_heun", attention="fixed") or "")
    assert against(solver="adaptive_heun") is against(solver="bosh3", attention="fixed") is None


@pytest.mark.parametrize(("gradient", "trained_by"), [("backprop", "native"), ("adjoint", "reference")])
def test_series_have_kernels_of_their_own(gradient: str, trained_by: str) -> None:
    entry, log = experiments.get("physionet"), list[str]()
    task = entry.make(entry.configure("latent-ode", device="cpu", gradient=gradient), Path(), torch.device("cpu"))
    assert engine_for(task, torch.device("cuda"), "auto", log.append) == (trained_by, None)
    assert log == ["graph engine not used: series have kernels of their own; training without it"]


def test_a_run_says_what_trained_it(tmp_path: Path) -> None:
    config = experiments.get("mnist").configure("odenet", device="cpu", engine="graph", epochs=1, analysis=False,
                                                batch_size=512)
    outcome = execute(create(RunStore(tmp_path), config), tmp_path)
    assert outcome.state == "finished"
    assert outcome.run.description()["trained_by"] == "native"
    assert (outcome.run.path / "log.txt").read_text().count("graph engine not used: it needs a CUDA device") == 1
