"""One pass of Algorithm 1 as five recordings, replayed for every batch:

    encode    h(0) and a(0), the first slope and the first step size
    step      one try of a step, replayed until the end is reached
    read out  loss and metrics at h(1), and the gradient that goes back
    back      over one accepted step, replayed for each of them
    update    through q and the encoder, the gradients' norms and the optimisers' steps

The host reads the device once a pass, to learn how many steps it took.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from acenode.engine import update
from acenode.engine.accelerate import Accelerated, operations_for
from acenode.engine.capture import RECORDING, Recorder
from acenode.engine.control import FULL, RUNNING
from acenode.engine.steps import PLACES, Steps
from acenode.passes import Pass, Passed, only
from acenode.task import Pieces

EXPECTED = 6  # steps before anything is known


class GraphedPass:
    """A pass of a task that comes in pieces, for batches like the one it is made with."""

    def __init__(self, task: Pieces, this: Pass, batch: tuple[Tensor, ...], recorder: Recorder, rate: Tensor) -> None:
        self.task, self.this, self.rate, self.recorder = task, this, rate, recorder
        self.everything = list(task.model.parameters())
        self.batch = tuple(torch.empty_like(x) for x in batch)
        self.expected = EXPECTED
        self.used: set[nn.Parameter] = set()  # parameters that a gradient reaches
        self.grads = {p: torch.zeros_like(p) for p in this.trained}
        self._load(batch)
        with RECORDING:
            self._prepare()

    # Recording ----------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Do all of it once, so that kernels are compiled and libraries loaded, undo that, and record it."""
        for group in self.this.groups:
            update.settle(group.optimiser)
        changed = [*self.everything, *self.task.model.buffers(),
                   *(x for group in self.this.groups for x in update.state_of(group.optimiser))]
        before = [x.detach().clone() for x in changed]
        with self.recorder.beside(), only(self.this.trained, self.everything):
            self._shape()
            with self.accelerated.used():
                for work in (self._encode, self._step, self._read_out, self._back, self._update):
                    work()
                with torch.no_grad():
                    for x, value in zip(changed, before, strict=True):
                        x.copy_(value)
                self.recorder.mark()
                self.recorder.wait()
                self.encode, self.step, self.read_out, self.back, self.update = (
                    self.recorder.record(work)
                    for work in (self._encode, self._step, self._read_out, self._back, self._update))
        del self.field, self.state
        for p in self.this.trained:
            p.grad = None

    def _shape(self) -> None:
        """What the states look like, and the tensors that outlive a replay."""
        layer: Any = self.task.layer
        _, state = layer.system(self.task.encode(self.batch), self.this.detach_attention)
        operations = operations_for(state)
        like = operations.arrange(tuple(b.detach() for b in state))
        self.accelerated = Accelerated(layer, like)
        self.steps = Steps(like, (0.0, 1.0), layer.solver, operations, PLACES)

    def _encode(self) -> None:
        torch._foreach_zero_(list(self.grads.values()))
        self.accelerated.refresh()
        layer: Any = self.task.layer
        self.field, self.state = layer.system(self.task.encode(self.batch), self.this.detach_attention)
        self.steps.begin(self.field, tuple(b.detach() for b in self.state))

    def _step(self) -> None:
        self.steps.attempt(self.field)

    def _read_out(self) -> None:
        """Gradients are set here and added to later, so that this may be replayed when more steps were needed."""
        end = tuple(b.requires_grad_() for b in self.steps.end())
        loss, metrics = self.task.read_out(end[0], self.batch)
        total = loss + self.this.penalty_of()
        found = torch.autograd.grad(total, (*end, *self.this.trained), allow_unused=True)
        self.steps.turn(found[:len(end)])
        for p, grad in zip(self.this.trained, found[len(end):], strict=True):
            if grad is not None:
                self.grads[p].copy_(grad)
                self.used.add(p)
        self.metrics = list(metrics)
        self.values = [x.detach().reshape(()).float() for x in (loss, total, *metrics.values())]

    def _back(self) -> None:
        self.steps.back(self.field, self._in_field, self._add_in_field)

    def _update(self) -> None:
        """What the steps leave: the first slope's share, what lies before h(0), and who is to be updated by it."""
        start = self.steps.back_to_start(self.field, self._in_field, self._add_in_field)
        pairs = [(b, g) for b, g in zip(self.state, start, strict=True) if b.requires_grad]
        if pairs:
            outputs, seeds = zip(*pairs, strict=True)
            self._add(self.this.trained,
                      torch.autograd.grad(outputs, self.this.trained, seeds, allow_unused=True))
        kernels = self.accelerated.gradients()
        self._add(list(kernels), list(kernels.values()))
        for p in self.this.trained:
            p.grad = self.grads[p] if p in self.used else None
        norms = [_norm(group.parameters) for group in self.this.groups]
        for group in self.this.groups:
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
            torch._foreach_add_([self.grads[p] for p, _ in pairs], [g for _, g in pairs])
            self.used.update(p for p, _ in pairs)

    # Replaying ----------------------------------------------------------------------------------------------------

    def fits(self, batch: Any) -> bool:
        return len(batch) == len(self.batch) and all(
            x.shape == mine.shape and x.dtype == mine.dtype for x, mine in zip(batch, self.batch, strict=True))

    def run(self, batch: tuple[Tensor, ...]) -> Passed | None:
        """The pass on a batch; None where it takes more steps than are kept, and nothing has been changed."""
        self._load(batch)
        self.encode()
        for _ in range(self.expected):
            self.step()
        told = self._ask()
        while told.status == RUNNING:
            self.step()
            told = self._ask()
        told.check(self.steps.span)
        if told.status == FULL:
            return None
        self.expected = told.tried
        for _ in told.sizes:
            self.back()
        self.update()
        out = self.out.clone()
        known = 2 + len(self.metrics)
        return Passed(out[0], out[1], dict(zip(self.metrics, out[2:known], strict=True)), list(out[known:]),
                      self.steps.evaluations(told.tried, told.sizes))

    def _load(self, batch: tuple[Tensor, ...]) -> None:
        for mine, x in zip(self.batch, batch, strict=True):
            mine.copy_(x)

    def _ask(self) -> Any:
        """How the solve stands; the device goes on with the read-out while the host waits."""
        self.steps.control.send()
        self.recorder.mark()
        self.read_out()
        self.recorder.wait()
        return self.steps.control.read()


def _norm(parameters: Sequence[nn.Parameter]) -> Tensor:
    grads = [p.grad for p in parameters if p.grad is not None]
    return torch.nn.utils.get_total_norm(grads)
