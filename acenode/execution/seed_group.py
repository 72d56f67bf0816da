"""Train seeds of one configuration as one computation, on a processor and where the model allows it.

Each run keeps a trainer, a thread and a folder of its own. The C kernel does their passes, one at a time, in memory
that they share; what it computes for a seed does not depend on the others.
"""

from __future__ import annotations

import dataclasses
from threading import Lock
from typing import TYPE_CHECKING

from acenode import experiments
from acenode.backend import Backend
from acenode.config import Config
from acenode.config.groups import ImageNetwork, SolverSettings
from acenode.training.task import PiecewiseTask

if TYPE_CHECKING:
    from torch import Size, Tensor

    from acenode.accelerate.image_steps import KernelPasses

MAX_SEEDS = 8  # in one computation; their models and optimisers are in memory at the same time
NO_KERNEL = "the C kernel does not support this model or solver, or there is no C compiler"


def without_seed(config: Config) -> Config:
    """Return what seeds of one configuration have in common."""
    return dataclasses.replace(config, seed=0)


def separate_reason(config: Config, device: str) -> str | None:
    """Return why seeds of a configuration are trained as ordinary runs on a device, or None if they can be one
    computation."""
    groups = experiments.get(config.experiment).method(config.method).groups
    if device.partition(":")[0] != "cpu":
        return "on a GPU every run has a process of its own"
    if ImageNetwork not in groups:
        return "this model is not an encoder, an ODE layer and a read-out"
    if SolverSettings not in groups:
        return "this method has no ODE layer between an encoder and a read-out"
    solver = config.part(SolverSettings).to_solver()
    if not solver.native or solver.gradient != "backprop":
        return "it needs our own Runge–Kutta steps with gradient=backprop"
    if config.get("attention") == "fixed" or config.get("initial") == "correlation":
        return "the model keeps running averages, which belong to one seed"
    return None


def fallback_line(reason: str) -> str:
    """Return the line of the log that says why seeds are not trained as one computation."""
    return f"not trained as one computation with other seeds: {reason}"


class SeedGroup:
    """What the runs of several seeds share."""

    def __init__(self, count: int) -> None:
        self.count, self.lock = count, Lock()
        self.memory: dict[Size, list[Tensor]] = {}

    def engine(self, task: PiecewiseTask, backend: Backend) -> KernelPasses | None:
        """Return what does the passes of one of the runs, or None if it does them alone; log which."""
        from acenode.accelerate.image_steps import KernelPasses, supports

        if not supports(task.layer, backend):
            backend.log(fallback_line(NO_KERNEL))
            return None
        others = self.count - 1
        backend.log(f"trained as one computation with {others} other seed{'s' if others > 1 else ''}")
        return KernelPasses(task, self.lock, self.memory)
