"""The recorded steps of a run on series: which there are, when they are made, and what happens where that fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from acenode.accelerate.cuda_graph.layer_kernels import step_operations
from acenode.accelerate.cuda_graph.recorded_step import RecordedStep
from acenode.accelerate.cuda_graph.recorder import GraphRecorder, with_recorder
from acenode.accelerate.cuda_graph.recording import RecordingError
from acenode.backend import Backend
from acenode.device.torch_private import transforms_active
from acenode.errors import SolveError, UserError
from acenode.node import ODELayer
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import State
from acenode.ode.stepping import Attempt
from acenode.ode.tableaus import TABLEAUS
from acenode.training.passes import PassResult, PassSpec


def can_record(solver: Solver) -> bool:
    """Return True for adaptive steps whose last stage is at their end, differentiated step by step."""
    if not solver.native or solver.gradient != "backprop":
        return False
    return TABLEAUS[solver.method].adaptive and TABLEAUS[solver.method].fsal


def has_one_precision(state: State) -> bool:
    """Return True if all blocks have one type and autocast does not change it."""
    return len({b.dtype for b in state}) == 1 and not torch.is_autocast_enabled(state[0].device.type)


def make_recordings(model: nn.Module, device: torch.device, backend: Backend) -> StepRecordings | None:
    """Let the ODE layers of a model replay their steps; return None if they cannot, or if no stream is unused."""
    layers = [m for m in model.modules() if isinstance(m, ODELayer) and can_record(m.solver)]
    if not layers:
        return None
    made = with_recorder(device, lambda recorder: StepRecordings(layers, recorder, backend))
    if made is None:
        backend.log(fallback_line("other runs use all CUDA streams"))
    return made


def fallback_line(reason: str) -> str:
    """Return the line of the log that says why the steps of a run are not recorded."""
    return f"steps are not recorded: {reason}; training with ordinary steps"


class StepRecordings:
    """Makes a `RecordedStep` for each shape of the state and each set of trained parameters; `close` frees them.

    As the engine of a run it leaves the passes to the trainer: only their steps are replayed.
    """

    def __init__(self, layers: list[ODELayer], recorder: GraphRecorder, backend: Backend) -> None:
        self.layers, self.recorder, self.backend = layers, recorder, backend
        self.steps: dict[Any, RecordedStep] = {}
        self.on_fallback: Callable[[str], None] = lambda line: None
        for layer in layers:
            layer.record_steps = self

    def run(self, spec: PassSpec, batch: Any) -> PassResult | None:
        """Return None: the trainer does the pass."""
        return None

    def __call__(self, field: nn.Module, state: State, solver: Solver) -> tuple[State, Attempt | None]:
        """Return the state that a solve starts from, and the function that computes its steps.

        The function is None where steps are not recorded, and the solver computes them itself.
        """
        if (not torch.is_grad_enabled() or transforms_active() or not can_record(solver)
                or not has_one_precision(state)):
            return state, None
        modules = list(field.modules())[1:]  # the field itself is made for every solve
        key = (type(field), solver, getattr(field, "detach_attention", None),
               tuple((b.shape, b.dtype) for b in state), tuple((id(m), m.training) for m in modules),
               tuple((p.data_ptr(), p.requires_grad) for p in field.parameters()),
               tuple(b.data_ptr() for b in field.buffers()))
        if key not in self.steps:
            try:
                self.steps[key] = self._record(field, state, solver)
            except (SolveError, UserError):
                raise
            except RecordingError as error:
                self._disable(str(error))
                return state, None
            except Exception as error:
                self._disable(f"{type(error).__name__}: {error}".splitlines()[0])
                return state, None
        step = self.steps[key]
        return step.start(state), step.attempt

    def _record(self, field: nn.Module, state: State, solver: Solver) -> RecordedStep:
        start = time.perf_counter()
        operations = step_operations(state, True, self.backend)
        step = RecordedStep(field, state, solver, self.recorder, operations)
        shapes = " and ".join(str(tuple(b.shape)) for b in state)
        trained, held = sum(p.numel() for p in step.parameters), self.recorder.trim() / 1e6
        self.backend.log(f"steps of {solver.method} recorded in {time.perf_counter() - start:.1f} s for a state of "
                         f"{shapes} and {trained:,} trained parameters, combined by {operations.name}; this process "
                         f"holds {held:.0f} MB of GPU memory")
        return step

    def _disable(self, reason: str) -> None:
        """Record and replay nothing any more, and say why; a solve before this one may still need its recording."""
        self._detach()
        line = fallback_line(reason)
        self.backend.log(line)
        self.on_fallback(line)

    def close(self) -> None:
        """Free the recordings with their memory, and release the stream."""
        self._detach()
        self.steps.clear()
        self.recorder.close()

    def _detach(self) -> None:
        for layer in self.layers:
            layer.record_steps = None
