"""Passes of Algorithm 1 recorded as CUDA graphs and replayed for every batch.

    RecordedPass  a model without an ODE, such as ResNet, as one graph
    AdjointPass   an ODE layer with a few fixed steps and the adjoint equation, such as RKNet's one of rk4, as one graph
    StepPass      an ODE layer whose solve takes steps of its own choice, or the steps of a grid, as several graphs

A pass is tried out before it is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from acenode.accelerate.cuda_graph.fields import LayerKernels, step_operations
from acenode.accelerate.cuda_graph.recorder import RECORDING, GraphRecorder, RecordingError, Replay
from acenode.accelerate.cuda_graph.step_control import RUNNING, STORE_FULL, SolveStatus, StepOperations
from acenode.accelerate.cuda_graph.steps import CAPACITY, AdjointSteps, DeviceSteps, StageGraphs
from acenode.backend import ACCELERATED, Backend
from acenode.device import torch_private
from acenode.garbage import collector_paused
from acenode.ode.runge_kutta import Evaluations, State
from acenode.ode.tableaus import TABLEAUS
from acenode.training.task import PiecewiseTask
from acenode.training.trainer import PassResult, PassSpec, gradient_norm, train_only

MAX_KEPT = 16  # attempts that keep their autograd graphs
SPARE = 2  # kept attempts beyond those of the first solve, for later solves that take more
TOO_MANY_FOR_AVERAGES = f"fixed attention can average correlations only in solves of at most {MAX_KEPT} steps"


def running_averages(layer: nn.Module) -> list[Tensor]:
    """Return the buffers that every evaluation of the layer's field updates: fixed attention averages correlations."""
    return list(layer.buffers()) if getattr(layer, "attention", None) == "fixed" else []


