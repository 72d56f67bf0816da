"""Train a few iterations with an engine or without; on a CPU a recorder runs the work instead of recording it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from problems import hasten
from torch import Tensor

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

    def trim(self) -> int:
        return 0

    def free(self) -> None: ...
    def mark(self) -> None: ...
    def wait(self) -> None: ...
    def close(self) -> None: ...


def trainer(method: str, experiment: str = "mnist", engine: Callable[[Any, Backend], Any] | None = None,
            log: list[str] | None = None, factor: float = 1.0, **given: Any) -> Trainer:
    """Return a trainer; `engine` makes its engine of the task and of a backend that writes to `log`."""
    entry = experiments.get(experiment)
    config = entry.configure(method, **{"device": "cpu"} | given)
    task: Any = entry.make(config, Path(), torch.device(str(config.get("device"))))
    if factor != 1.0:
        hasten(task.layer, factor)
    task.model.train()
    made = engine(task, Backend(log=(log if log is not None else []).append)) if engine is not None else None
    return Trainer(task, task.recipe(), SilentListener(), made)


def iterate(t: Trainer, count: int = 1) -> list[dict[str, float]]:
    records = []
    for _ in range(count):
        records.append({k: float(v) for k, v in t.train_batch().items()})
        t.epoch, t.iteration = divmod(t.epoch * t.task.iterations + t.iteration + 1, t.task.iterations)
    return records


def image_settings(method: str, tolerance: float, given: dict[str, Any]) -> dict[str, Any]:
    if method in ("resnet", "rknet") or "step_size" in given:
        return given
    return {"rtol": tolerance, "atol": tolerance} | given


def train(engine: bool, iterations: int = 2, method: str = "ace", log: list[str] | None = None,
          factor: float = 1.0, **given: Any) -> tuple[Trainer, list[dict[str, float]]]:
    """Train a small model for a few iterations, with the graph engine or without; return trainer and records."""
    def make(task: Any, backend: Backend) -> GraphEngine:
        return GraphEngine(task, ImmediateRecorder(), torch.zeros(()), backend=backend)  # type: ignore[arg-type]

    made = trainer(method, engine=make if engine else None, log=log, factor=factor,
                   **{"batch_size": 4} | image_settings(method, 1e-2, given))
    return made, iterate(made, iterations)


def parameters(t: Trainer) -> Tensor:
    """Return all parameters as one vector."""
    return torch.cat([p.detach().flatten() for p in t.task.model.parameters()])


def gradients(t: Trainer) -> Tensor:
    """Return the gradients of the last iteration as one vector."""
    found = {p: p.grad for p in t.task.model.parameters() if p.grad is not None}
    if isinstance(t.engine, GraphEngine):
        found = {p: grad for done in t.engine.passes.values() for p, grad in done.grads.sums.items()}  # type: ignore[misc]
    return torch.cat([found[p].flatten() for p in t.task.model.parameters() if p in found])
