"""Train several seeds of the digits, alone and together, for a few iterations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from acenode import experiments
from acenode.backend import Backend
from acenode.execution.seed_group import SeedGroup, make_passes
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer

Record = dict[str, float]


def digit_trainer(method: str, seed: int, dtype: torch.dtype = torch.float32, **given: Any) -> Trainer:
    """Return the trainer of a small batch of digits, in single or double precision."""
    entry, settings = experiments.get("mnist"), {"batch_size": 3, **given}
    task: Any = entry.make(entry.configure(method, seed=seed, device="cpu", **settings), Path(), torch.device("cpu"))
    batch = task.batch

    def converted(epoch: int, iteration: int) -> tuple[Tensor, ...]:
        return tuple(x.to(dtype) if x.is_floating_point() else x for x in batch(epoch, iteration))

    task.batch = converted
    task.model.to(dtype).train()
    return Trainer(task, task.recipe(), SilentListener())


def away_from_kinks(trainer: Trainer) -> Trainer:
    """Change the norms in f and g so that no input of a ReLU comes near 0, half of them positive and half negative.

    There the gradient of a ReLU jumps: between two roundings of one input it may change by its whole size. The output
    of a norm over N numbers is less than √N from its shift, in units of its scale.
    """
    layer: Any = trainer.task.model.ode  # type: ignore[union-attr]
    fields = [field for field in (layer.f, getattr(layer, "g", None)) if field is not None]
    with torch.no_grad():
        for norm in (norm for field in fields for norm in list(field.norms)[:-1]):
            norm.weight.mul_(0.05)
            norm.bias.copy_(torch.arange(len(norm.bias)) % 2 * 2 - 1)
    return trainer


def iterate(trainer: Trainer, count: int) -> list[Record]:
    """Train `count` iterations; return their records."""
    records = []
    for _ in range(count):
        record = trainer.train_batch()
        records.append({k: float(v) for k, v in record.items()})
        trainer.iteration += 1
    return records


def iterate_together(trainers: Sequence[Trainer], counts: Sequence[int], make: Callable[..., Any] = make_passes,
                     log: list[str] | None = None) -> tuple[SeedGroup, dict[int, list[Record] | Exception]]:
    """Train each trainer for its number of iterations in a group; return the records, or what was raised."""
    group, found = SeedGroup(len(trainers), make), dict[int, list[Record] | Exception]()
    backend = Backend(log=(log if log is not None else []).append)

    def work(index: int) -> None:
        trainer, seat = trainers[index], group.seats[index]
        try:
            trainer.engine = seat.take(trainer.task, backend)  # type: ignore[arg-type]
            found[index] = iterate(trainer, counts[index])
        except Exception as error:
            found[index] = error
        finally:
            seat.close()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(trainers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return group, found
