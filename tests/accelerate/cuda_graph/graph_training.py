"""Train a few iterations on a GPU, with the graph engine or in native steps."""

from __future__ import annotations

import copy
import gc
from pathlib import Path
from typing import Any

import torch
from problems import relative

from acenode import experiments
from acenode.accelerate.cuda_graph.engine import GraphEngine
from acenode.backend import Backend
from acenode.execution.engine_choice import choose_engine
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer

CUDA = torch.device("cuda")


def trainer(graph: bool, method: str = "ace", log: list[str] | None = None, **given: Any) -> Trainer:
    entry = experiments.get("mnist")
    settings: dict[str, Any] = {"device": "cuda", "batch_size": 64, "learning_rate": 0.01}
    if method not in ("resnet", "rknet") and "step_size" not in given:
        settings |= {"rtol": 1e-3, "atol": 1e-3}
    task = entry.make(entry.configure(method, **settings | given), Path(), CUDA)
    backend = Backend(log=(log if log is not None else []).append)
    engine = choose_engine(task, CUDA, task.config.get("engine"), backend).engine if graph else None
    task.model.train()
    return Trainer(task, task.recipe(), SilentListener(), engine)


def iterate(t: Trainer, count: int) -> list[dict[str, float]]:
    records = []
    for _ in range(count):
        records.append(t.train_batch())
        t.epoch, t.iteration = divmod(t.epoch * t.task.iterations + t.iteration + 1, t.task.iterations)
    return [{k: float(v) for k, v in r.items()} for r in records]


def parameters(t: Trainer) -> torch.Tensor:
    """Return all parameters as one vector."""
    return torch.cat([p.detach().flatten() for p in t.task.model.parameters()])


def gradients(t: Trainer) -> torch.Tensor:
    """Return the gradients of the last iteration as one vector."""
    if isinstance(t.engine, GraphEngine):
        found = {p: grad for done in t.engine.passes.values() for p, grad in done.grads.items()}
        return torch.cat([found[p].flatten() for p in t.task.model.parameters()])
    return torch.cat([p.grad.flatten() for p in t.task.model.parameters() if p.grad is not None])


def follow(t: Trainer, leader: Trainer) -> None:
    """Copy the state of the other trainer."""
    t.load_state_dict(copy.deepcopy(leader.state_dict()))


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
