"""Recorded steps of series models on a GPU: they train as ordinary steps do, alone and beside other runs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from graph_training import CUDA, iterate, parameters, reserved_bytes
from problems import relative

from acenode import experiments
from acenode.accelerate.cuda_graph.series import StepRecordings
from acenode.backend import Backend
from acenode.device.streams import own_stream, stream_pool
from acenode.execution.engine_choice import choose_engine
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("exact")]


def train(recorded: bool, method: str = "ace", batches: int = 4, experiment: str = "activity",
          **given: Any) -> tuple[list[dict[str, float]], torch.Tensor, list[str]]:
    """Train a few batches; return their records, the parameters, and the log."""
    entry, log = experiments.get(experiment), list[str]()
    with own_stream(CUDA):
        task = entry.make(entry.configure(method, device="cuda", **given), Path(), CUDA)
        engine = choose_engine(task, CUDA, "auto", Backend(log=log.append)).engine if recorded else None
        assert isinstance(engine, StepRecordings) == recorded
        task.model.train()
        trainer = Trainer(task, task.recipe(), SilentListener(), engine)
        try:
            records = iterate(trainer, batches)
            return records, parameters(trainer).clone(), log
        finally:
            if engine is not None:
                engine.close()


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


def test_runs_in_threads_train_as_they_do_alone_and_free_their_memory() -> None:
    train(True)
    before, streams = reserved_bytes(), stream_pool(CUDA).in_use
    alone = {seed: train(True, seed=seed)[1] for seed in range(3)}
    together: dict[int, torch.Tensor] = {}

    def train_beside(seed: int) -> None:
        together[seed] = train(True, seed=seed)[1]

    threads = [threading.Thread(target=train_beside, args=(seed,)) for seed in alone]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, expected in alone.items():
        assert relative(together[seed], expected) < 1e-2
    alone.clear()
    together.clear()
    assert stream_pool(CUDA).in_use == streams
    assert reserved_bytes() <= before + 64e6
