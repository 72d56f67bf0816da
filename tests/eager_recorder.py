"""Train with the CUDA graph engine on a CPU: a recorder runs the work directly instead of recording it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from problems import hasten

from acenode import experiments
from acenode.accelerate.cuda_graph.engine import GraphEngine
from acenode.backend import Backend
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer


class ImmediateRecorder:
    """A recorder that records nothing: each replay runs the work."""

    @contextlib.contextmanager
    def on_stream(self) -> Iterator[None]:
        yield

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        return work

    @contextlib.contextmanager
    def all_or_none(self) -> Iterator[None]:
        yield

    def trim(self) -> int:
        return 0

    def free(self, replays: list[Callable[[], None]]) -> None: ...
    def mark(self) -> None: ...
    def wait(self) -> None: ...
    def close(self) -> None: ...


def train(engine: bool, iterations: int = 2, method: str = "ace", log: list[str] | None = None,
          factor: float = 1.0, **given: Any) -> tuple[Trainer, list[dict[str, Any]]]:
    """Train a small model for a few iterations, with the graph engine or without; return trainer and records."""
    entry = experiments.get("mnist")
    settings: dict[str, Any] = {"device": "cpu", "batch_size": 4}
    if method not in ("resnet", "rknet") and "step_size" not in given:
        settings |= {"rtol": 1e-2, "atol": 1e-2}
    task = entry.make(entry.configure(method, **settings | given), Path(), torch.device("cpu"))
    if method != "resnet":
        hasten(task.layer, factor)
    trainer = Trainer(task, task.recipe(), SilentListener())
    if engine:
        backend = Backend(log=(log if log is not None else []).append)
        trainer.engine = GraphEngine(task, ImmediateRecorder(), torch.zeros(()), backend)  # type: ignore[arg-type]
    task.model.train()
    records = []
    for _ in range(iterations):
        records.append(trainer.train_batch())
        trainer.iteration += 1
    return trainer, [{k: float(v) for k, v in r.items()} for r in records]
