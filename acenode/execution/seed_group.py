"""Train seeds of one configuration as one computation, on a processor and where the model allows it.

Each run keeps a trainer, a thread and a folder of its own. Its trainer asks a seat of the group to do a pass; when all
seats have asked, the thread of the first one does the pass for all, and every trainer gets its own result. A run that
stops, fails or ends leaves its seat, and the others continue without it.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from acenode import experiments
from acenode.backend import ACCELERATED, Backend
from acenode.config import Config
from acenode.config.groups import ImageNetwork, SolverSettings
from acenode.errors import SolveError
from acenode.training.passes import PassResult, PassSpec
from acenode.training.task import PiecewiseTask

MAX_SEEDS = 8  # in one computation; their models and optimisers are in memory at the same time
NO_KERNEL = "the C kernel does not support this model or solver, or there is no C compiler"


def without_seed(config: Config) -> Config:
    """Return what seeds of one configuration have in common."""
    return dataclasses.replace(config, seed=0)


def separate_reason(config: Config, device: str) -> str | None:
    """Return why seeds of a configuration are trained as ordinary runs, or None if they can be one computation.

    Args:
        config: of one of the seeds.
        device: cpu, or a GPU such as cuda:0.
    """
    groups = experiments.get(config.experiment).method(config.method).groups
    if device.partition(":")[0] != "cpu":
        return "on a GPU every run has a process of its own"
    if ImageNetwork not in groups:
        return "this model is not an encoder, an ODE layer and a read-out"
    if SolverSettings not in groups:
        return "this method has no ODE layer between an encoder and a read-out"
    solver = config.part(SolverSettings).to_solver()
    if not solver.native or solver.gradient != "backprop":
        return "it needs our own Runge–Kutta steps with gradient=backprop"
    if config.get("attention") == "fixed" or config.get("initial") == "correlation":
        return "the model keeps running averages, which belong to one seed"
    return None


def fallback_line(reason: str) -> str:
    """Return the line of the log that says why seeds are not trained as one computation."""
    return f"not trained as one computation with other seeds: {reason}"


class Passes(Protocol):
    """Does a pass of several seeds at once."""

    def run(self, specs: Sequence[PassSpec], batches: Sequence[tuple[Tensor, ...]]) -> Sequence[PassResult]: ...


MakePasses = Callable[[Sequence[PiecewiseTask], Backend], Passes | None]


def make_passes(tasks: Sequence[PiecewiseTask], backend: Backend) -> Passes | None:
    """Return what does the passes of tasks of one configuration, or None if each seed does them alone.

    A single seed whose companions have left keeps the kernel, so that its numbers do not depend on when they left.
    """
    from acenode.accelerate.many_seeds.passes import SeedPasses
    from acenode.accelerate.many_seeds.steps import supports

    return SeedPasses(tasks) if supports(tasks[0].layer, backend) else None


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
        self.passes: Passes | None = None  # of those who have a seat now, once they have done a pass

    def present(self) -> list[Seat]:
        return [seat for seat in self.seats if seat.open]

    def answer(self, seats: Sequence[Seat]) -> None:
        """Do the passes that the seats have asked for; an answer of None is a pass that the run does alone."""
        requests = [seat.request for seat in seats if seat.request is not None]
        results: Sequence[PassResult | None] = [None] * len(seats)
        if all(requests[0].fits(request) for request in requests):
            try:
                results = self._run(requests, seats)
            except SolveError:
                pass  # each solves alone: the one that fails again raises its own error
            except Exception as error:
                self._disable(f"{type(error).__name__}: {error}".splitlines()[0])
        for seat, result in zip(seats, results, strict=True):
            seat.result, seat.request = result, None

    def _run(self, requests: Sequence[_PassRequest], seats: Sequence[Seat]) -> Sequence[PassResult | None]:
        if self.passes is None:
            self.passes = self.make([seat.task for seat in seats if seat.task is not None], seats[0].backend)
        if self.passes is None:
            self._disable(NO_KERNEL)
            return [None] * len(seats)
        return self.passes.run([r.spec for r in requests], [r.batch for r in requests])

    def _disable(self, reason: str) -> None:
        self.disabled = True
        for seat in self.present():
            seat.backend.log(fallback_line(reason))


class Seat:
    """The place of one run in a group: an engine for its trainer."""

    def __init__(self, group: SeedGroup) -> None:
        self.group, self.open = group, True
        self.task: PiecewiseTask | None = None
        self.backend = ACCELERATED
        self.request: _PassRequest | None = None
        self.result: PassResult | None = None
        self.on_fallback: Callable[[str], None] = lambda line: None

    def take(self, task: PiecewiseTask, backend: Backend) -> Seat:
        """Take part with a task."""
        self.task, self.backend = task, backend
        if (others := len(self.group.present()) - 1) > 0:
            backend.log(f"trained as one computation with {others} other seed{'s' if others > 1 else ''}")
        return self

    def run(self, spec: PassSpec, batch: Any) -> PassResult | None:
        """Do a pass together with the other runs; return None if this run must do it by itself.

        The thread of one of the runs does the pass of all, once all have asked for theirs.
        """
        group = self.group
        if group.disabled or not self.open:
            return None
        with group.changed:
            self.request, self.result = _PassRequest(spec, batch), None
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
                self.open, self.task, self.group.passes = False, None, None
                self.group.changed.notify_all()
