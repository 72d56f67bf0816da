"""The graph engine without a GPU: when it records a pass again, when it disables itself, and what it logs."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from eager_recorder import ImmediateRecorder, train
from problems import relative

from acenode.accelerate.cuda_graph.engine import GraphEngine
from acenode.accelerate.cuda_graph.passes import RecordedPass, StepPass
from acenode.training.passes import PassSpec


def small_capacity(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr("acenode.accelerate.cuda_graph.engine.CAPACITY", 1)
    monkeypatch.setattr("acenode.accelerate.cuda_graph.engine.MAX_CAPACITY", most)


@pytest.mark.parametrize("initial", ["conv", "correlation"])
def test_a_solve_of_too_many_steps_disables_the_engine(initial: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small_capacity(monkeypatch, most=1)
    log: list[str] = []
    (plain, _), (made, _) = train(False, initial=initial), train(True, log=log, initial=initial)
    for name, tensor in plain.task.model.state_dict().items():
        assert torch.equal(made.task.model.state_dict()[name], tensor), name
    assert log[1:] == ["graph engine not used: a solve of pass one took more than 1 steps; training without it"]
    assert isinstance(made.engine, GraphEngine)
    assert made.engine.disabled


def test_no_garbage_is_collected_while_a_pass_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Freeing recordings that were dropped would end the one that is being made."""
    enabled: list[bool] = []
    monkeypatch.setattr(ImmediateRecorder, "record", lambda self, work: (enabled.append(gc.isenabled()), work)[1])
    train(True, 1)
    assert enabled
    assert not any(enabled)
    assert gc.isenabled()


def test_a_pass_is_recorded_again_for_solves_of_more_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    small_capacity(monkeypatch, most=64)
    log: list[str] = []
    (plain, expected), (made, _) = train(False, 5, "odenet"), train(True, 5, "odenet", log=log)
    assert expected[0]["steps"] > 1  # more than the first capacity
    assert isinstance(made.engine, GraphEngine)
    capacity = made.engine.passes["one"].steps.span.capacity
    assert 1 < capacity < 64
    again = [line for line in log if "recorded for" in line]
    assert again[0] == "graph engine: a solve of pass one took more than 1 steps: the pass is recorded for 2"
    assert len(again) == capacity.bit_length() - 1
    for name, tensor in plain.task.model.state_dict().items():
        assert relative(made.task.model.state_dict()[name], tensor) < 1e-4, name


class OneStream(ImmediateRecorder):
    """Like recordings of one stream in torch: when one is freed, those that remain must not be replayed."""

    def __init__(self) -> None:
        self.usable: set[Callable[[], None]] = set()

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        def replay() -> None:
            assert replay in self.usable, "a recording that was freed beside this one"
            work()
        self.usable.add(replay)
        return replay

    def free(self, replays: list[Callable[[], None]]) -> None:
        self.usable.clear()


@pytest.mark.parametrize("fails", [False, True])
def test_no_pass_is_replayed_after_another_one_was_freed(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not fails:
        small_capacity(monkeypatch, most=64)
    monkeypatch.setattr("eager_recorder.ImmediateRecorder", OneStream)
    monkeypatch.setattr("acenode.accelerate.cuda_graph.engine.kernels_available", lambda *_: True)
    record, tries = GraphEngine._record, list[str]()

    def record_with_trouble(self: GraphEngine, spec: PassSpec, batch: Any) -> RecordedPass:
        tries.append(spec.name)
        self.capacities["two"] = 64  # so that it stays while pass one grows
        if fails and len(tries) == 2:
            self.recorder.free([])  # what the attempt has recorded
            raise RuntimeError("no such kernel")
        kernels, self.kernels = self.kernels, False  # they need a GPU
        try:
            return record(self, spec, batch)
        finally:
            self.kernels = kernels

    monkeypatch.setattr(GraphEngine, "_record", record_with_trouble)
    (plain, _), (made, _) = train(False, 4), train(True, 4)
    assert tries.count("one") > 1
    assert not made.engine.disabled  # type: ignore[union-attr]
    for name, tensor in plain.task.model.state_dict().items():
        assert relative(made.task.model.state_dict()[name], tensor) < 1e-4, name


@pytest.mark.parametrize(("short", "line"), [
    (False, "graph engine: kernels do not run here (RuntimeError: no such kernel): torch's operations are recorded"),
    (True, "graph engine not used: OutOfMemoryError: CUDA out of memory; training without it")])
def test_kernels_that_fail_are_replaced_by_torch_operations(short: bool, line: str,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acenode.accelerate.cuda_graph.engine.kernels_available", lambda *_: True)
    encode = StepPass._encode

    def refuses(self: StepPass) -> None:
        if self.kernels:
            refusal = torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("no such kernel\nwith details")
            raise refusal[0 if short else 1]
        encode(self)

    monkeypatch.setattr(StepPass, "_encode", refuses)
    log: list[str] = []
    (plain, _), (made, _) = train(False), train(True, log=log)
    assert [x for x in log if "recorded in" not in x] == [line]
    assert isinstance(made.engine, GraphEngine)
    assert made.engine.disabled == short
    for name, tensor in plain.task.model.state_dict().items():
        assert relative(made.task.model.state_dict()[name], tensor) < 1e-4, name


def test_a_batch_of_another_shape_is_trained_without_recordings() -> None:
    log: list[str] = []
    (plain, _), (made, _) = train(False, 1), train(True, 1, log=log)
    before = len(log)
    for trainer in (plain, made):
        whole_batch = trainer.task.batch(0, 1)
        trainer.task.batch = lambda *_, batch=whole_batch: tuple(x[:3] for x in batch)  # type: ignore[method-assign]
        trainer.train_batch()
    assert log[before:] == ["graph engine: a batch has another shape than the first: it is trained in native "
                            "steps"]
    for name, tensor in plain.task.model.state_dict().items():
        assert relative(made.task.model.state_dict()[name], tensor) < 1e-4, name


def test_a_pass_that_cannot_be_recorded_disables_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(self: StepPass) -> None:
        raise RuntimeError("no such operation\nwith details")

    monkeypatch.setattr(StepPass, "_encode", refuses)
    log: list[str] = []
    (plain, _), (made, _) = train(False, 1), train(True, 0, log=log)
    assert isinstance(made.engine, GraphEngine)
    made.engine.on_fallback = lambda line: log.append(f"fallback: {line}")
    made.train_batch()
    for name, tensor in plain.task.model.state_dict().items():
        assert torch.equal(made.task.model.state_dict()[name], tensor), name
    line = "graph engine not used: RuntimeError: no such operation; training without it"
    assert log == [line, f"fallback: {line}"]