class RecordedPass:
    """A pass recorded for batches of the shapes of the one it is made with."""

    def __init__(self, task: PiecewiseTask, spec: PassSpec, batch: tuple[Tensor, ...], recorder: GraphRecorder,
                 rate: Tensor, *, kernels: bool = True, compiles: bool = True, backend: Backend = ACCELERATED,
                 capacity: int = CAPACITY) -> None:
        self.task, self.spec, self.rate, self.recorder = task, spec, rate, recorder
        self.layer: Any = task.layer
        self.kernels, self.compiles, self.backend, self.capacity = kernels, compiles, backend, capacity
        self.everything, self.buffers = list(task.model.parameters()), list(task.model.buffers())
        self.batch = tuple(torch.empty_like(x) for x in batch)
        self.with_gradient: set[nn.Parameter] = set()  # parameters that a gradient reaches
        self.grads = {p: torch.zeros_like(p) for p in spec.trained}
        self.metrics: list[str] = []
        self.values: list[Tensor] = []
        self.load(batch)
        with RECORDING:
            self._prepare()
        self.optimiser_state = self._optimiser_state()

    # What kinds of passes do differently --------------------------------------------------------------------------

    @property
    def summary(self) -> str:
        """How the pass is done, for the log."""
        return "as one graph, layers by torch"

    def allocate(self) -> None:
        """Make the tensors that outlive a replay."""

    def differentiate(self) -> None:
        """Compute the loss of the batch, and add up the gradients."""
        loss = self.task.loss(self.batch, detach_attention=self.spec.detach_attention)
        total = self.set_loss(loss.task, loss.metrics)
        self.add(self.spec.trained, torch.autograd.grad(total, self.spec.trained, allow_unused=True))

    def evaluations(self) -> Evaluations:
        return Evaluations()

    def warm_up(self) -> None:
        """Do all of the pass once."""
        self._pass()

    def record(self) -> list[Replay]:
        """Record the pass and return all recordings."""
        return [self.recorder.record(self._pass)]

    def run(self, batch: tuple[Tensor, ...]) -> PassResult | None:
        """Do the pass on a batch; return None, with nothing changed, if it needs more room than was recorded."""
        self.load(batch)
        self.replays[0]()
        return self.result(self.evaluations())

    # Recording ----------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Run the pass once, so that kernels are compiled and libraries loaded; undo its changes; record it."""
        fill_momentum(group.optimiser for group in self.spec.groups)
        changed = [*self.everything, *self.buffers, *self._optimiser_state()]
        before = [x.detach().clone() for x in changed]
        with self.recorder.on_stream(), train_only(self.spec.trained, self.everything):
            try:
                self.allocate()
                self.warm_up()
            finally:
                with torch.no_grad():
                    for x, value in zip(changed, before, strict=True):
                        x.copy_(value)
                self.recorder.mark()
                self.recorder.wait()
            # freeing other recordings meanwhile would invalidate this one
            with collector_paused(), self.recorder.all_or_none():
                self.replays = self.record()
        for p in self.spec.trained:
            p.grad = None

    def _pass(self) -> None:
        self.clear_gradients()
        self.differentiate()
        self.update_parameters()

    def clear_gradients(self) -> None:
        torch_private.zero_all(list(self.grads.values()))

    def set_loss(self, loss: Tensor, metrics: dict[str, Tensor]) -> Tensor:
        """Keep loss and metrics for the result; return the loss to minimise."""
        total = loss + self.spec.penalty_term()
        self.metrics = list(metrics)
        self.values = [x.detach().reshape(()).float() for x in (loss, total, *metrics.values())]
        return total

    def add(self, parameters: Sequence[nn.Parameter], found: Sequence[Tensor | None]) -> None:
        """Add to the parameters' gradients."""
        pairs = [(p, g) for p, g in zip(parameters, found, strict=True) if g is not None]
        torch_private.add_all([self.grads[p] for p, _ in pairs], [g for _, g in pairs])
        self.with_gradient.update(p for p, _ in pairs)

    def update_parameters(self) -> None:
        """Compute the gradient norms and take the optimisers' steps."""
        for p in self.spec.trained:
            p.grad = self.grads[p] if p in self.with_gradient else None
        norms = [gradient_norm(group.parameters) for group in self.spec.groups]
        for group in self.spec.groups:
            sgd_step(group.optimiser, self.rate)
        self.out = torch.stack([*self.values, *norms])

    # Replaying ----------------------------------------------------------------------------------------------------

    def _optimiser_state(self) -> list[Tensor]:
        """Return the tensors, besides the parameters, that a step of the optimisers changes."""
        return [v for group in self.spec.groups for state in group.optimiser.state.values()
                for v in state.values() if isinstance(v, Tensor)]

    def is_current(self) -> bool:
        """Return True if the optimisers still use the recorded tensors; loading a checkpoint replaces them."""
        now = self._optimiser_state()
        return len(now) == len(self.optimiser_state) and all(
            x is y for x, y in zip(now, self.optimiser_state, strict=True))

    def supports(self, batch: Any) -> bool:
        """Return True if the batch has the recorded shapes."""
        return len(batch) == len(self.batch) and all(
            x.shape == mine.shape and x.dtype == mine.dtype for x, mine in zip(batch, self.batch, strict=True))

    def load(self, batch: tuple[Tensor, ...]) -> None:
        for mine, x in zip(self.batch, batch, strict=True):
            mine.copy_(x)

    def result(self, evaluations: Evaluations) -> PassResult:
        """Return loss, metrics and gradient norms of the last replay."""
        out, known = self.out.clone(), 2 + len(self.metrics)
        return PassResult(out[0], out[1], dict(zip(self.metrics, out[2:known], strict=True)), list(out[known:]),
                          evaluations)


class LayerPass(RecordedPass):
    """What passes of an ODE layer share: its field by kernels, and the gradients around its solve."""

    steps: AdjointSteps | DeviceSteps

    def allocate(self) -> None:
        solver = self.layer.solver
        _, state = self.layer.system(self.task.encode(self.batch), self.spec.detach_attention)
        operations = step_operations(state, self.kernels, self.backend)
        like = operations.arrange(tuple(b.detach() for b in state))
        stages = DeviceSteps.stages(solver) if solver.native else len(TABLEAUS[solver.method].b)
        self.layer_kernels = LayerKernels(self.layer, like, stages, self.kernels, self.compiles, self.backend)
        self.steps = self.make_steps(like, operations)

    def make_steps(self, like: State, operations: StepOperations) -> Any:
        raise NotImplementedError

    @property
    def summary(self) -> str:
        return f"steps by {self.steps.operations.name}, fields by {self.layer_kernels.fields_by}"

    def make_field(self) -> None:
        """Encode the batch: set the field, by kernels, and the initial state."""
        self.layer_kernels.load_parameters()
        field, self.state = self.layer.system(self.task.encode(self.batch), self.spec.detach_attention)
        self.field = self.layer_kernels.substitute(field)
        self.of_field = [p for p in self.field.parameters() if p in self.grads]

    def add_of_field(self, found: Sequence[Tensor | None]) -> None:
        self.add(self.of_field, found)

    def read_out(self, end: State) -> tuple[tuple[Tensor | None, ...], tuple[Tensor | None, ...]]:
        """Compute loss and metrics; return the gradients of the end state and of the trained parameters."""
        end = tuple(b.requires_grad_() for b in end)
        total = self.set_loss(*self.task.read_out(end[0], self.batch))
        found = torch.autograd.grad(total, (*end, *self.spec.trained), allow_unused=True)
        return found[:len(end)], found[len(end):]

    def add_before(self, gradient: State) -> None:
        """Add the gradients of q and the encoder, from that of the initial state, and those summed by kernels."""
        pairs = [(b, g) for b, g in zip(self.state, gradient, strict=True) if b.requires_grad]
        if pairs:
            outputs, seeds = zip(*pairs, strict=True)
            self.add(self.spec.trained, torch.autograd.grad(outputs, self.spec.trained, seeds, allow_unused=True))
        found = self.layer_kernels.gradients()
        self.add(list(found), list(found.values()))


