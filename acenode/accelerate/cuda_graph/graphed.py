"""One pass of Algorithm 1 as recordings that are replayed for every batch:

    encode    h(0) and a(0), the first slope and the first step size
    step      a try of a step, until the end is reached
    read out  loss and metrics at h(1), and the gradient that goes back
    back      over an accepted step, for each of them
    update    through q and the encoder, the gradients' norms and the optimisers' steps

With gradient "backprop" the first tries have recordings of their own, which remember what going back needs; any other
try, and every one with gradient "checkpointed", is taken again on the way back. The host reads the device once a
pass, to learn how many steps it took.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from acenode.accelerate import torch_private
from acenode.accelerate.cuda_graph import update
from acenode.accelerate.cuda_graph.accelerate import Accelerated, operations_for
from acenode.accelerate.cuda_graph.capture import RECORDING, Recorder
from acenode.accelerate.cuda_graph.control import FULL, RUNNING, Told
from acenode.accelerate.cuda_graph.steps import PLACES, Steps, Taken
from acenode.backend import ACCELERATED, Backend
from acenode.training.passes import PassResult, PassSpec, gradient_norm, train_only
from acenode.training.task import PiecewiseTask

REMEMBERED = 16  # tries at most
SPARE = 2  # of them beyond those of the first solve, for later ones that take more
OUT_OF_TURN = f"correlations are averaged over {REMEMBERED} tries of a solve at most"


def noted_by(layer: nn.Module) -> list[Tensor]:
    """What every evaluation of a layer's field writes down: averages that a fixed attention keeps of correlations."""
    return list(layer.buffers()) if getattr(layer, "attention", None) == "fixed" else []


class RecordingError(RuntimeError):
    """A pass that recordings cannot do, in words."""


