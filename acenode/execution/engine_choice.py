"""Choose what trains a run: recorded CUDA graphs, native steps (of series on a GPU, recorded), or torchdiffeq."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from acenode.backend import ACCELERATED, Backend
from acenode.ode.options import Solver
from acenode.training.task import PiecewiseTask, Task
from acenode.training.trainer import PassResult, PassSpec

WORTH_COMPILING = 5000  # iterations: torch.compile takes half a minute at first and saves some 7 ms an iteration


class RunEngine(Protocol):
    """An engine that holds a device's resources until it is closed, and reports if it has to disable itself."""

    on_fallback: Callable[[str], None]

    def run(self, spec: PassSpec, batch: Any) -> PassResult | None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class EngineChoice:
    """What trains a run.

    `name` is `trained_by` in config.json: graph, native or reference; None for methods without a solver that no graph
    trains. `fallback` is the log line that says why the graph engine is not used, where the user asked for it or has a
    GPU.
    """

    name: str | None
    engine: RunEngine | None = None
    fallback: str | None = None


def choose_engine(task: Task, device: torch.device, setting: str | None, backend: Backend = ACCELERATED,
                  iterations: int | None = None) -> EngineChoice:
    """Choose by the setting `engine`, which methods without a solver do not have.

    torch compiles fields only for trainings of many iterations.
    """
    if setting == "reference" or (setting is None and device.type != "cuda"):
        return EngineChoice(setting)
    from acenode.accelerate.cuda_graph import engine as graphs

    reason, engine = graphs.unsupported_reason(task, device), None
    if reason is None:
        assert isinstance(task, PiecewiseTask)
        compiles = iterations is None or iterations >= WORTH_COMPILING
        engine, reason = graphs.make_engine(task, device, backend, compiles), "other runs use all CUDA streams"
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
