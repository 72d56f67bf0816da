"""Trainings of a few iterations on a GPU, by the graph engine or by native steps."""

from __future__ import annotations

import copy
import gc
from pathlib import Path
from typing import Any

import torch
from problems import relative

from acenode import experiments
from acenode.accelerate.cuda_graph.graph import GraphEngine, engine_for
from acenode.accelerate.dispatch import Backend
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer

CUDA = torch.device("cuda")


def trainer(graph: bool, method: str = "ace", log: list[str] | None = None, **given: Any) -> Trainer:
    entry = experiments.get("mnist")
    settings = {"device": "cuda", "batch_size": 64, "learning_rate": 0.01}
    settings |= {} if "step_size" in given else {"rtol": 1e-3, "atol": 1e-3}
    task = entry.make(entry.configure(method, **settings | given), Path(), CUDA)
    say = (log if log is not None else []).append
    engine = engine_for(task, CUDA, "auto", say, backend=Backend(log=say))[1] if graph else None
    task.model.train()
    return Trainer(task, task.recipe(), SilentListener(), engine)


def iterate(t: Trainer, count: int) -> list[dict[str, float]]:
    records = []
    for _ in range(count):
        records.append(t.train_batch())
        t.epoch, t.iteration = divmod(t.epoch * t.task.iterations + t.iteration + 1, t.task.iterations)
    return [{k: float(v) for k, v in r.items()} for r in records]


def parameters(t: Trainer) -> torch.Tensor:
    """All of θ in one row."""
    return torch.cat([p.detach().flatten() for p in t.task.model.parameters()])


def gradients(t: Trainer) -> torch.Tensor:
    """Of all that was trained in the last iteration, in one row."""
    if isinstance(t.engine, GraphEngine):
        found = {p: grad for done in t.engine.passes.values() for p, grad in done.grads.items()}
        return torch.cat([found[p].flatten() for p in t.task.model.parameters()])
    return torch.cat([p.grad.flatten() for p in t.task.model.parameters() if p.grad is not None])


def follow(t: Trainer, leader: Trainer) -> None:
    """Go on from where the other one stands."""
    t.load_state_dict(copy.deepcopy(leader.state_dict()))


def apart(one: Trainer, other: Trainer, start: torch.Tensor) -> float:
    """How far two ended from each other, as a share of the way that they went."""
    return relative(parameters(one) - start, parameters(other) - start)


def close(t: Trainer) -> None:
    assert isinstance(t.engine, GraphEngine)
    t.engine.close()


def taken() -> int:
    """Bytes that torch has of the GPU when it has given back what nobody uses."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()
