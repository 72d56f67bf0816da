"""Passes and the engine that records them, computed directly instead of recorded, so that no GPU is needed."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from eager_recorder import ImmediateRecorder, gradients, iterate, parameters, train
from problems import hasten, relative

from acenode.accelerate.cuda_graph.engine import MAX_KEPT, GraphEngine, StepPass
from acenode.training.trainer import OptimiserGroup, Trainer


def assert_same(made: Trainer, plain: Trainer, within: float = 1e-4) -> None:
    for name, tensor in plain.task.model.state_dict().items():
        assert relative(made.task.model.state_dict()[name], tensor) <= within, name


def engine_of(trainer: Trainer) -> GraphEngine:
    assert isinstance(trainer.engine, GraphEngine)
    return trainer.engine


@pytest.mark.parametrize(("method", "settings"), [
    ("ace", {"initial": "correlation", "weight_decay": 1e-3}),
    ("ace", {"schedule": "joint", "gradient": "checkpointed"}),
    ("ace", {"detach_attention": True, "penalty": "l1"}), ("ace", {"attention": "fixed"}),
    ("ace", {"attention": "fixed", "initial": "conv", "gradient": "checkpointed"}),
    ("augmented", {"solver": "bosh3", "momentum": 0.0}),
    ("ace", {"solver": "rk4", "step_size": 0.4}),
    ("odenet", {"solver": "euler", "step_size": 0.05}), ("rknet", {"step_size": 1.0, "gradient": "backprop"}),
    ("ace", {"solver": "midpoint", "step_size": 0.5, "attention": "fixed", "initial": "conv",
             "gradient": "checkpointed"}),
    ("resnet", {}), ("resnet", {"weight_decay": 1e-3, "momentum": 0.0}), ("rknet", {}), ("rknet", {"step_size": 0.4}),
    ("ace", {"solver": "rk4", "step_size": 0.5, "gradient": "adjoint", "initial": "correlation"}),
    ("ace", {"solver": "euler", "step_size": 0.25, "gradient": "adjoint", "detach_attention": True}),
    ("augmented", {"solver": "rk4", "step_size": 1.0, "gradient": "adjoint"})])
def test_iterations_equal_those_without_the_engine(method: str, settings: dict[str, Any]) -> None:
    log: list[str] = []
    (plain, expected), (made, found) = (train(engine, method=method, log=log, **settings) for engine in (False, True))
    assert all("recorded in" in line for line in log), log
    recorded = next(iter(made.engine.passes.values()))  # type: ignore[union-attr]
    # a fixed grid evaluates the slope at the very end too, unless its adjoint is recorded
    more = isinstance(recorded, StepPass) and not recorded.steps.tableau.adaptive
    assert_same(made, plain)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.keys() == theirs.keys()
        for key in mine.keys() & {"L_h", "accuracy", "grad_h", "steps"}:
            assert mine[key] == pytest.approx(theirs[key], rel=1e-3), key
        assert mine.get("nfe_forward", 0) - theirs.get("nfe_forward", 0) == more
    assert made.main_optimiser.state_dict()["param_groups"] == plain.main_optimiser.state_dict()["param_groups"]
    states = [t.main_optimiser.state_dict()["state"] for t in (made, plain)]
    assert states[0].keys() == states[1].keys()


@pytest.mark.parametrize(("factor", "kept"), [(30, True), (400, False)])
def test_rejected_steps_are_not_differentiated(factor: float, kept: bool) -> None:
    """Neither among the first attempts, whose graphs are kept, nor among later ones."""
    settings = {"rtol": 1e-3, "atol": 1e-3, "learning_rate": 1e-12}
    (plain, expected), (made, found) = (train(engine, 3, "odenet", factor=factor, **settings)
                                        for engine in (False, True))
    assert found[-1]["rejected"]
    assert (found[-1]["nfe_backward"] == 1) == kept
    assert [r["steps"] for r in found] == [r["steps"] for r in expected]
    assert relative(gradients(made), gradients(plain)) < 1e-2


def test_attempts_after_the_end_update_no_average() -> None:
    """Fixed attention averages correlations; a replay may attempt more steps than the solve needs."""
    (plain, _), (made, _) = (train(engine, 1, attention="fixed") for engine in (False, True))
    engine_of(made).passes["one"].expected += 2  # type: ignore[attr-defined]
    for trainer in (plain, made):
        trainer.train_batch()
    seen = [trainer.task.model.ode.q.seen for trainer in (plain, made)]
    assert float(seen[0].sum()) > 0
    assert torch.equal(*seen)


@pytest.mark.parametrize(("first", "then", "disabled"), [(1, 200, False), (200, 10, True), (2000, 1, True)])
def test_correlations_are_averaged_in_order(first: float, then: float, disabled: bool) -> None:
    """By attempts whose graphs are kept; a solve that takes more, the first or a later one, disables the engine."""
    settings = {"attention": "fixed", "rtol": 1e-3, "atol": 1e-3, "learning_rate": 1e-12}
    log: list[str] = []
    plain, made = (train(engine, 1, log=log, factor=first, **settings)[0] for engine in (False, True))
    for trainer in (plain, made):
        hasten(trainer.task.layer, then)  # type: ignore[attr-defined]
        record = trainer.train_batch()
        assert (record["steps"] + record["rejected"] > MAX_KEPT) == disabled
    assert engine_of(made).disabled == disabled
    assert ("graph engine not used: fixed attention can average correlations only in solves of at most 16 steps; "
            "training without it" in log) == disabled
    for name, tensor in plain.task.layer.named_buffers():  # type: ignore[attr-defined]
        assert relative(dict(made.task.layer.named_buffers())[name], tensor) < 1e-4, name  # type: ignore[attr-defined]


@pytest.mark.parametrize(("settings", "by_graph"), [
    ({"momentum": 0.9, "nesterov": True}, True), ({"momentum": 0.9, "maximize": True}, True),
    ({"momentum": 0.9, "dampening": 0.5}, False)])
def test_sgd_updates_equal_those_of_torch(settings: dict[str, Any], by_graph: bool) -> None:
    log: list[str] = []
    found = []
    for engine in (False, True):
        trainer = train(engine, 0, "odenet", log=log)[0]
        (group,) = trainer.phase_one.groups
        optimiser = torch.optim.SGD(group.parameters, lr=1e-3, **settings)
        trainer.main_optimiser = optimiser
        groups = (OptimiserGroup(group.parameters, optimiser),)
        trainer.phase_one = dataclasses.replace(trainer.phase_one, groups=groups)
        for _ in range(3):
            trainer.train_batch()
        found.append(parameters(trainer))
    assert relative(*found) < 1e-5
    assert ("graph engine not used: the optimiser is not plain SGD; training without it" in log) != by_graph


def small_capacity(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr("acenode.accelerate.cuda_graph.engine.CAPACITY", 1)
    monkeypatch.setattr("acenode.accelerate.cuda_graph.engine.MAX_CAPACITY", most)


@pytest.mark.parametrize("initial", ["conv", "correlation"])
def test_a_solve_of_too_many_steps_disables_the_engine(initial: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small_capacity(monkeypatch, most=1)
    log: list[str] = []
    (plain, _), (made, _) = train(False, initial=initial), train(True, log=log, initial=initial)
    assert_same(made, plain, 0.0)
    assert log[1:] == ["graph engine not used: a solve of pass one took more than 1 steps; training without it"]
    assert engine_of(made).disabled


def test_a_pass_is_recorded_again_for_solves_of_more_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    small_capacity(monkeypatch, most=64)
    log: list[str] = []
    (plain, expected), (made, _) = train(False, 5, "odenet"), train(True, 5, "odenet", log=log)
    assert expected[0]["steps"] > 1  # more than the first capacity
    capacity = engine_of(made).passes["one"].steps.control.capacity  # type: ignore[attr-defined]
    assert 1 < capacity < 64
    again = [line for line in log if "recorded for" in line]
    assert again[0] == "graph engine: a solve of pass one took more than 1 steps: the pass is recorded for 2"
    assert len(again) == capacity.bit_length() - 1
    assert_same(made, plain)


class OneStream(ImmediateRecorder):
    """Like recordings of one stream in torch: when one is freed, those that remain must not be replayed.

    Freeing recordings that were dropped would end the one that is being made: no garbage is collected meanwhile.
    """

    def __init__(self) -> None:
        self.usable: set[Callable[[], None]] = set()

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        assert not gc.isenabled()

        def replay() -> None:
            assert replay in self.usable, "a recording that was freed beside this one"
            work()
        self.usable.add(replay)
        return replay

    def free(self) -> None:
        self.usable.clear()


def test_no_pass_is_replayed_after_another_one_was_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    small_capacity(monkeypatch, most=64)
    monkeypatch.setattr("eager_recorder.ImmediateRecorder", OneStream)
    plain, made = (train(engine, 0)[0] for engine in (False, True))
    engine_of(made).capacities["two"] = 64  # so that it stays while pass one grows
    for trainer in (plain, made):
        iterate(trainer, 4)
    assert engine_of(made).capacities["one"] > 1
    assert not engine_of(made).disabled
    assert gc.isenabled()
    assert_same(made, plain)


NOT_USED = "graph engine not used: {}; training without it"


@pytest.mark.parametrize(("error", "kernels", "line"), [
    (RuntimeError("no such kernel\nwith details"), True,
     "graph engine: kernels do not run here (RuntimeError: no such kernel): torch's operations are recorded"),
    (torch.OutOfMemoryError("CUDA out of memory"), True, NOT_USED.format("OutOfMemoryError: CUDA out of memory")),
    (RuntimeError("no such operation\nwith details"), False, NOT_USED.format("RuntimeError: no such operation"))])
def test_what_fails_is_recorded_without_kernels_or_not_at_all(error: Exception, kernels: bool, line: str,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    encode = StepPass._encode

    def refuses(self: StepPass) -> None:
        if self.kernels == kernels:
            raise error
        encode(self)

    monkeypatch.setattr(StepPass, "_encode", refuses)
    log, disabled = list[str](), "not used" in line
    (plain, _), (made, _) = train(False, 1), train(True, 0, log=log)
    engine_of(made).on_fallback, engine_of(made).kernels = lambda line: log.append(f"fallback: {line}"), kernels
    made.train_batch()
    assert [x for x in log if "recorded in" not in x] == [line, *[f"fallback: {line}"] * disabled]
    assert engine_of(made).disabled == disabled
    assert_same(made, plain, 0.0 if disabled else 1e-4)


def test_a_batch_of_another_shape_is_trained_without_recordings() -> None:
    log: list[str] = []
    (plain, _), (made, _) = train(False, 1), train(True, 1, log=log)
    before = len(log)
    for trainer in (plain, made):
        whole_batch = trainer.task.batch(0, 1)
        trainer.task.batch = lambda *_, batch=whole_batch: tuple(x[:3] for x in batch)  # type: ignore[method-assign]
        trainer.train_batch()
    assert log[before:] == ["graph engine: a batch has another shape than the first: it is trained in native steps"]
    assert_same(made, plain)
