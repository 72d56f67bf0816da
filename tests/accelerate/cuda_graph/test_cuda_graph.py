"""Recorded passes on a GPU give the numbers of native steps."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from graph_training import CUDA, apart, close, follow, gradients, iterate, parameters, trainer
from problems import relative

from acenode.accelerate.cuda_graph.engine import GraphEngine
from acenode.accelerate.triton_support import kernels_available
from acenode.backend import ACCELERATED, Backend
from acenode.bench.workloads import image_task
from acenode.execution.engine_choice import choose_engine
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("exact")]


@pytest.mark.parametrize(("method", "settings"), [
    ("ace", {}), ("ace", {"schedule": "joint"}), ("ace", {"detach_attention": True, "weight_decay": 1e-3}),
    ("ace", {"initial": "correlation"}), ("ace", {"attention": "none"}), ("ace", {"attention": "fixed"}),
    ("ace", {"attention": "fixed", "initial": "conv"}), ("odenet", {"solver": "bosh3"}),
    ("augmented", {"gradient": "checkpointed"}), ("augmented", {"augment": 5}),
    ("ace", {"schedule": "epoch", "batch_size": 512}), ("ace", {"size": "large", "batch_size": 16}),
    ("odenet", {"solver": "dopri8"}), ("ace", {"solver": "rk4", "step_size": 0.3}),
    ("odenet", {"solver": "euler", "step_size": 0.04}),
    ("ace", {"solver": "midpoint", "step_size": 0.5, "attention": "fixed", "initial": "conv"}),
    ("resnet", {}), ("resnet", {"size": "large", "weight_decay": 1e-3}), ("rknet", {}), ("rknet", {"step_size": 0.4}),
    ("ace", {"solver": "rk4", "step_size": 0.5, "gradient": "adjoint"}),
    ("odenet", {"solver": "euler", "step_size": 0.25, "gradient": "adjoint"})])
def test_iterations_equal_native_steps(method: str, settings: dict[str, Any]) -> None:
    log: list[str] = []
    plain, graphed = trainer(False, method, **settings), trainer(True, method, log, **settings)
    start = parameters(plain)
    expected, found = iterate(plain, 4), iterate(graphed, 4)
    assert not graphed.engine.disabled, log  # type: ignore[union-attr]
    assert apart(graphed, plain, start) < 1e-2
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.keys() == theirs.keys()
        # roundings grow: within four iterations the kernels' order of summation moves a gradient by up to 1.1e-2, and a
        # change of 6e-8 in the first parameters by up to 5e-3 (H200)
        for key, within in (("L_h", 1e-4), ("L_a", 1e-4), ("grad_h", 3e-2), ("grad_a", 3e-2)):
            assert mine.get(key) == pytest.approx(theirs.get(key), rel=within), key
        stages = 13 if settings.get("solver") == "dopri8" else 6
        for key in mine.keys() & {"nfe_forward", "nfe_forward_a"}:
            assert abs(mine[key] - theirs[key]) <= (1 if "step_size" in settings else stages), key
    close(graphed)


def test_a_batch_of_another_shape_is_trained_natively_and_the_next_by_graphs() -> None:
    log: list[str] = []
    plain, graphed = trainer(False), trainer(True, log=log)
    start = parameters(plain)
    for t in (plain, graphed):
        iterate(t, 2)
        usual = t.task.batch
        t.task.batch = lambda *at, usual=usual: tuple(x[:30] for x in usual(*at))  # type: ignore[method-assign]
        iterate(t, 1)
        t.task.batch = usual  # type: ignore[method-assign]
        iterate(t, 2)
    assert [line for line in log if "recorded in" not in line] == [
        "graph engine: a batch has another shape than the first: it is trained in native steps"]
    assert apart(graphed, plain, start) < 1e-2
    close(graphed)


@pytest.mark.parametrize("method", ["augmented", "resnet", "rknet"])
def test_baselines_of_mnist_size_equal_those_without_recordings(method: str) -> None:
    """Losses and gradients of iterations from equal parameters, with the 69 channels of Augmented-ODE-Net."""
    def made(graph: bool) -> Trainer:
        given = {} if method == "resnet" else {"engine": "auto"}
        task = image_task(method, "cuda", seed=0, **given)
        task.model.train()
        engine = choose_engine(task, CUDA, "graph", Backend(log=log.append)).engine if graph else None
        return Trainer(task, task.recipe(), SilentListener(), engine)

    log: list[str] = []
    plain, graphed = made(False), made(True)
    assert isinstance(graphed.engine, GraphEngine), log
    for _ in range(3):
        follow(graphed, plain)
        (expected,), (found,) = iterate(plain, 1), iterate(graphed, 1)
        assert found.keys() == expected.keys()
        assert found["L_h"] == pytest.approx(expected["L_h"], rel=1e-4)
        assert found["grad_h"] == pytest.approx(expected["grad_h"], rel=1e-3)
        assert relative(gradients(graphed), gradients(plain)) < 5e-3
    assert not graphed.engine.disabled, log
    if method != "resnet" and kernels_available(ACCELERATED, CUDA):
        assert all("fields by Triton" in line for line in log), log
    start = parameters(plain)
    follow(graphed, plain)
    iterate(plain, 4)
    iterate(graphed, 4)
    assert apart(graphed, plain, start) < 2e-2
    close(graphed)


@pytest.mark.parametrize("engine", ["auto", "reference"])
@pytest.mark.parametrize("method", ["ace", "odenet"])
def test_one_recorded_pass_equals_native_and_reference_steps(engine: str, method: str) -> None:
    """To 1e-4. torchdiffeq steps beyond the end and interpolates, so its gradient differs, within its own error."""
    def once(graph: bool, tolerance: float, **given: Any) -> tuple[dict[str, float], torch.Tensor]:
        t = trainer(graph, method, rtol=tolerance, atol=tolerance, learning_rate=1e-9, **given)
        record = iterate(t, 1)[0]
        found = gradients(t).clone()
        if graph:
            close(t)
        return record, found

    (record, found), (expected, theirs) = once(True, 1e-4), once(False, 1e-4, engine=engine)
    assert abs(record["nfe_forward"] - expected["nfe_forward"]) <= 6
    for key in {"L_h", "L_a", "grad_h", "grad_a"} & expected.keys():
        assert record[key] == pytest.approx(expected[key], rel=1e-4)
    apart, error = relative(found, theirs), relative(theirs, once(False, 1e-6, engine=engine)[1])
    print(f"{method} by graphs and by {engine}: gradients {apart:.1e} apart, error of the solver {error:.1e}")
    assert apart < (1e-4 if engine == "auto" else 1e-3)
    assert apart < 0.1 * error


def test_a_changed_learning_rate_is_used() -> None:
    plain, graphed = trainer(False), trainer(True)
    start = parameters(plain)
    for t in (plain, graphed):
        iterate(t, 2)
        t.epoch = 8  # two thirds of the training: a tenth of the rate
        assert iterate(t, 2)[-1]["lr"] == pytest.approx(1e-3)
    assert apart(graphed, plain, start) < 1e-2
    close(graphed)


def test_resuming_from_a_checkpoint_changes_nothing() -> None:
    whole, first, again, plain = trainer(True), trainer(True), trainer(True), trainer(False)
    start = parameters(whole)
    iterate(whole, 4)
    iterate(first, 2)
    checkpoint = copy.deepcopy(first.state_dict())  # copied for every load: a trainer updates the tensors it loads
    again.load_state_dict(copy.deepcopy(checkpoint))
    iterate(again, 2)
    assert apart(again, whole, start) < 1e-4
    plain.load_state_dict(copy.deepcopy(checkpoint))  # native steps from the same checkpoint
    iterate(plain, 2)
    assert apart(plain, whole, start) < 1e-2
    again.load_state_dict(copy.deepcopy(checkpoint))  # into a trainer that has recordings
    iterate(again, 2)
    assert apart(again, whole, start) < 1e-4
    for t in (whole, first, again):
        close(t)


def test_a_pass_is_recorded_again_for_solves_of_more_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acenode.accelerate.cuda_graph.engine.CAPACITY", 1)
    log: list[str] = []
    plain, graphed = trainer(False), trainer(True, log=log)
    start = parameters(plain)
    for t in (plain, graphed):
        iterate(t, 6)
    assert sum("took more than 1 steps: the pass is recorded for 2" in line for line in log) == 2, log
    assert "in native steps" not in "".join(log), log
    assert apart(graphed, plain, start) < 1e-2
    close(graphed)
