"""Recorded passes and steps on a GPU give the numbers of native steps, alone and beside other runs."""

from __future__ import annotations

import contextlib
import copy
import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from eager_recorder import image_settings, iterate, parameters, trainer
from problems import relative
from quick_settings import QUICK

from acenode import experiments
from acenode.accelerate.cuda_graph.engine import GraphEngine
from acenode.accelerate.cuda_graph.series import StepRecordings
from acenode.backend import Backend
from acenode.device.gpu import STREAMS_PER_DEVICE, own_stream
from acenode.execution.engine_choice import EngineChoice, choose_engine
from acenode.execution.execute import Outcome, create, execute
from acenode.experiments.image_task import ImageTask
from acenode.runs.store import RunStore
from acenode.training.trainer import Trainer

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("exact")]
CUDA = torch.device("cuda")


def chosen(task: Any, backend: Backend) -> Any:
    return choose_engine(task, CUDA, task.config.get("engine"), backend).engine


def images(graph: bool, method: str = "ace", log: list[str] | None = None, **given: Any) -> Trainer:
    settings = {"device": "cuda", "batch_size": 64, "learning_rate": 0.01} | image_settings(method, 1e-3, given)
    return trainer(method, engine=chosen if graph else None, log=log, **settings)


def apart(one: Trainer, other: Trainer, start: torch.Tensor) -> float:
    """Return the distance between two trainers, relative to how far they moved from the start."""
    return relative(parameters(one) - start, parameters(other) - start)


def close(t: Trainer) -> None:
    assert isinstance(t.engine, GraphEngine)
    t.engine.close()


def reserved_bytes() -> int:
    """Return the bytes of GPU memory that torch holds after freeing what is unused."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


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
    plain, graphed = images(False, method, **settings), images(True, method, log, **settings)
    start = parameters(plain)
    expected, found = iterate(plain, 4), iterate(graphed, 4)
    assert not graphed.engine.disabled, log  # type: ignore[union-attr]
    assert apart(graphed, plain, start) < 1e-2
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.keys() == theirs.keys()
        # roundings grow: within four iterations the kernels' order of summation moves a gradient by up to 1.1e-2, and a
        # change of 6e-8 in the first parameters by up to 5e-3 (H200)
        for key, within in (("L_h", 1e-4), ("L_a", 1e-4), ("grad_h", 3e-2), ("grad_a", 3e-2)):
            if key in theirs:
                assert mine[key] == pytest.approx(theirs[key], rel=within), key
        stages = 13 if settings.get("solver") == "dopri8" else 6
        for key in mine.keys() & {"nfe_forward", "nfe_forward_a"}:
            assert abs(mine[key] - theirs[key]) <= (1 if "step_size" in settings else stages), key
    close(graphed)


def test_resuming_from_a_checkpoint_changes_nothing() -> None:
    whole, first, again, plain = (images(graph) for graph in (True, True, True, False))
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
    for t in (whole, first, again):
        close(t)


def train(recorded: bool, method: str = "ace", **given: Any) -> tuple[list[dict[str, float]], torch.Tensor, list[str]]:
    """Train a few batches of series; return their records, the parameters, and the log."""
    log: list[str] = []
    with own_stream(CUDA):
        made = trainer(method, "activity", chosen if recorded else None, log, device="cuda", **given)
        assert isinstance(made.engine, StepRecordings) == recorded
        try:
            return iterate(made, 4), parameters(made).clone(), log
        finally:
            if isinstance(made.engine, StepRecordings):
                made.engine.close()


@pytest.mark.parametrize(("method", "given"), [
    ("ace", {}), ("ace", {"initial": "dense"}), ("ace", {"attention": "fixed"}), ("ace", {"schedule": "joint"}),
    ("latent-ode", {}), ("augmented", {}), ("latent-ode", {"solver": "bosh3"})])
def test_training_is_that_of_ordinary_steps(method: str, given: dict[str, Any]) -> None:
    records, found, log = train(True, method, **given)
    wanted_records, wanted, _ = train(False, method, **given)
    assert any("steps of" in line and "combined by Triton" in line for line in log), log
    assert not any("not recorded" in line for line in log)
    for mine, theirs in zip(records, wanted_records, strict=True):
        assert mine["L_h"] == pytest.approx(theirs["L_h"], rel=1e-3)
        assert mine["grad_h"] == pytest.approx(theirs["grad_h"], rel=1e-2)
        assert abs(mine["nfe_forward"] - theirs["nfe_forward"]) <= 6
        assert 0 < mine["nfe_backward"] < mine["nfe_forward"]  # the stages of accepted steps
    assert relative(found, wanted) < 1e-2


def run(tmp_path: Path, **given: Any) -> Outcome:
    config = experiments.get("mnist").configure("ace", **{**QUICK, "batch_size": 64, "device": "cuda", **given})
    return execute(create(RunStore(tmp_path), config), tmp_path)


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


def test_five_runs_in_threads_equal_each_alone() -> None:
    def train(seed: int) -> torch.Tensor:
        with own_stream(CUDA):
            t = images(True, seed=seed)
            iterate(t, 6)
            found = parameters(t)
            close(t)
        return found

    alone = [train(seed) for seed in range(5)]
    with ThreadPoolExecutor(5) as pool:
        for expected, found in zip(alone, pool.map(train, range(5)), strict=True):
            assert relative(found, expected) < 1e-6


def test_no_two_runs_share_a_stream() -> None:
    """torch returns its first stream again after the last."""
    with contextlib.ExitStack() as stack:
        had = []
        for _ in range(STREAMS_PER_DEVICE + 8):
            stack.enter_context(own_stream(CUDA))
            had.append(torch.cuda.current_stream().cuda_stream)
        assert len(set(had)) == STREAMS_PER_DEVICE
        log: list[str] = []
        crowded = images(True, log=log)
        assert crowded.engine is None
        assert log == ["graph engine not used: other runs use all CUDA streams; training without it"]
        iterate(crowded, 2)
    again = images(True)
    iterate(again, 2)
    close(again)
    assert relative(parameters(crowded), parameters(again)) < 1e-3


def test_gpu_memory_is_freed_after_twenty_runs_in_threads(tmp_path: Path) -> None:
    """Without emptying torch's cache in the test."""
    store, held = RunStore(tmp_path), []

    def train(seed: int) -> None:
        config = experiments.get("mnist").configure("ace", seed=seed, **QUICK | {"device": "cuda"})
        outcome = execute(create(store, config), tmp_path)
        assert outcome.state == "finished", outcome.error

    torch.cuda.reset_peak_memory_stats()
    for turn in range(4):
        with ThreadPoolExecutor(5) as pool:
            list(pool.map(train, range(5 * turn, 5 * turn + 5)))
        held.append((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()))
    print(f"held after each five: {held}, at most {torch.cuda.max_memory_reserved()}")
    assert len([run for run in store if run.status()["state"] == "finished"]) == 20
    (allocated, reserved), (allocated_last, reserved_last) = held[0], held[-1]
    assert allocated_last <= allocated
    assert reserved_last <= reserved
    assert reserved <= 0.05 * torch.cuda.max_memory_reserved()
