"""The graph engine: records passes of Algorithm 1 as CUDA graphs, replays them for every batch, and logs why it cannot.

    RecordedPass  a model without an ODE, such as ResNet, as one graph
    AdjointPass   an ODE layer with a few fixed steps and the adjoint equation, such as RKNet's one of rk4, as one graph
    StepPass      an ODE layer whose solve takes steps of its own choice, or the steps of a grid, as several graphs

A pass is tried out before it is recorded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from acenode.accelerate.cuda_graph.fields import LayerKernels, step_operations
from acenode.accelerate.cuda_graph.recorder import (
    RECORDING,
    GraphRecorder,
    RecordingError,
    Replay,
    new_recorder,
    reason_of,
)
from acenode.accelerate.cuda_graph.step_control import RUNNING, STORE_FULL, SolveStatus, StepOperations
from acenode.accelerate.cuda_graph.steps import (
    CAPACITY,
    AdjointSteps,
    DeviceSteps,
    GradientSums,
    Stage,
    can_record_adjoint,
    detached,
)
from acenode.accelerate.triton_support import kernels_available
from acenode.backend import ACCELERATED, Backend
from acenode.device import torch_private
from acenode.errors import SolveError, UserError, is_out_of_memory
from acenode.garbage import collector_paused
from acenode.ode.options import Solver
from acenode.ode.runge_kutta import Evaluations, State
from acenode.ode.tableaus import TABLEAUS
from acenode.training.task import PiecewiseTask, Task
from acenode.training.trainer import PassResult, PassSpec, gradient_norm, train_only

MAX_CAPACITY = 256  # steps of a solve that are stored at most: 1.2 GB per pass for ACE on MNIST
MAX_KEPT = 16  # attempts that keep their autograd graphs
SPARE = 2  # kept attempts beyond those of the first solve, for later solves that take more


def running_averages(layer: nn.Module) -> list[Tensor]:
    """Return the buffers that every evaluation of the layer's field updates: fixed attention averages correlations."""
    return list(layer.buffers()) if getattr(layer, "attention", None) == "fixed" else []


