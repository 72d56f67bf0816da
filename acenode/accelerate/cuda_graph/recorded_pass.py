"""One pass of Algorithm 1 as CUDA graphs that are recorded once and replayed for every batch:

    encode     h(0) and a(0), the first slope and the first step size
    attempt    one attempted step, replayed until the end of the interval is reached
    read out   loss and metrics at h(1), and the gradient of h(1)
    step back  the backward pass of one accepted step, replayed for each of them
    update     the backward pass of q and the encoder, gradient norms, and the optimisers' steps

With gradient "backprop" the first attempts have recordings of their own, which keep the autograd graphs for the
backward pass. Later attempts, and all with gradient "checkpointed", are evaluated again in the backward pass. The host
reads the device once a pass, to learn how many steps were taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from acenode.accelerate.cuda_graph.device_steps import CAPACITY, DeviceSteps
from acenode.accelerate.cuda_graph.layer_kernels import LayerKernels, step_operations
from acenode.accelerate.cuda_graph.recorder import GraphRecorder, Replay
from acenode.accelerate.cuda_graph.recording import Recording, RecordingError
from acenode.accelerate.cuda_graph.stages import StageGraphs
from acenode.accelerate.cuda_graph.step_control import RUNNING, STORE_FULL, SolveStatus
from acenode.training.passes import PassResult, PassSpec
from acenode.training.task import PiecewiseTask

MAX_KEPT = 16  # attempts that keep their autograd graphs
SPARE = 2  # kept attempts beyond those of the first solve, for later solves that take more
TOO_MANY_FOR_AVERAGES = f"fixed attention can average correlations only in solves of at most {MAX_KEPT} steps"


def running_averages(layer: nn.Module) -> list[Tensor]:
    """Return the buffers that every evaluation of the layer's field updates: fixed attention averages correlations."""
    return list(layer.buffers()) if getattr(layer, "attention", None) == "fixed" else []