class GraphedPass:
    """A pass of a task that comes in pieces, for batches like the one it is made with."""

    def __init__(self, task: PiecewiseTask, spec: PassSpec, batch: tuple[Tensor, ...], recorder: Recorder,
                 rate: Tensor, *, places: int = PLACES, kernels: bool = True, compiles: bool = True,
                 backend: Backend = ACCELERATED) -> None:
        self.task, self.spec, self.rate, self.recorder = task, spec, rate, recorder
        self.places = places  # steps that are kept
        self.backend = backend
        self.kernels, self.compiles = kernels, compiles  # whether our kernels are wanted, and torch's for other fields
        self.everything, self.buffers = list(task.model.parameters()), list(task.model.buffers())
        self.noted = noted_by(task.layer)
        self.batch = tuple(torch.empty_like(x) for x in batch)
        self.taken: dict[int, Taken] = {}  # tries that are remembered, while they are recorded
        self.used: set[nn.Parameter] = set()  # parameters that a gradient reaches
        self.grads = {p: torch.zeros_like(p) for p in spec.trained}
        self._load(batch)
        with RECORDING:
            self._prepare()
        self.states = self._states()

    # Recording ----------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Do all of it once, so that kernels are compiled and libraries loaded, undo that, and record it."""
        for group in self.spec.groups:
            update.settle(group.optimiser)
        changed = [*self.everything, *self.buffers,
                   *(x for group in self.spec.groups for x in update.state_of(group.optimiser))]
        before = [x.detach().clone() for x in changed]
        with self.recorder.beside(), train_only(self.spec.trained, self.everything):
            try:
                self._shape()
                with self.accelerated.used():
                    self._rehearse()
            finally:
                with torch.no_grad():
                    for x, value in zip(changed, before, strict=True):
                        x.copy_(value)
                self.recorder.mark()
                self.recorder.wait()
            with self.accelerated.used(), self.recorder.all_or_none():
                self._record()
        del self.field, self.state
        self.taken.clear()
        for p in self.spec.trained:
            p.grad = None

    def _rehearse(self) -> None:
        """The pass as it is, to see how many tries a solve takes."""
        self._encode()
        self._step()
        told = self._look()
        while told.status == RUNNING:
            self._step()
            told = self._look()
        backprop = self.task.layer.solver.gradient == "backprop"  # type: ignore[union-attr]
        spare = SPARE if self.steps.tableau.adaptive else 0
        most = REMEMBERED if self.noted else min(told.tried + spare, REMEMBERED)
        self.expected, self.remembered = told.tried, most if backprop else 0
        if self._out_of_turn(told):
            raise RecordingError(OUT_OF_TURN)
        self._encode()
        self._try(0)
        self._read_out()
        self._back_over(0)
        self._read_out()
        self._back()
        self._update()

    def _record(self) -> None:
        """In an order in which nothing takes the memory of what a later replay still needs."""
        record = self.recorder.record
        self.encode = record(self._encode)
        self.tries = [record(partial(self._try, i)) for i in range(self.remembered)]
        self.step = record(self._step)
        self.read_out = record(self._read_out)
        self.back = record(self._back)
        backs = [record(partial(self._back_over, i)) for i in reversed(range(self.remembered))]
        self.backs = backs[::-1]
        self.update = record(self._update)
        self.replays = [self.encode, *self.tries, self.step, self.read_out, self.back, *self.backs, self.update]

    def _shape(self) -> None:
        """What the states look like, and the tensors that outlive a replay."""
        layer: Any = self.task.layer
        _, state = layer.system(self.task.encode(self.batch), self.spec.detach_attention)
        operations = operations_for(state, self.kernels, self.backend)
        like = operations.arrange(tuple(b.detach() for b in state))
        self.accelerated = Accelerated(layer, like, Steps.stages(layer.solver), self.kernels, self.compiles,
                                       self.backend)
        self.steps = Steps(like, (0.0, 1.0), layer.solver, operations, self.places, self.accelerated)

    def _encode(self) -> None:
        torch_private.zero_all(list(self.grads.values()))
        self.accelerated.refresh()
        layer: Any = self.task.layer
        self.field, self.state = layer.system(self.task.encode(self.batch), self.spec.detach_attention)
        if self.noted:
            layer.q(self.state[0].detach(), 0.0)  # the first evaluation, which `begin` does without a graph
        self.steps.begin(self.field, tuple(b.detach() for b in self.state))

    def _step(self) -> None:
        self.steps.attempt(self.field)

    def _try(self, number: int) -> None:
        with self._noted_if(self.steps.control.running()):  # nothing comes of a try after the end
            taken = self.steps.attempt(self.field, remember=True)
        assert taken is not None
        self.taken[number] = taken

    @contextmanager
    def _noted_if(self, condition: Tensor) -> Iterator[None]:
        """What evaluations write down stands where the condition holds."""
        before = [b.clone() for b in self.noted]
        yield
        for b, value in zip(self.noted, before, strict=True):
            b.copy_(torch.where(condition, b, value))

    def _out_of_turn(self, told: Told) -> bool:
        """Whether tries that are taken again on the way back would write down there what belongs on the way out."""
        return bool(self.noted) and 0 < self.remembered < told.tried

    def _read_out(self) -> None:
        """Gradients are set here and added to later, so that this may be replayed when more steps were needed."""
        end = tuple(b.requires_grad_() for b in self.steps.end())
        loss, metrics = self.task.read_out(end[0], self.batch)
        total = loss + self.spec.penalty_term()
        found = torch.autograd.grad(total, (*end, *self.spec.trained), allow_unused=True)
        self.steps.turn(found[:len(end)])
        for p, grad in zip(self.spec.trained, found[len(end):], strict=True):
            if grad is not None:
                self.grads[p].copy_(grad)
                self.used.add(p)
        self.metrics = list(metrics)
        self.values = [x.detach().reshape(()).float() for x in (loss, total, *metrics.values())]

    def _back(self) -> None:
        self.steps.back(self.field, self._in_field, self._add_in_field)

    def _back_over(self, number: int) -> None:
        self.steps.back(self.field, self._in_field, self._add_in_field, self.taken.pop(number))

    def _update(self) -> None:
        """What the steps leave: the first slope's share, what lies before h(0), and who is to be updated by it."""
        with self._noted_if(self.rate.new_zeros((), dtype=torch.bool)):
            start = self.steps.back_to_start(self.field, self._in_field, self._add_in_field)
        pairs = [(b, g) for b, g in zip(self.state, start, strict=True) if b.requires_grad]
        if pairs:
            outputs, seeds = zip(*pairs, strict=True)
            self._add(self.spec.trained,
                      torch.autograd.grad(outputs, self.spec.trained, seeds, allow_unused=True))
        kernels = self.accelerated.gradients()
        self._add(list(kernels), list(kernels.values()))
        for p in self.spec.trained:
            p.grad = self.grads[p] if p in self.used else None
        norms = [gradient_norm(group.parameters) for group in self.spec.groups]
        for group in self.spec.groups:
            update.step(group.optimiser, self.rate)
        self.out = torch.stack([*self.values, *norms])

    @property
    def _in_field(self) -> list[nn.Parameter]:
        return [p for p in self.field.parameters() if p in self.grads]

    def _add_in_field(self, found: Sequence[Tensor | None]) -> None:
        self._add(self._in_field, found)

    def _add(self, parameters: Sequence[nn.Parameter], found: Sequence[Tensor | None]) -> None:
        pairs = [(p, g) for p, g in zip(parameters, found, strict=True) if g is not None]
        if pairs:
            torch_private.add_all([self.grads[p] for p, _ in pairs], [g for _, g in pairs])
            self.used.update(p for p, _ in pairs)

    # Replaying ----------------------------------------------------------------------------------------------------

    def _states(self) -> list[Tensor]:
        return [x for group in self.spec.groups for x in update.state_of(group.optimiser)]

    def stands(self) -> bool:
        """Whether the optimisers' state is where it was: loading a checkpoint puts another in its place."""
        now = self._states()
        return len(now) == len(self.states) and all(x is y for x, y in zip(now, self.states, strict=True))

    def fits(self, batch: Any) -> bool:
        return len(batch) == len(self.batch) and all(
            x.shape == mine.shape and x.dtype == mine.dtype for x, mine in zip(batch, self.batch, strict=True))

    def run(self, batch: tuple[Tensor, ...]) -> PassResult | None:
        """The pass on a batch; None where it takes more steps than are kept. Then, and where it raises RecordingError,
        nothing has been changed.
        """
        before = [b.clone() for b in self.buffers]
        self._load(batch)
        self.encode()
        for i in range(self.expected):
            self._replay_try(i)
        told, tried = self._ask(), self.expected
        while told.status == RUNNING:
            self._replay_try(tried)
            told, tried = self._ask(), tried + 1
        told.check(self.steps.span)
        out_of_turn = self._out_of_turn(told)
        if out_of_turn or told.status == FULL:
            for b, value in zip(self.buffers, before, strict=True):
                b.copy_(value)
            if out_of_turn:
                raise RecordingError(OUT_OF_TURN)
            return None
        self.expected = told.tried
        for i in reversed(told.tries):
            (self.backs[i] if i < self.remembered else self.back)()
        self.update()
        out = self.out.clone()
        known = 2 + len(self.metrics)
        return PassResult(out[0], out[1], dict(zip(self.metrics, out[2:known], strict=True)), list(out[known:]),
                          self.steps.evaluations(told, self.remembered))

    def _load(self, batch: tuple[Tensor, ...]) -> None:
        for mine, x in zip(self.batch, batch, strict=True):
            mine.copy_(x)

    def _replay_try(self, number: int) -> None:
        (self.tries[number] if number < self.remembered else self.step)()

    def _ask(self) -> Told:
        """How the solve stands; the device goes on with the read-out while the host waits."""
        self.steps.control.send()
        self.recorder.mark()
        self.read_out()
        self.recorder.wait()
        return self.steps.control.read()

    def _look(self) -> Told:
        self.steps.control.send()
        self.recorder.mark()
        self.recorder.wait()
        return self.steps.control.read()