class RecordedPass:
    """A pass recorded for batches of the shapes of the one it is made with."""

    summary = "as one graph, layers by torch"  # how the pass is done, for the log

    def __init__(self, engine: GraphEngine, spec: PassSpec, batch: tuple[Tensor, ...], capacity: int) -> None:
        self.task, self.recorder, self.rate, self.kernels = engine.task, engine.recorder, engine.rate, engine.kernels
        self.backend, self.spec, self.capacity = engine.backend, spec, capacity
        self.layer: Any = self.task.layer
        self.buffers = list(self.task.model.buffers())
        self.batch = tuple(x.clone() for x in batch)
        self.grads = GradientSums(spec.trained)
        self.metrics: list[str] = []
        self.values: list[Tensor] = []
        with RECORDING:
            self._prepare()

    def _prepare(self) -> None:
        """Run the pass once, so that kernels are compiled and libraries loaded; undo its changes; record it."""
        fill_momentum(group.optimiser for group in self.spec.groups)
        parameters = list(self.task.model.parameters())
        momenta = [v for group in self.spec.groups for state in group.optimiser.state.values()
                   for v in state.values() if isinstance(v, Tensor)]
        changed = [*parameters, *self.buffers, *momenta]
        before = [x.detach().clone() for x in changed]
        with self.recorder.on_stream(), train_only(self.spec.trained, parameters):
            try:
                self.allocate()
                self.do_once()
            finally:
                with torch.no_grad():
                    for x, value in zip(changed, before, strict=True):
                        x.copy_(value)
                self.recorder.mark()
                self.recorder.wait()
            with collector_paused():  # freeing other recordings meanwhile would invalidate this one
                self.record()
        for p in self.spec.trained:
            p.grad = None

    # What kinds of passes do differently --------------------------------------------------------------------------

    def allocate(self) -> None:
        """Make the tensors that outlive a replay."""

    def differentiate(self) -> None:
        """Compute the loss of the batch, and add up the gradients."""
        loss = self.task.loss(self.batch, detach_attention=self.spec.detach_attention)
        total = self.set_loss(loss.task, loss.metrics)
        self.grads.add(self.spec.trained, torch.autograd.grad(total, self.spec.trained, allow_unused=True))

    def evaluations(self) -> Evaluations:
        return Evaluations()

    def do_once(self) -> None:
        self.grads.clear()
        self.differentiate()
        self.update_parameters()

    def record(self) -> None:
        self.replay = self.recorder.record(self.do_once)

    def run(self, batch: tuple[Tensor, ...]) -> PassResult | None:
        """Do the pass on a batch; return None, with nothing changed, if it needs more room than was recorded."""
        torch_private.copy_all(self.batch, batch)
        self.replay()
        return self.result(self.evaluations())

    # What they share ----------------------------------------------------------------------------------------------

    def set_loss(self, loss: Tensor, metrics: dict[str, Tensor]) -> Tensor:
        """Keep loss and metrics for the result; return the loss to minimise."""
        total = loss + self.spec.penalty_term()
        self.metrics = list(metrics)
        self.values = [x.detach().reshape(()).float() for x in (loss, total, *metrics.values())]
        return total

    def update_parameters(self) -> None:
        """Compute the gradient norms and take the optimisers' steps."""
        for p in self.spec.trained:
            p.grad = self.grads.sums[p] if p in self.grads.reached else None
        norms = [gradient_norm(group.parameters) for group in self.spec.groups]
        for group in self.spec.groups:
            sgd_step(group.optimiser, self.rate)
        self.out = torch.stack([*self.values, *norms])

    def supports(self, batch: Any) -> bool:
        """Return True if the batch has the recorded shapes."""
        return [(x.shape, x.dtype) for x in batch] == [(x.shape, x.dtype) for x in self.batch]

    def result(self, evaluations: Evaluations) -> PassResult:
        """Return loss, metrics and gradient norms of the last replay."""
        out, known = self.out.clone(), 2 + len(self.metrics)
        return PassResult(out[0], out[1], dict(zip(self.metrics, out[2:known], strict=True)), list(out[known:]),
                          evaluations)


class LayerPass(RecordedPass):
    """What passes of an ODE layer share: its field by kernels, and the gradients around its solve."""

    steps: Any
    summary = ""

    def make_steps(self, like: State, operations: StepOperations) -> AdjointSteps | DeviceSteps:
        raise NotImplementedError

    def allocate(self) -> None:
        _, state = self.layer.system(self.task.encode(self.batch), self.spec.detach_attention)
        operations = step_operations(state, self.kernels, self.backend)
        like = operations.arrange(detached(state))
        self.steps = self.make_steps(like, operations)
        self.layer_kernels = LayerKernels(self.layer, like, self.steps.stages, self.kernels, self.backend)
        self.steps.observe = self.layer_kernels.observe
        self.summary += f"steps by {operations.name}, fields by {self.layer_kernels.fields_by}"

    def make_field(self) -> None:
        """Encode the batch: set the field, by kernels, and the initial state."""
        self.layer_kernels.load_parameters()
        field, self.state = self.layer.system(self.task.encode(self.batch), self.spec.detach_attention)
        self.field = self.layer_kernels.substitute(field)

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
            self.grads.add(self.spec.trained,
                           torch.autograd.grad(outputs, self.spec.trained, seeds, allow_unused=True))
        found = self.layer_kernels.gradients()
        self.grads.add(list(found), list(found.values()))


