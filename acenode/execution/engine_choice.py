"""Choose what trains a run: recorded CUDA graphs, native steps (of series on a GPU, recorded), or torchdiffeq; and
which seeds of one configuration are trained as one computation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import torch

from acenode import experiments
from acenode.backend import ACCELERATED, Backend
from acenode.config import Config
from acenode.config.groups import ImageNetwork, SolverSettings
from acenode.ode.options import Solver
from acenode.training.task import PiecewiseTask, Task
from acenode.training.trainer import PassResult, PassSpec

if TYPE_CHECKING:
    from acenode.accelerate.image_steps import KernelPasses


class RunEngine(Protocol):
    """An engine that holds a device's resources until it is closed, and reports if it has to disable itself."""

    on_fallback: Callable[[str], None]

    def run(self, spec: PassSpec, batch: Any) -> PassResult | None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class EngineChoice:
    """What trains a run."""

    name: str | None  # graph, native or reference; None for methods without a solver that no graph trains
    engine: RunEngine | None = None
    fallback: str | None = None  # why the graph engine is not used, where the user asked for it or has a GPU


def choose_engine(task: Task, device: torch.device, setting: str | None,
                  backend: Backend = ACCELERATED) -> EngineChoice:
    """Choose by the setting `engine`, which methods without a solver do not have."""
    if setting == "reference" or (setting is None and device.type != "cuda"):
        return EngineChoice(setting)
    from acenode.accelerate.cuda_graph import engine as graphs

    reason, engine = graphs.unsupported_reason(task, device), None
    if reason is None:
        assert isinstance(task, PiecewiseTask)
        engine, reason = graphs.make_engine(task, device, backend), "other runs use all CUDA streams"
    if engine is not None:
        return EngineChoice("graph", engine)
    if setting is None:
        return EngineChoice(None)
    fallback = None
    if setting == "graph" or device.type == "cuda":
        fallback = graphs.fallback_line(reason)
        backend.log(fallback)
    solvers = (getattr(m, "solver", None) for m in task.model.modules())
    solver = next((s for s in solvers if isinstance(s, Solver)), None)
    if solver is not None and not solver.native:
        return EngineChoice("reference", fallback=fallback)
    if device.type != "cuda" or isinstance(task, PiecewiseTask):
        return EngineChoice("native", fallback=fallback)
    from acenode.accelerate.cuda_graph.series import make_recordings

    return EngineChoice("native", make_recordings(task.model, device, backend), fallback)  # a series model's steps


# Seeds of one configuration as one computation, on a processor: each run keeps a trainer, a thread and a folder of its
# own. The C kernel does their passes, one at a time, in memory that they share; what it computes for a seed does not
# depend on the others.

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
        self.memory: dict[torch.Size, list[torch.Tensor]] = {}

    def engine(self, task: PiecewiseTask, backend: Backend) -> KernelPasses | None:
        """Return what does the passes of one of the runs, or None if it does them alone; log which."""
        from acenode.accelerate.image_steps import KernelPasses, supports

        if not supports(task.layer, backend):
            backend.log(fallback_line(NO_KERNEL))
            return None
        others = self.count - 1
        backend.log(f"trained as one computation with {others} other seed{'s' if others > 1 else ''}")
        return KernelPasses(task, self.lock, self.memory)