class RecordedPass(Recording):
    """The recordings of a pass whose solve takes steps of its own choice, or the steps of a grid."""

    def __init__(self, task: PiecewiseTask, spec: PassSpec, batch: tuple[Tensor, ...], recorder: GraphRecorder,
                 rate: Tensor, *, capacity: int = CAPACITY, **options: Any) -> None:
        self.capacity = capacity  # steps that are stored
        self.averages = running_averages(task.layer)
        self.graphs: dict[int, StageGraphs] = {}  # of the kept attempts, while the pass is recorded
        self.before: list[Tensor] = []  # the buffers before the pass that runs
        super().__init__(task, spec, batch, recorder, rate, **options)

    @property
    def summary(self) -> str:
        return (f"{self.kept} steps kept for the backward pass, steps by {self.steps.operations.name}, fields by "
                f"{self.layer_kernels.fields_by}")

    # Recording ----------------------------------------------------------------------------------------------------

    def warm_up(self) -> None:
        """Run every part once without recording, and count the attempts of a solve."""
        self._encode()
        self._attempt()
        status = self._wait_for_status()
        while status.status == RUNNING:
            self._attempt()
            status = self._wait_for_status()
        backprop = self.task.layer.solver.gradient == "backprop"  # type: ignore[union-attr]
        spare = SPARE if self.steps.tableau.adaptive else 0
        most = MAX_KEPT if self.averages else min(status.attempts + spare, MAX_KEPT)
        self.expected, self.kept = status.attempts, most if backprop else 0
        if self._averages_out_of_order(status):
            raise RecordingError(TOO_MANY_FOR_AVERAGES)
        self._encode()
        self._attempt_kept(0)
        self._read_out()
        self._step_back_kept(0)
        self._read_out()
        self._step_back()
        self._update()

    def record(self) -> list[Replay]:
        """Record every part, in an order in which no recording reuses memory that a later replay still needs."""
        record = self.recorder.record
        self.encode = record(self._encode)
        self.kept_attempts = [record(partial(self._attempt_kept, i)) for i in range(self.kept)]
        self.attempt = record(self._attempt)
        self.read_out = record(self._read_out)
        self.step_back = record(self._step_back)
        kept_back = [record(partial(self._step_back_kept, i)) for i in reversed(range(self.kept))]
        self.kept_steps_back = kept_back[::-1]
        self.update = record(self._update)
        return [self.encode, *self.kept_attempts, self.attempt, self.read_out, self.step_back, *self.kept_steps_back,
                self.update]

    def forget(self) -> None:
        del self.field, self.state
        self.graphs.clear()

    def allocate(self) -> None:
        """Allocate the tensors that outlive a replay, for states of the task's shapes."""
        layer: Any = self.task.layer
        _, state = layer.system(self.task.encode(self.batch), self.spec.detach_attention)
        operations = step_operations(state, self.kernels, self.backend)
        like = operations.arrange(tuple(b.detach() for b in state))
        self.layer_kernels = LayerKernels(layer, like, DeviceSteps.stages(layer.solver), self.kernels, self.compiles,
                                          self.backend)
        self.steps = DeviceSteps(like, (0.0, 1.0), layer.solver, operations, self.capacity, self.layer_kernels)

    def _encode(self) -> None:
        self.clear_gradients()
        self.layer_kernels.load_parameters()
        layer: Any = self.task.layer
        field, self.state = layer.system(self.task.encode(self.batch), self.spec.detach_attention)
        self.field = self.layer_kernels.substitute(field)
        if self.averages:
            layer.q(self.state[0].detach(), 0.0)  # `begin` evaluates without gradients, which updates no average
        self.steps.begin(self.field, tuple(b.detach() for b in self.state))

    def _attempt(self) -> None:
        self.steps.attempt(self.field)

    def _attempt_kept(self, number: int) -> None:
        with self._averages_change_if(self.steps.control.running()):  # an attempt after the end has no effect
            graphs = self.steps.attempt(self.field, keep_graphs=True)
        assert graphs is not None
        self.graphs[number] = graphs

    @contextmanager
    def _averages_change_if(self, condition: Tensor) -> Iterator[None]:
        """Keep what the block does to the running averages only where the condition holds."""
        before = [b.clone() for b in self.averages]
        yield
        for b, value in zip(self.averages, before, strict=True):
            b.copy_(torch.where(condition, b, value))

    def _averages_out_of_order(self, status: SolveStatus) -> bool:
        """Return True if recomputing steps in the backward pass would update running averages out of order."""
        return bool(self.averages) and 0 < self.kept < status.attempts

    def _read_out(self) -> None:
        """Compute loss and metrics, and start the backward pass.

        Gradients are set here and added to later, so that it may be replayed when a solve needs more steps.
        """
        end = tuple(b.requires_grad_() for b in self.steps.end_state())
        total = self.set_loss(*self.task.read_out(end[0], self.batch))
        found = torch.autograd.grad(total, (*end, *self.spec.trained), allow_unused=True)
        self.steps.begin_backward(found[:len(end)])
        for p, grad in zip(self.spec.trained, found[len(end):], strict=True):
            if grad is not None:
                self.grads[p].copy_(grad)
                self.with_gradient.add(p)

    def _step_back(self) -> None:
        self.steps.step_back(self.field, self._field_parameters, self._add_to_field)

    def _step_back_kept(self, number: int) -> None:
        self.steps.step_back(self.field, self._field_parameters, self._add_to_field, self.graphs.pop(number))

    def _update(self) -> None:
        """Finish the backward pass through the first slope, q and the encoder, and update the parameters."""
        with self._averages_change_if(self.rate.new_zeros((), dtype=torch.bool)):
            start = self.steps.back_to_start(self.field, self._field_parameters, self._add_to_field)
        self.add_from_start(self.state, start)
        self.add_of_kernels(self.layer_kernels)
        self.update_parameters()

    @property
    def _field_parameters(self) -> list[nn.Parameter]:
        return [p for p in self.field.parameters() if p in self.grads]

    def _add_to_field(self, found: Sequence[Tensor | None]) -> None:
        self.add(self._field_parameters, found)

    # Replaying ----------------------------------------------------------------------------------------------------

    def begin(self, batch: tuple[Tensor, ...]) -> None:
        """Start the pass on a batch: as many attempts as the last solve needed, and the read-out after them."""
        self.before = [b.clone() for b in self.buffers]
        self.load(batch)
        self.encode()
        for i in range(self.expected):
            self._replay_attempt(i)
        self._begin_read_out()

    def end(self) -> PassResult | None:
        """Finish the pass.

        Return None if the solve takes more steps than can be stored. In that case, and if RecordingError is raised,
        nothing has changed.
        """
        status, attempts = self._status_of_read_out(), self.expected
        while status.status == RUNNING:
            self._replay_attempt(attempts)
            self._begin_read_out()
            status, attempts = self._status_of_read_out(), attempts + 1
        status.check(self.steps.span)
        out_of_order = self._averages_out_of_order(status)
        if out_of_order or status.status == STORE_FULL:
            for b, value in zip(self.buffers, self.before, strict=True):
                b.copy_(value)
            if out_of_order:
                raise RecordingError(TOO_MANY_FOR_AVERAGES)
            return None
        self.expected = status.attempts
        for i in reversed(status.accepted):
            (self.kept_steps_back[i] if i < self.kept else self.step_back)()
        self.update()
        return self.result(self.steps.evaluations(status, self.kept))

    def _replay_attempt(self, number: int) -> None:
        (self.kept_attempts[number] if number < self.kept else self.attempt)()

    def _begin_read_out(self) -> None:
        """Send the state of the solve to the host, and replay the read-out, which the device does meanwhile."""
        self.steps.control.send_to_host()
        self.recorder.mark()
        self.read_out()

    def _status_of_read_out(self) -> SolveStatus:
        self.recorder.wait()
        return self.steps.control.read()

    def _wait_for_status(self) -> SolveStatus:
        self.steps.control.send_to_host()
        self.recorder.mark()
        self.recorder.wait()
        return self.steps.control.read()