class AdjointPass(LayerPass):
    summary = "as one graph, "

    def make_steps(self, like: State, operations: StepOperations) -> AdjointSteps:
        return AdjointSteps(like, self.layer.solver, operations)

    def differentiate(self) -> None:
        self.make_field()
        end = self.steps.forward(self.field, detached(self.state))
        of_end, of_parameters = self.read_out(end)
        self.grads.add(self.spec.trained, of_parameters)
        adjoint = tuple(torch.zeros_like(b) if g is None else g for b, g in zip(end, of_end, strict=True))
        self.add_before(self.steps.backward(self.field, detached(end), adjoint, self.grads))

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

    def make_steps(self, like: State, operations: StepOperations) -> DeviceSteps:
        self.averages = running_averages(self.layer)
        self.stages: dict[int, list[Stage]] = {}  # of the kept attempts, while the pass is recorded
        return DeviceSteps(like, self.layer.solver, operations, self.capacity)

    def do_once(self) -> None:
        """Run every part once without recording, and count the attempts of a solve."""
        self._encode()
        status = None
        while status is None or status.status == RUNNING:
            self.steps.attempt(self.field)
            self.steps.control.send_to_host()
            self.recorder.mark()
            status = self._status()
        spare = SPARE if self.steps.tableau.adaptive else 0
        most = MAX_KEPT if self.averages else min(status.attempts + spare, MAX_KEPT)
        self.expected, self.kept = status.attempts, most if self.layer.solver.gradient == "backprop" else 0
        self.summary = f"{self.kept} steps kept for the backward pass, {self.summary}"
        self._encode()
        self._attempt_kept(0)
        self._read_out()
        self._step_back(0)
        self._read_out()
        self._step_back()
        self._update()

    def record(self) -> None:
        """Record every part, in an order in which no recording reuses memory that a later replay still needs."""
        record, kept = self.recorder.record, range(self.kept)
        self.encode = record(self._encode)
        self.kept_attempts: list[Replay] = [record(partial(self._attempt_kept, i)) for i in kept]
        self.attempt = record(lambda: self.steps.attempt(self.field))
        self.replay_read_out = record(self._read_out)
        self.step_back = record(self._step_back)
        self.kept_steps_back = [record(partial(self._step_back, i)) for i in reversed(kept)][::-1]
        self.update = record(self._update)
        del self.field, self.state

    def _encode(self) -> None:
        self.grads.clear()
        self.make_field()
        if self.averages:
            self.layer.q(self.state[0].detach(), 0.0)  # `begin` evaluates without gradients, which updates no average
        self.steps.begin(self.field, detached(self.state))

    def _attempt_kept(self, number: int) -> None:
        with self._averages_change_if(self.steps.control.running()):  # an attempt after the end has no effect
            self.stages[number] = self.steps.attempt(self.field, keep_graphs=True)

    @contextmanager
    def _averages_change_if(self, condition: Tensor) -> Iterator[None]:
        """Keep what the block does to the running averages only where the condition holds."""
        before = [b.clone() for b in self.averages]
        yield
        for b, value in zip(self.averages, before, strict=True):
            b.copy_(torch.where(condition, b, value))

    def _read_out(self) -> None:
        """Compute loss and metrics, and start the backward pass.

        Gradients are set here and added to later, so that it may be replayed when a solve needs more steps.
        """
        of_end, of_parameters = self.read_out(self.steps.end_state())
        self.steps.begin_backward(of_end)
        for p, grad in zip(self.spec.trained, of_parameters, strict=True):
            if grad is not None:
                self.grads.sums[p].copy_(grad)
                self.grads.reached.add(p)

    def _step_back(self, number: int | None = None) -> None:
        self.steps.step_back(self.field, self.grads, None if number is None else self.stages.pop(number))

    def _update(self) -> None:
        """Finish the backward pass through the first slope, q and the encoder, and update the parameters."""
        with self._averages_change_if(self.rate.new_zeros((), dtype=torch.bool)):
            start = self.steps.back_to_start(self.field, self.grads)
        self.add_before(start)
        self.update_parameters()

    def run(self, batch: tuple[Tensor, ...]) -> PassResult | None:
        """Do the pass: as many attempts as the last solve needed and the read-out, then more attempts if needed.

        Return None if the solve takes more steps than can be stored. In that case, and if RecordingError is raised,
        nothing has changed.
        """
        before = [b.clone() for b in self.buffers]
        torch_private.copy_all(self.batch, batch)
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
        status.check(self.layer.solver.max_steps)
        # recomputing steps in the backward pass would update running averages out of order
        out_of_order = self.averages and 0 < self.kept < status.attempts
        if out_of_order or status.status == STORE_FULL:
            for b, value in zip(self.buffers, before, strict=True):
                b.copy_(value)
            if out_of_order:
                raise RecordingError("fixed attention can average correlations only in solves of at most "
                                     f"{MAX_KEPT} steps")
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


