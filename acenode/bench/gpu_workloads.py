"""What `acenode bench gpu` trains: methods of every family at the paper's size, on made-up data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from acenode import experiments
from acenode.accelerate.cuda_graph.capture import own_stream
from acenode.accelerate.cuda_graph.graph import engine_for
from acenode.backend import ACCELERATED, TORCH_OPERATIONS, Backend
from acenode.bench.latent_workload import BATCH as SERIES_BATCH
from acenode.bench.latent_workload import latent_task
from acenode.bench.ushcn_workload import BATCH as SPORADIC_BATCH
from acenode.bench.ushcn_workload import ushcn_task
from acenode.data.image_source import ImageArrays
from acenode.errors import UserError
from acenode.execution.environment import backend_of, repeatable
from acenode.experiments.base import LabTask
from acenode.experiments.image_task import ImageTask
from acenode.experiments.mnist import IMAGES
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer

IMAGE_BATCH = 128
# what a run's log says where an engine did not do it all
OTHERWISE = {"graph": ("graph engine not used", "in native steps", "torch's operations are recorded"),
             "auto": ("do not run here", TORCH_OPERATIONS)}
FLOAT32 = "graph, float32"  # with convolutions in full single precision, where torch takes TF32 by default


@dataclass(frozen=True)
class Family:
    """Methods that are trained alike, and the engines that train them, the one that `auto` takes last."""

    title: str
    batch: int
    methods: tuple[str, ...]
    engines: tuple[str, ...]
    make: Callable[..., LabTask]  # (method, device, backend=, engine=, seed=)
    published: Mapping[str, str] = field(default_factory=dict)  # by method: an iteration of the published code
    targets: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """A row of the table: one method of a family by one engine."""

    family: str
    method: str
    engine: str

    def __str__(self) -> str:
        return f"{self.family}, {self.method} by {self.engine}"

    @property
    def of(self) -> Family:
        return FAMILIES[self.family]


def made_up(count: int) -> ImageArrays:
    """Images of MNIST's shape: a blob for every class, with noise, so that something is learned."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, count, dtype=np.uint8)
    blobs = rng.random((10, 28, 28, 1))
    x = (160 * blobs[y] + 95 * rng.random((count, 28, 28, 1))).astype(np.uint8)
    return ImageArrays(x, y, x[:128], y[:128], tuple("0123456789"))


def images(method: str, device: str, backend: Backend = ACCELERATED, **given: Any) -> ImageTask:
    config = experiments.get("mnist").configure(method, "full", device=device, batch_size=IMAGE_BATCH, **given)
    return ImageTask(config, made_up(8 * IMAGE_BATCH + 100), 100, IMAGES.build(config, backend), pad=4,
                     device=torch.device(device))


FAMILIES: dict[str, Family] = {
    "images": Family("MNIST's size, rtol = atol = 1e-4", IMAGE_BATCH, ("odenet", "ace"),
                     ("reference", "native", FLOAT32, "graph"), images, {"ace": "2 × 130 ms, adjoint 2 × 271 ms"},
                     {"ace": "≤ 10 ms, of five ≤ 6 ms"}),
    "series": Family("PhysioNet's size", SERIES_BATCH, ("latent-ode", "ace"), ("reference", "auto"), latent_task,
                     {"latent-ode": "14–18 s"}, {"latent-ode": "≤ 150 ms"}),
    "sporadic": Family("USHCN's size", SPORADIC_BATCH, ("gru-ode-bayes", "ace"), ("reference", "auto"), ushcn_task,
                       {"gru-ode-bayes": "7–9 s"}, {"gru-ode-bayes": "≤ 150 ms"}),
}


@contextmanager
def precision(work: Work) -> Iterator[None]:
    """That of the row's convolutions, in all threads."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = before and work.engine != FLOAT32
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


@contextmanager
def training(work: Work, device: torch.device, seed: int, log: list[str]) -> Iterator[Trainer]:
    """A run in this thread, trained as `acenode train` would: on a stream of its own, by that engine and no other."""
    asked = {"native": "auto", FLOAT32: "graph"}.get(work.engine, work.engine)  # native: auto's without recordings
    repeatable(device)
    backend = backend_of(work.engine, log.append)
    with own_stream(device):
        task = work.of.make(work.method, device.type, backend=backend, engine=asked, seed=seed)
        engine = None if work.engine == "native" else engine_for(task, device, asked, log.append, backend=backend)[1]
        if asked == "graph" and engine is None:
            raise UserError(log[-1])
        task.model.train()
        try:
            yield Trainer(task, task.recipe(), SilentListener(), engine)
            otherwise = [line for line in log if any(words in line for words in OTHERWISE.get(asked, ()))]
            if otherwise and device.type == "cuda":
                raise UserError(otherwise[0])
        finally:
            if engine is not None:
                engine.close()


def iterate(trainer: Trainer, count: int) -> list[dict[str, Any]]:
    """So many iterations, and their records once the device is done with them."""
    records = []
    for _ in range(count):
        trainer.iteration = (trainer.iteration + 1) % trainer.task.iterations
        records.append(trainer.train_batch())
    if torch.cuda.is_available():
        torch.cuda.current_stream().synchronize()
    return records
