"""Runs of several seeds meet at every pass and have it done as one batched computation.

Each run keeps a trainer, a thread and a folder of its own. Its trainer asks a seat of the group to do a pass; when all
seats have asked, the thread of the first one does the pass for all, and every trainer gets its own result. A run that
stops, fails or ends leaves its seat, and the others continue without it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from acenode.backend import ACCELERATED, Backend
from acenode.errors import SolveError
from acenode.ode.options import Solver
from acenode.training.passes import PassResult, PassSpec
from acenode.training.task import PiecewiseTask, Task

if TYPE_CHECKING:  # type checking only: a run with engine=reference imports no accelerated code
    from acenode.accelerate.many_seeds.graph_pass import GraphLane

ON_A_GPU = "queued runs on a GPU have recorded CUDA graphs of their own"
NOT_PIECEWISE = "this model is not an encoder, an ODE layer and a read-out"
NO_LAYER = "this method has no ODE layer between an encoder and a read-out"
OTHER_STEPS = "it needs our own Runge–Kutta steps with gradient=backprop"
NO_KERNEL = "the C kernel does not support this model or solver, or there is no C compiler"
RUNNING_AVERAGES = "the model keeps running averages, which belong to one seed"


def unstackable_reason(task: Task, device: torch.device) -> str | None:
    """Return why seeds of a task cannot be trained as one computation, or None if they can."""
    layer: Any = getattr(task, "layer", None)
    solver = getattr(layer, "solver", None)
    if not isinstance(task, PiecewiseTask):
        return NOT_PIECEWISE
    if device.type != "cpu":
        from acenode.accelerate.cuda_graph.engine import unsupported_reason

        return unsupported_reason(task, device)
    if not hasattr(layer, "system") or not isinstance(solver, Solver):
        return NO_LAYER
    if not solver.native or solver.gradient != "backprop":
        return OTHER_STEPS
    if list(task.model.buffers()):
        return RUNNING_AVERAGES
    return None


class Passes(Protocol):
    """Does a pass of several seeds at once."""

    def run(self, specs: Sequence[PassSpec],
            batches: Sequence[tuple[Tensor, ...]]) -> Sequence[PassResult | SolveError | None]: ...


MakePasses = Callable[[Sequence[PiecewiseTask], Backend], Passes | None]


def make_passes(tasks: Sequence[PiecewiseTask], backend: Backend) -> Passes | None:
    """Return what does the passes of tasks of one configuration, or None if each seed does them alone.

    A single seed whose companions have left keeps the kernel, so that its numbers do not depend on when they left.
    Stacked tensors (`StackedPasses`) take longer on a processor than one seed after another: they are the plain version
    that the kernel is tested against.
    """
    from acenode.accelerate.many_seeds import kernel_steps
    from acenode.accelerate.many_seeds.kernel_pass import KernelPasses

    return KernelPasses(tasks) if kernel_steps.supports(tasks[0].layer, backend) else None


@dataclass
class _PassRequest:
    """A pass that a trainer waits for."""

    spec: PassSpec
    batch: tuple[Tensor, ...]

    def fits(self, other: _PassRequest) -> bool:
        """Return True if the two passes can be done as one."""
        return self.spec.name == other.spec.name and len(self.batch) == len(other.batch) and all(
            x.shape == y.shape and x.dtype == y.dtype for x, y in zip(self.batch, other.batch, strict=True))


class SeedGroup:
    """The seats of several runs.

    Args:
        count: the number of runs; every one must take its seat or leave it.
        make: makes what does the passes of the tasks of those who have a seat; None if they do them alone.
    """

    def __init__(self, count: int, make: MakePasses = make_passes) -> None:
        self.make, self.changed, self.disabled = make, threading.Condition(), False
        self.seats = [Seat(self) for _ in range(count)]
        self.passes: Passes | None = None
        self.made = False  # whether `passes` is for those who have a seat now

    def present(self) -> list[Seat]:
        return [seat for seat in self.seats if seat.open]

    def answer(self, seats: Sequence[Seat]) -> None:
        """Do the passes that the seats have asked for; an answer of None is a pass that the run does alone."""
        requests = [seat.request for seat in seats]
        results: Sequence[PassResult | SolveError | None] = [None] * len(seats)
        if all(r is not None and requests[0] is not None and requests[0].fits(r) for r in requests):
            try:
                results = self._run([r for r in requests if r is not None], seats)
            except SolveError:
                pass  # each solves alone: the one that fails again raises its own error
            except Exception as error:
                self.disable(f"{type(error).__name__}: {error}".splitlines()[0])
        for seat, result in zip(seats, results, strict=True):
            seat.result, seat.request = result, None

    def _run(self, requests: Sequence[_PassRequest],
             seats: Sequence[Seat]) -> Sequence[PassResult | SolveError | None]:
        if not self.made:
            self.passes = self._make(seats)
            self.made = True
        if self.passes is None:
            self.disable(NO_KERNEL)
            return [None] * len(seats)
        return self.passes.run([r.spec for r in requests], [r.batch for r in requests])

    def _make(self, seats: Sequence[Seat]) -> Passes | None:
        lanes = [seat.lane for seat in seats if seat.lane is not None]
        if len(lanes) < len(seats):
            return self.make([seat.task for seat in seats if seat.task is not None], seats[0].backend)
        from acenode.accelerate.many_seeds.graph_pass import GraphPasses

        return GraphPasses(lanes)

    def disable(self, reason: str) -> None:
        self.disabled = True
        for seat in self.present():
            seat.backend.log(fallback_line(reason))

    def forget(self) -> None:
        """Stack the parameters anew at the next pass, because a run has left."""
        self.passes, self.made = None, False


class Seat:
    """The place of one run in a group: an engine for its trainer."""

    def __init__(self, group: SeedGroup) -> None:
        self.group, self.open = group, True
        self.task: PiecewiseTask | None = None
        self.backend = ACCELERATED
        self.lane: GraphLane | None = None
        self.request: _PassRequest | None = None
        self.result: PassResult | SolveError | None = None
        self.on_fallback: Callable[[str], None] = lambda line: None

    def take(self, task: PiecewiseTask, backend: Backend, lane: GraphLane | None = None) -> Seat:
        """Take part with a task whose parameters are on the device; on a GPU with an engine and a stream of its own."""
        self.task, self.backend, self.lane = task, backend, lane
        if lane is not None:
            lane.engine.on_fallback = lambda line: self.on_fallback(line)
        return self

    def run(self, spec: PassSpec, batch: Any) -> PassResult | None:
        """Do a pass together with the other runs; return None if this run must do it without an engine."""
        if self.group.disabled or not self.open:
            return None if self.lane is None else self.lane.engine.run(spec, batch)
        result = self._wait_for(_PassRequest(spec, batch))
        if isinstance(result, SolveError):
            raise result
        return result

    def _wait_for(self, request: _PassRequest) -> PassResult | SolveError | None:
        """Return what the pass gives once all runs have asked for theirs; this thread may be the one that does them."""
        group = self.group
        with group.changed:
            self.request, self.result = request, None
            group.changed.notify_all()
            while self.request is not None:
                seats = group.present()
                if seats[0] is self and all(seat.request is not None for seat in seats):
                    group.answer(seats)
                    group.changed.notify_all()
                else:
                    group.changed.wait()
            return self.result

    def close(self) -> None:
        """Leave the group; the others no longer wait for this run."""
        with self.group.changed:
            if self.open:
                self.open, self.task = False, None
                self.group.forget()
                self.group.changed.notify_all()
            lane, self.lane = self.lane, None
        if lane is not None:
            lane.engine.close()


def fallback_line(reason: str) -> str:
    """Return the line of the log that says why seeds are not trained as one computation."""
    return f"not trained as one computation with other seeds: {reason}"
