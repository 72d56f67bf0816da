"""The graph engine: runs the passes of a run as recorded CUDA graphs, and logs why where it cannot."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from acenode.accelerate.cuda_graph.passes import AdjointPass, RecordedPass, StepPass, recordable, running_averages
from acenode.accelerate.cuda_graph.recorder import GraphRecorder, RecordingError, with_recorder
from acenode.accelerate.cuda_graph.steps import CAPACITY, can_record_adjoint
from acenode.accelerate.triton_support import kernels_available
from acenode.backend import ACCELERATED, Backend
from acenode.errors import SolveError, UserError, is_out_of_memory
from acenode.ode.options import Solver
from acenode.ode.tableaus import TABLEAUS
from acenode.training.task import PiecewiseTask, Task
from acenode.training.trainer import PassResult, PassSpec

MAX_CAPACITY = 256  # steps of a solve that are stored at most: 1.2 GB per pass for ACE on MNIST


def unsupported_reason(task: Task, device: torch.device) -> str | None:
    """Return why the graph engine cannot train a task on a device, or None if it can."""
    layer: Any = getattr(task, "layer", None)
    solver = getattr(layer, "solver", None)
    if device.type != "cuda":
        return "it needs a CUDA device"
    if not isinstance(task, PiecewiseTask):
        return "series models have GPU kernels or recorded steps of their own"
    if not hasattr(layer, "system"):
        return None  # no ODE layer: every operation is known beforehand
    if not isinstance(solver, Solver) or not (solver.native or can_record_adjoint(solver)):
        return "CUDA graphs need a native Runge–Kutta method, with adjoint gradients a fixed-step one of few steps"
    if running_averages(layer) and not solver.native:
        return "recorded adjoint solves would average correlations that native ones do not"
    tableau = TABLEAUS[solver.method]
    if not tableau.adaptive and 1 / (solver.step_size or 1) > MAX_CAPACITY:
        return f"{solver.method} would take more than {MAX_CAPACITY} steps"
    if running_averages(layer) and not tableau.fsal:  # recorded steps evaluate the slope at their end as well
        return f"recorded steps of {solver.method} would average more correlations than native ones"
    return None


def kind_of(task: PiecewiseTask) -> type[RecordedPass]:
    """Return how the passes of a supported task are recorded."""
    layer: Any = task.layer
    if not hasattr(layer, "system"):
        return RecordedPass
    return StepPass if layer.solver.native else AdjointPass


def make_engine(task: PiecewiseTask, device: torch.device, backend: Backend, compiles: bool) -> GraphEngine | None:
    """Return an engine with a stream for its recordings, or None if all streams are in use; `close` releases it."""
    return with_recorder(device, lambda recorder: GraphEngine(task, recorder, torch.zeros((), device=device), backend,
                                                              compiles))


class GraphEngine:
    """Runs passes as CUDA graphs, recorded when a pass is first needed; disabled permanently if recording fails."""

    def __init__(self, task: PiecewiseTask, recorder: GraphRecorder, rate: Tensor, backend: Backend = ACCELERATED,
                 compiles: bool = True) -> None:
        self.task, self.recorder, self.backend, self.compiles = task, recorder, backend, compiles
        self.passes: dict[str, RecordedPass] = {}
        self.capacities: dict[str, int] = {}  # of passes whose solves took more than CAPACITY steps
        self.rate, self.rate_now = rate, 0.0  # the learning rate where the optimisers read it, and its value
        self.kernels = kernels_available(backend, rate.device)
        self.logged: set[str] = set()
        self.disabled = False
        self.on_fallback: Callable[[str], None] = lambda line: None  # called with the log line when disabled

    def run(self, spec: PassSpec, batch: Any) -> PassResult | None:
        """Do a pass; return None, with nothing changed, if it must be done without recordings."""
        recorded = None if self.disabled else self._recorded(spec, batch)
        if recorded is None:
            return None
        if not recorded.supports(batch):
            self._log_once("a batch has another shape than the first: it is trained in native steps")
            return None
        rate = float(spec.groups[0].optimiser.param_groups[0]["lr"])
        if rate != self.rate_now:
            self.rate.fill_(rate)
            self.rate_now = rate
        try:
            result = recorded.run(batch)
        except RecordingError as reason:
            self._disable(str(reason))
            return None
        if result is None:
            self._grow(spec.name, recorded.capacity)
        return result

    def _grow(self, name: str, capacity: int) -> None:
        """Let the pass be recorded again with twice the capacity; this batch is trained without recordings."""
        took = f"a solve of pass {name} took more than {capacity} steps"
        if capacity >= MAX_CAPACITY:
            self._disable(took)
            return
        self.capacities[name] = min(2 * capacity, MAX_CAPACITY)
        self._free()
        self._log_once(f"{took}: the pass is recorded for {self.capacities[name]}")

    def _recorded(self, spec: PassSpec, batch: Any) -> RecordedPass | None:
        """Return the recordings of a pass, made now if there are none or they are out of date."""
        if spec.name in self.passes and not self.passes[spec.name].is_current():
            self._free()
        if spec.name not in self.passes:
            if not all(recordable(group.optimiser) for group in spec.groups):
                self._disable("the optimiser is not plain SGD")
                return None
            found = self._try_to_record(spec, batch)
            if found is None:
                return None
            self.passes[spec.name] = found
        return self.passes[spec.name]

    def _try_to_record(self, spec: PassSpec, batch: Any) -> RecordedPass | None:
        """Record a pass with kernels or, where they fail, without; disable the engine if both fail."""
        while True:
            try:
                return self._record(spec, batch)
            except (SolveError, UserError):
                raise
            except Exception as error:
                refused = isinstance(error, RecordingError)
                reason = str(error) if refused else f"{type(error).__name__}: {error}".splitlines()[0]
                if refused or not self.kernels or is_out_of_memory(error):
                    self._disable(reason)
                    return None
                self.kernels = False
                self._free()
            self._log_once(f"kernels do not run here ({reason}): torch's operations are recorded")

    def _record(self, spec: PassSpec, batch: Any) -> RecordedPass:
        start = time.perf_counter()
        recorded = kind_of(self.task)(
            self.task, spec, batch, self.recorder, self.rate, kernels=self.kernels, compiles=self.compiles,
            backend=self.backend, capacity=self.capacities.get(spec.name, CAPACITY))
        held = self.recorder.trim() / 1e6
        self.backend.log(f"graph engine: pass {spec.name} recorded in {time.perf_counter() - start:.1f} s, "
                         f"{recorded.summary}; this process holds {held:.0f} MB of GPU memory")
        return recorded

    def _disable(self, reason: str) -> None:
        self.disabled = True
        self.close()
        line = fallback_line(reason)
        self.backend.log(line)
        self.on_fallback(line)

    def _log_once(self, line: str) -> None:
        if line not in self.logged:
            self.backend.log(f"graph engine: {line}")
        self.logged.add(line)

    def _free(self) -> None:
        """Free all passes, which are recorded again when they are needed.

        One of them cannot be freed alone: with a recording, torch frees the workspaces of cuBLAS that other recordings
        of the same stream still use.
        """
        self.recorder.free([replay for recorded in self.passes.values() for replay in recorded.replays])
        self.passes.clear()

    def close(self) -> None:
        """Free the recordings with their memory, and release the stream."""
        self._free()
        self.recorder.close()


def fallback_line(reason: str) -> str:
    """Return the line of the log that says why a run is trained without the graph engine."""
    return f"graph engine not used: {reason}; training without it"
