"""The workloads of `acenode bench gpu`: methods of each model family at the paper's size, on synthetic data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from acenode import experiments
from acenode.backend import ACCELERATED, GPU_KERNELS, Backend
from acenode.bench.latent_workload import BATCH as SERIES_BATCH
from acenode.bench.latent_workload import activity_task, latent_task
from acenode.bench.ushcn_workload import BATCH as SPORADIC_BATCH
from acenode.bench.ushcn_workload import ushcn_task
from acenode.data.images import ImageArrays
from acenode.errors import UserError
from acenode.execution.engine_choice import EngineChoice, choose_engine
from acenode.execution.environment import run_context
from acenode.experiments.base import LabTask
from acenode.experiments.image_task import ImageTask
from acenode.experiments.mnist import IMAGES
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer

IMAGE_BATCH = 128
# in log lines that say that an engine did not do all the work
PARTIAL = ("trained in native steps", "do not run here", "are not recorded")
FLOAT32 = "graph, float32"  # convolutions in full single precision; torch's default is TF32


@dataclass(frozen=True)
class Family:
    """Methods that are trained alike, and the engines to compare, the one that `auto` selects last."""

    title: str
    batch: int
    methods: tuple[str, ...]
    engines: tuple[str, ...]
    make: Callable[..., LabTask]  # (method, device, backend=, engine=, seed=)
    published: Mapping[str, str] = field(default_factory=dict)  # time of an iteration of the published code, by method
    targets: Mapping[str, str] = field(default_factory=dict)
    row_by_row: bool = False  # whether torch's operations encode the series, because they are too wide for the kernels


@dataclass(frozen=True)
class Workload:
    """One row of the table: a method of a family, trained with one engine."""

    family: str
    method: str
    engine: str

    def __str__(self) -> str:
        return f"{self.family}, {self.method} with {self.engine}"

    @property
    def spec(self) -> Family:
        return FAMILIES[self.family]


def synthetic_images(count: int) -> ImageArrays:
    """Generate images of MNIST's shape: a random pattern per class with noise, so that there is something to learn."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, count, dtype=np.uint8)
    blobs = rng.random((10, 28, 28, 1))
    x = (160 * blobs[y] + 95 * rng.random((count, 28, 28, 1))).astype(np.uint8)
    return ImageArrays(x, y, x[:128], y[:128], tuple("0123456789"))


def image_task(method: str, device: str, backend: Backend = ACCELERATED, **given: Any) -> ImageTask:
    """Make a task of MNIST's size on synthetic images."""
    if method == "resnet":  # it has no solver, and so no setting `engine`
        given.pop("engine", None)
    config = experiments.get("mnist").configure(method, "full", device=device, batch_size=IMAGE_BATCH, **given)
    return ImageTask(config, synthetic_images(8 * IMAGE_BATCH + 100), 100, IMAGES.build(config, backend), pad=4,
                     device=torch.device(device))


FAMILIES: dict[str, Family] = {
    "images": Family("MNIST's size, rtol = atol = 1e-4", IMAGE_BATCH, ("odenet", "ace"),
                     ("reference", "native", FLOAT32, "graph"), image_task, {"ace": "2 × 130 ms, adjoint 2 × 271 ms"},
                     {"ace": "≤ 10 ms, 5 runs ≤ 6 ms"}),
    "baselines": Family("MNIST's size, other methods", IMAGE_BATCH, ("resnet", "rknet", "augmented"),
                        ("native", "graph"), image_task,
                        targets={"resnet": "≤ 4 ms", "rknet": "≤ 4 ms", "augmented": "≤ 9 ms"}),
    "series": Family("PhysioNet's size", SERIES_BATCH, ("latent-ode", "ace", "gru-d"), ("reference", "auto"),
                     latent_task, {"latent-ode": "14–18 s"}, {"latent-ode": "≤ 150 ms"}),
    "windows": Family("Human Activity's size", SERIES_BATCH, ("latent-ode", "ace"), ("native", "auto"), activity_task,
                      row_by_row=True),
    "sporadic": Family("USHCN's size", SPORADIC_BATCH, ("gru-ode-bayes", "ace", "t-lstm"), ("reference", "auto"),
                       ushcn_task, {"gru-ode-bayes": "7–9 s"}, {"gru-ode-bayes": "≤ 150 ms"}),
}


@contextmanager
def convolution_precision(workload: Workload) -> Iterator[None]:
    """Set the precision of convolutions for a workload, in all threads."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = before and workload.engine != FLOAT32
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


@contextmanager
def trainer_for(workload: Workload, device: torch.device, seed: int,
                log: list[str]) -> Iterator[Trainer]:
    """Set up training as `acenode train` does: on an own stream, with the workload's engine.

    Raises:
        UserError: the engine could not be used, or not for all the work.
    """
    # native is what auto does without CUDA graphs
    asked = {"native": "auto", FLOAT32: "graph"}.get(workload.engine, workload.engine)
    fallbacks = list[str]()

    def on_series_by(name: str) -> None:
        if name != GPU_KERNELS and not workload.spec.row_by_row:
            fallbacks.append(f"series are integrated by {name}")

    with run_context(device, workload.engine, log.append, on_series_by) as backend:
        task = workload.spec.make(workload.method, device.type, backend=backend, engine=asked, seed=seed)
        choice = EngineChoice("native")
        if workload.engine != "native":
            choice = choose_engine(task, device, asked, backend)
        engine = choice.engine
        if asked == "graph" and choice.fallback is not None:
            raise UserError(choice.fallback)
        if engine is not None:
            engine.on_fallback = fallbacks.append
        task.model.train()
        try:
            yield Trainer(task, task.recipe(), SilentListener(), engine)
            fallbacks += [line for line in log if any(text in line for text in PARTIAL)]
            if fallbacks and device.type == "cuda" and workload.engine not in ("reference", "native"):
                raise UserError(fallbacks[0])
        finally:
            if engine is not None:
                engine.close()


def iterate(trainer: Trainer, count: int) -> list[dict[str, Any]]:
    """Train `count` iterations, wait for the GPU, and return their records."""
    records = []
    for _ in range(count):
        trainer.iteration = (trainer.iteration + 1) % trainer.task.iterations
        records.append(trainer.train_batch())
    if torch.cuda.is_available():
        torch.cuda.current_stream().synchronize()
    return records