# The engine of a run -------------------------------------------------------------------------------------------------


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


def make_engine(task: PiecewiseTask, device: torch.device, backend: Backend) -> GraphEngine | None:
    """Return an engine with a stream for its recordings, or None if all streams are in use; `close` releases it."""
    rate, kernels = torch.zeros((), device=device), kernels_available(backend, device)
    recorder = new_recorder(device)
    return None if recorder is None else GraphEngine(task, recorder, rate, kernels, backend)


class GraphEngine:
    """Runs passes as CUDA graphs, recorded when a pass is first needed; disabled permanently if recording fails."""

    def __init__(self, task: PiecewiseTask, recorder: GraphRecorder, rate: Tensor, kernels: bool = False,
                 backend: Backend = ACCELERATED) -> None:
        self.task, self.recorder, self.backend, self.kernels = task, recorder, backend, kernels
        self.passes: dict[str, RecordedPass] = {}
        self.capacities: dict[str, int] = {}  # of passes whose solves took more than CAPACITY steps
        self.rate, self.rate_now = rate, 0.0  # the learning rate where the optimisers read it, and its value
        self.disabled = False
        self.on_fallback: Callable[[str], None] = lambda line: None  # called with the log line when disabled

    def run(self, spec: PassSpec, batch: Any) -> PassResult | None:
        """Do a pass; return None, with nothing changed, if it must be done without recordings."""
        recorded = None if self.disabled else self._recorded(spec, batch)
        if recorded is None:
            return None
        if not recorded.supports(batch):
            self.backend.log_once("graph engine: a batch has another shape than the first: it is trained in native "
                                  "steps")
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
        self.backend.log_once(f"graph engine: {took}: the pass is recorded for {self.capacities[name]}")

    def _recorded(self, spec: PassSpec, batch: Any) -> RecordedPass | None:
        """Return the recordings of a pass, made now if there are none.

        Where kernels fail, the pass is recorded without them; if that fails too, the engine is disabled.
        """
        if spec.name not in self.passes and not all(recordable(group.optimiser) for group in spec.groups):
            self._disable("the optimiser is not plain SGD")
        while spec.name not in self.passes and not self.disabled:
            try:
                self.passes[spec.name] = self._record(spec, batch)
            except (SolveError, UserError):
                raise
            except Exception as error:
                reason = reason_of(error)
                if isinstance(error, RecordingError) or not self.kernels or is_out_of_memory(error):
                    self._disable(reason)
                else:
                    self.kernels = False
                    self._free()
                    self.backend.log_once(f"graph engine: kernels do not run here ({reason}): torch's operations are "
                                          "recorded")
        return self.passes.get(spec.name)

    def _record(self, spec: PassSpec, batch: Any) -> RecordedPass:
        start, layer, kind = time.perf_counter(), cast(Any, self.task.layer), RecordedPass
        if hasattr(layer, "system"):
            kind = StepPass if layer.solver.native else AdjointPass
        recorded = kind(self, spec, batch, self.capacities.get(spec.name, CAPACITY))
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

    def _free(self) -> None:
        """Free all passes, which are recorded again when they are needed."""
        self.recorder.free()
        self.passes.clear()

    def close(self) -> None:
        """Free the recordings with their memory, and release the stream."""
        self._free()
        self.recorder.close()


def fallback_line(reason: str) -> str:
    """Return the line of the log that says why a run is trained without the graph engine."""
    return f"graph engine not used: {reason}; training without it"