class AdjointPass(LayerPass):
    steps: AdjointSteps

    def make_steps(self, like: State, operations: StepOperations) -> AdjointSteps:
        return AdjointSteps(like, (0.0, 1.0), self.layer.solver, operations, self.layer_kernels.observe)

    @property
    def summary(self) -> str:
        return f"as one graph, {super().summary}"

    def differentiate(self) -> None:
        self.make_field()
        end = self.steps.forward(self.field, tuple(b.detach() for b in self.state))
        of_end, of_parameters = self.read_out(end)
        self.add(self.spec.trained, of_parameters)
        adjoint = tuple(torch.zeros_like(b) if g is None else g for b, g in zip(end, of_end, strict=True))
        start = self.steps.backward(self.field, tuple(b.detach() for b in end), adjoint, self.of_field,
                                    self.add_of_field)
        self.add_before(start)

    def evaluations(self) -> Evaluations:
        return self.steps.evaluations()


class StepPass(LayerPass):
    """A pass as graphs that are replayed as often as its solve needs:

        encode     h(0) and a(0), the first slope and the first step size
        attempt    one attempted step, replayed until the end of the interval is reached
        read out   loss and metrics at h(1), and the gradient of h(1)
        step back  the backward pass of one accepted step, replayed for each of them
        update     the backward pass of q and the encoder, gradient norms, and the optimisers' steps

    With gradient "backprop" the first attempts have recordings of their own, which keep the autograd graphs for the
    backward pass. Later attempts, and all with gradient "checkpointed", are evaluated again in the backward pass. The
    host reads the device once a pass, to learn how many steps were taken.
    """

    steps: DeviceSteps

    def make_steps(self, like: State, operations: StepOperations) -> DeviceSteps:
        self.averages = running_averages(self.layer)
        self.graphs: dict[int, StageGraphs] = {}  # of the kept attempts, while the pass is recorded
        return DeviceSteps(like, (0.0, 1.0), self.layer.solver, operations, self.capacity, self.layer_kernels.observe)

    @property
    def summary(self) -> str:
        return f"{self.kept} steps kept for the backward pass, {super().summary}"

    def warm_up(self) -> None:
        """Run every part once without recording, and count the attempts of a solve."""
        self._encode()
        status = None
        while status is None or status.status == RUNNING:
            self._attempt()
            self.steps.control.send_to_host()
            self.recorder.mark()
            status = self._status()
        spare = SPARE if self.steps.tableau.adaptive else 0
        most = MAX_KEPT if self.averages else min(status.attempts + spare, MAX_KEPT)
        self.expected, self.kept = status.attempts, most if self.layer.solver.gradient == "backprop" else 0
        if self._averages_out_of_order(status):
            raise RecordingError(TOO_MANY_FOR_AVERAGES)
        self._encode()
        self._attempt_kept(0)
        self._read_out()
        self._step_back(0)
        self._read_out()
        self._step_back()
        self._update()

    def record(self) -> list[Replay]:
        """Record every part, in an order in which no recording reuses memory that a later replay still needs."""
        record = self.recorder.record
        self.encode = record(self._encode)
        self.kept_attempts = [record(partial(self._attempt_kept, i)) for i in range(self.kept)]
        self.attempt = record(self._attempt)
        self.replay_read_out = record(self._read_out)
        self.step_back = record(self._step_back)
        kept_back = [record(partial(self._step_back, i)) for i in reversed(range(self.kept))]
        self.kept_steps_back = kept_back[::-1]
        self.update = record(self._update)
        del self.field, self.state, self.of_field
        return [self.encode, *self.kept_attempts, self.attempt, self.replay_read_out, self.step_back,
                *self.kept_steps_back, self.update]

    def _encode(self) -> None:
        self.clear_gradients()
        self.make_field()
        if self.averages:
            self.layer.q(self.state[0].detach(), 0.0)  # `begin` evaluates without gradients, which updates no average
        self.steps.begin(self.field, tuple(b.detach() for b in self.state))

    def _attempt(self) -> None:
        self.steps.attempt(self.field)

    def _attempt_kept(self, number: int) -> None:
        with self._averages_change_if(self.steps.control.running()):  # an attempt after the end has no effect
            self.graphs[number] = self.steps.attempt(self.field, keep_graphs=True)

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
        of_end, of_parameters = self.read_out(self.steps.end_state())
        self.steps.begin_backward(of_end)
        for p, grad in zip(self.spec.trained, of_parameters, strict=True):
            if grad is not None:
                self.grads[p].copy_(grad)
                self.with_gradient.add(p)

    def _step_back(self, number: int | None = None) -> None:
        self.steps.step_back(self.field, self.of_field, self.add_of_field,
                             None if number is None else self.graphs.pop(number))

    def _update(self) -> None:
        """Finish the backward pass through the first slope, q and the encoder, and update the parameters."""
        with self._averages_change_if(self.rate.new_zeros((), dtype=torch.bool)):
            start = self.steps.back_to_start(self.field, self.of_field, self.add_of_field)
        self.add_before(start)
        self.update_parameters()

    # Replaying ----------------------------------------------------------------------------------------------------

    def run(self, batch: tuple[Tensor, ...]) -> PassResult | None:
        """Do the pass: as many attempts as the last solve needed and the read-out, then more attempts if needed.

        Return None if the solve takes more steps than can be stored. In that case, and if RecordingError is raised,
        nothing has changed.
        """
        before = [b.clone() for b in self.buffers]
        self.load(batch)
        self.encode()
        attempts, status = 0, None
        while status is None or status.status == RUNNING:
            first, attempts = attempts, max(self.expected, attempts + 1)
            for i in range(first, attempts):
                (self.kept_attempts[i] if i < self.kept else self.attempt)()
            self.steps.control.send_to_host()
            self.recorder.mark()
            self.replay_read_out()  # the device does it while the host waits for the status
            status = self._status()
        status.check(self.steps.span)
        out_of_order = self._averages_out_of_order(status)
        if out_of_order or status.status == STORE_FULL:
            for b, value in zip(self.buffers, before, strict=True):
                b.copy_(value)
            if out_of_order:
                raise RecordingError(TOO_MANY_FOR_AVERAGES)
            return None
        self.expected = status.attempts
        for i in reversed(status.accepted):
            (self.kept_steps_back[i] if i < self.kept else self.step_back)()
        self.update()
        return self.result(self.steps.evaluations(status, self.kept))

    def _status(self) -> SolveStatus:
        """Wait until the device has reached the recorder's mark, and return the state of the solve."""
        self.recorder.wait()
        return self.steps.control.read()


# Steps of SGD that can be recorded: momentum in place, the learning rate in a tensor on the device --------------------


def recordable(optimiser: torch.optim.Optimizer) -> bool:
    """Return True for SGD without dampening.

    torch applies no dampening in the first step; `fill_momentum` would make that step one with dampening.
    """
    return type(optimiser) is torch.optim.SGD and not any(group["dampening"] for group in optimiser.param_groups)


def fill_momentum(optimisers: Iterator[torch.optim.Optimizer]) -> None:
    """Give parameters that have no momentum yet a momentum of zero, which changes no step."""
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            for p in group["params"]:
                if group["momentum"] and optimiser.state[p].get("momentum_buffer") is None:
                    optimiser.state[p]["momentum_buffer"] = torch.zeros_like(p)


def sgd_step(optimiser: torch.optim.Optimizer, rate: Tensor) -> None:
    """Take one step with a learning rate that is read on the device."""
    before = [dict(group) for group in optimiser.param_groups]
    for group in optimiser.param_groups:
        group.update(lr=rate, fused=True, foreach=False)
    try:
        optimiser.step()
    finally:
        for group, values in zip(optimiser.param_groups, before, strict=True):
            group.update(values)
