"""Adaptive steps of a series model, recorded: one launch for an attempted step, one for its gradients.

A solve on series is many small operations, and starting them takes longer than computing them. Every step does the same
operations on the same shapes, so they are recorded once as two CUDA graphs: the stages of a step from (t, dt, y, k1)
with the ratio of its error, and, for the backward pass, the stages again with their gradients. The host still chooses
the step sizes, by the rules of `ode.stepping`.

The parameters' gradients are summed over all steps of a solve, where the recording puts them. `start` marks the initial
state, whose gradient autograd computes last: there the sums become the parameters' gradients.

Gradients of a repeated step are those of the first only if both do the same. That is tried out before recording.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from acenode.accelerate.cuda_graph.fields import step_operations
from acenode.accelerate.cuda_graph.recorder import RECORDING, GraphRecorder, RecordingError, new_recorder, reason_of
from acenode.accelerate.cuda_graph.step_control import StepOperations
from acenode.accelerate.cuda_graph.steps import GradientSums, Stage, StageEvaluator, detached
from acenode.backend import Backend
from acenode.device import torch_private
from acenode.errors import SolveError, UserError
from acenode.garbage import collector_paused
from acenode.node import ODELayer
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import Evaluations, State, Step, parameters_of
from acenode.ode.stepping import Attempt, CountedField
from acenode.ode.tableaus import TABLEAUS
from acenode.training.trainer import PassResult, PassSpec


class RecordedStep:
    """A step for states of the shapes of `like` and for the parameters that are trained now.

    Raises:
        RecordingError: the field does something else when a step is repeated.
    """

    def __init__(self, field: nn.Module, like: State, solver: Solver, recorder: GraphRecorder,
                 operations: StepOperations) -> None:
        self.field, self.solver, self.parameters = field, solver, parameters_of(field)
        self.buffers = list(field.buffers())  # such as running averages, which every forward evaluation updates
        self.tableau, device = TABLEAUS[solver.method], like[0].device
        self.t, self.dt = (torch.zeros((), dtype=torch.float64, device=device) for _ in range(2))
        self.c = torch.tensor((0.0, *self.tableau.c), dtype=torch.float64, device=device)
        self.stages = StageEvaluator(self.tableau, operations, self.dt)
        self.y, self.k1 = (tuple(b.detach().clone(memory_format=torch.contiguous_format) for b in like) for _ in "yk")
        self.input_grads = self._zeros(), self._zeros()  # of y and k1
        self.output_grads = [self._zeros() for _ in range(len(self.tableau.a) + 1)]  # of y1, k_2, k_3, …
        self.sums = GradientSums(self.parameters)
        size = sum(b.numel() for b in self.y)
        self.inner = size * (len(self.output_grads) - 2)  # numbers of the slopes between the first and the last
        self.out = like[0].new_zeros(self.inner + 2 * size + 1)  # these, y1, the last slope and the error's ratio
        self.flat_grads = like[0].new_zeros(size * 2)  # `input_grads` in one vector
        with RECORDING, recorder.on_stream(), self._buffers_restored():
            self._try_out()
            with collector_paused():
                self.replays = recorder.record(self._attempt), recorder.record(self._differentiate)
        self.sums.clear()

    def _zeros(self) -> State:
        return tuple(torch.zeros_like(b) for b in self.y)

    def start(self, y: State) -> State:
        """Return y as the start of a solve.

        Autograd computes its gradient after those of all steps, so the parameters get their sums with it.
        """
        return _SolveStart.apply(self, len(y), *y, *self.parameters)

    def attempt(self, F: CountedField, t: float, dt: float, y: State, k1: State) -> tuple[Step, float]:
        """Attempt a step; return it with the ratio of its error."""
        F.cost.forward += len(self.tableau.a)
        found: tuple[Tensor, ...] = _StepAttempt.apply(self, F.cost, t, dt, *y, *k1)
        ratio, blocks, n = found[0], found[1:], len(y)
        y1, *ks = (blocks[i:i + n] for i in range(0, len(blocks), n))
        return Step(t, dt, y, [k1, *ks], y1), float(ratio)

    def forward(self, t: float, dt: float, start: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return the ratio of the step's error, and the blocks of y1, k_2, k_3, …; `start` is y and k1."""
        self._load(t, dt, start)
        self.replays[0]()
        inner, end = self.out[:self.inner].clone(), self.out[self.inner:].clone()  # apart: the next step keeps the end
        blocks, n = self._blocks(end[:-1]), len(self.y)
        return end[-1], [*blocks[:n], *self._blocks(inner), *blocks[n:]]

    def backward(self, t: float, dt: float, start: Sequence[Tensor], grads: Sequence[Tensor | None]) -> list[Tensor]:
        """Return the gradients of y and k1 from those of y1, k_2, …, and add the parameters' gradients to the sums."""
        self._load(t, dt, start)
        targets = [b for state in self.output_grads for b in state]
        torch_private.zero_all([b for b, grad in zip(targets, grads, strict=True) if grad is None])
        torch_private.copy_all([b for b, grad in zip(targets, grads, strict=True) if grad is not None],
                               [grad for grad in grads if grad is not None])
        self.replays[1]()
        return self._blocks(self.flat_grads.clone())

    def _load(self, t: float, dt: float, start: Sequence[Tensor]) -> None:
        self.t.fill_(t)
        self.dt.fill_(dt)
        torch_private.copy_all([*self.y, *self.k1], start)

    def _blocks(self, vector: Tensor) -> list[Tensor]:
        """Return views of the states in a vector, block by block."""
        sizes = [b.numel() for b in self.y]
        parts = vector.split(sizes * (len(vector) // sum(sizes)))
        return [part.view(self.y[i % len(self.y)].shape) for i, part in enumerate(parts)]

    # What is recorded ---------------------------------------------------------------------------------------------

    def _try_out(self) -> None:
        """Do the work once, which compiles kernels and loads libraries, and a step twice, to see if it is the same."""
        device, before = self.y[0].device, [b.clone() for b in self.buffers]
        random = random_state(device)
        self._attempt()
        first = self.out.clone()
        for b, value in zip(self.buffers, before, strict=True):
            if not torch.equal(b, value) and b.dtype != torch.bool:
                b.data.copy_(b.roll(1) + 1)  # a slope that depends on what evaluations write becomes another one
        self._attempt()
        if not torch.equal(random_state(device), random):
            raise RecordingError("f or g draws random numbers")
        if not torch.allclose(self.out, first, rtol=1e-5, atol=1e-7, equal_nan=True):
            raise RecordingError("f or g gives another slope when it is evaluated again")
        self._differentiate()

    def _attempt(self) -> None:
        ops, solver, error = self.stages.operations, self.solver, self.tableau.error
        assert error is not None
        stages = self._stages(keep_graphs=bool(self.buffers))  # averages change only where gradients are recorded
        ks, y1 = [self.k1, *(detached(k) for _, k in stages)], detached(stages[-1][0])
        squares = ops.scaled_squares(self.dt, error, ks, self.y, y1, solver)
        rms = [squares[i].sum().sqrt() / math.sqrt(b.numel()) for i, b in enumerate(y1)]
        torch.cat([*_flat(*ks[1:-1], y1, ks[-1]), torch.stack(rms).max().reshape(1)], out=self.out)

    def _differentiate(self) -> None:
        with self._buffers_restored():
            stages = self._stages(keep_graphs=True)
        end, *slopes = self.output_grads
        self.stages.differentiate(self.field, stages, end, slopes, self.sums, self.input_grads)
        torch.cat(_flat(*self.input_grads), out=self.flat_grads)

    def _stages(self, keep_graphs: bool) -> list[Stage]:
        times = (self.t + self.c * self.dt).to(self.y[0].dtype)
        return self.stages.evaluate(self.field, times, self.y, self.k1, keep_graphs)

    @contextmanager
    def _buffers_restored(self) -> Iterator[None]:
        """Undo what the block does to the buffers."""
        before = [b.clone() for b in self.buffers]
        try:
            yield
        finally:
            for b, value in zip(self.buffers, before, strict=True):
                b.data.copy_(value)  # .data: the graph of a step does not need the buffer's earlier value


def random_state(device: torch.device) -> Tensor:
    """Return the state of the generator that modules on the device draw from."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _flat(*states: State) -> list[Tensor]:
    return [b.reshape(-1) for state in states for b in state]


class _StepAttempt(torch.autograd.Function):
    """(y, k1) -> ratio, y1, k_2, k_3, …; the backward pass takes the step again, so only y and k1 are kept."""

    @staticmethod
    def forward(ctx: Any, step: RecordedStep, cost: Evaluations, t: float, dt: float,
                *start: Tensor) -> tuple[Tensor, ...]:
        ctx.step, ctx.cost, ctx.t, ctx.dt = step, cost, t, dt
        ctx.save_for_backward(*start)
        ctx.set_materialize_grads(False)
        ratio, blocks = step.forward(t, dt, start)
        ctx.mark_non_differentiable(ratio)
        return ratio, *blocks

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, _: Tensor | None, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if all(grad is None for grad in grads):
            return None, None, None, None, *[None] * len(ctx.saved_tensors)
        ctx.cost.backward += len(ctx.step.tableau.a)
        return None, None, None, None, *ctx.step.backward(ctx.t, ctx.dt, ctx.saved_tensors, grads)


class _SolveStart(torch.autograd.Function):
    """The initial state, and where the parameters get the gradients that the steps have summed."""

    @staticmethod
    def forward(ctx: Any, step: RecordedStep, blocks: int, *tensors: Tensor) -> State:
        ctx.step = step
        step.sums.clear()  # what a backward pass that failed has left
        return tuple(block.clone() for block in tensors[:blocks])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        sums = ctx.step.sums
        found = [total.clone() if p in sums.reached else None for p, total in sums.sums.items()]
        sums.clear()  # another solve may follow
        return None, None, *gradients, *found


# The recorded steps of a run ------------------------------------------------------------------------------------------


def can_record(solver: Solver) -> bool:
    """Return True for adaptive steps whose last stage is at their end, differentiated step by step."""
    return (solver.native and solver.gradient == "backprop" and TABLEAUS[solver.method].adaptive
            and TABLEAUS[solver.method].fsal)


def make_recordings(model: nn.Module, device: torch.device, backend: Backend) -> StepRecordings | None:
    """Let the ODE layers of a model replay their steps; return None if they cannot, or if no stream is unused."""
    layers = [m for m in model.modules() if isinstance(m, ODELayer) and can_record(m.solver)]
    if not layers:
        return None
    recorder = new_recorder(device)
    if recorder is None:
        backend.log(fallback_line("other runs use all CUDA streams"))
        return None
    return StepRecordings(layers, recorder, backend)


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
        one_precision = len({b.dtype for b in state}) == 1 and not torch.is_autocast_enabled(state[0].device.type)
        if (not torch.is_grad_enabled() or torch_private.transforms_active() or not can_record(solver)
                or not one_precision):
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
            except Exception as error:
                self._detach()  # a solve before this one may still need its recording
                if not self.steps:
                    self.recorder.free()
                line = fallback_line(reason_of(error))
                self.backend.log(line)
                self.on_fallback(line)
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

    def close(self) -> None:
        """Free the recordings with their memory, and release the stream."""
        self._detach()
        self.steps.clear()
        self.recorder.close()

    def _detach(self) -> None:
        for layer in self.layers:
            layer.record_steps = None
