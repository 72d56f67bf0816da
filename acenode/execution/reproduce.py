"""Train planned runs through the launcher, a few at a time, within a number of minutes.

Runs that are unfinished are continued. When the time is up, or the user asks to stop, running ones write a checkpoint
and stop; the same plan then goes on from there.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from acenode.compare.groups import trained_settings, unfinished
from acenode.config import Config
from acenode.errors import UserError
from acenode.execution.seed_group import without_seed
from acenode.runs.catalogue import Catalogue, Entry
from acenode.runs.store import BUSY, Run

POLL_SECONDS = 0.5
STOP_SECONDS = 30.0  # before the end, running runs are asked to stop: an iteration, a checkpoint
START_SECONDS = 60.0  # a run that will not finish needs so long to set up and reach a checkpoint worth keeping
CLOSE_SECONDS = 120.0
GPU_RUNS = 6  # at a time on each, where the processor has a core or two for each


class RunLauncher(Protocol):
    """What is used of the launcher."""

    def queue_together(self) -> AbstractContextManager[None]: ...
    def trains_together(self, config: Config) -> bool: ...
    def start(self, config: Config) -> Run: ...
    def resume(self, run: Run) -> None: ...
    def stop(self, run: Run) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...


def start_or_resume(launcher: RunLauncher, config: Config, entries: Iterable[Entry]) -> tuple[Run, str]:
    """Start a run, or continue the one of these that is unfinished; return it with `started` or `resumed`."""
    before = unfinished(config, entries)
    if before is None:
        return launcher.start(config), "started"
    launcher.resume(before.run)
    return before.run, "resumed"


class QueuedRun(Protocol):
    """A run of a plan: for the paper's tables, or for a study."""

    @property
    def title(self) -> str: ...
    @property
    def config(self) -> Config: ...
    @property
    def seconds(self) -> float | None: ...


@dataclass
class Outcomes:
    """How the planned runs ended, by the ids of the runs; `left` was not started."""

    finished: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # with the error
    elsewhere: list[str] = field(default_factory=list)  # finished or running in another process by now
    left: list[QueuedRun] = field(default_factory=list)


@dataclass(frozen=True)
class Event:
    """Something that happened to a planned run: started, resumed, finished, stopped, failed or elsewhere."""

    kind: str
    planned: QueuedRun
    run: Run | None = None
    detail: str = ""


def default_workers(device: str, gpus: int = 1) -> int:
    """Return how many runs to train at a time: on each GPU a few side by side, on a processor one for two cores."""
    pairs = max(1, (os.cpu_count() or 1) // 2)
    return min(GPU_RUNS * gpus, pairs) if device == "cuda" else pairs


class Reproduction:
    """Trains a plan, at most `workers` runs at a time."""

    def __init__(self, plan: Sequence[QueuedRun], launcher: RunLauncher, catalogue: Catalogue, *, workers: int = 1,
                 seconds: float | None = None, on_event: Callable[[Event], None] = lambda event: None,
                 on_progress: Callable[[Reproduction], None] = lambda reproduction: None) -> None:
        self.plan, self.launcher, self.catalogue, self.workers = list(plan), launcher, catalogue, workers
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self.on_event, self.on_progress = on_event, on_progress
        self.waiting = list(plan)
        self.running: dict[str, tuple[Run, QueuedRun]] = {}
        self.outcomes = Outcomes()
        self.finished_before = {entry.id for entry in catalogue.entries() if entry.state == "finished"}

    def seconds_left(self) -> float:
        """Return the seconds until running runs must have stopped; infinite without a limit."""
        return float("inf") if self.deadline is None else self.deadline - time.monotonic()

    def run(self, stop: threading.Event | None = None) -> Outcomes:
        """Train until the plan is done, the time is up or `stop` is set; return how the runs ended."""
        stop = stop or threading.Event()
        try:
            while not stop.is_set() and self.seconds_left() > STOP_SECONDS:
                self._collect()
                self._start()
                if not self.running:
                    break
                self.on_progress(self)
                stop.wait(min(POLL_SECONDS, max(0.0, self.seconds_left() - STOP_SECONDS)))
        finally:
            self._stop_all()
        self.outcomes.left = self.waiting
        return self.outcomes

    def _start(self) -> None:
        """Start the next runs while there are free workers and time; seeds of one computation need one worker."""
        with self.launcher.queue_together():
            position, joined = 0, set[Config]()  # configurations whose other seeds start with the first one
            while position < len(self.waiting):
                planned = self.waiting[position]
                joins = without_seed(planned.config) in joined
                if not (joins or self._workers_used() < self.workers) or not self._worth_starting(planned):
                    position += 1  # a shorter one may still finish, another seed may join
                    continue
                del self.waiting[position]
                if self._begin(planned) and self.launcher.trains_together(planned.config):
                    joined.add(without_seed(planned.config))

    def _workers_used(self) -> int:
        """Return how many workers the running runs need."""
        configs = [planned.config for _, planned in self.running.values()]
        return len({without_seed(config) if self.launcher.trains_together(config) else config for config in configs})

    def _begin(self, planned: QueuedRun) -> bool:
        """Start or continue a run, unless another process has trained it since the plan was made; return True if it is
        queued now."""
        entries, wanted = self.catalogue.entries(), trained_settings(planned.config.to_dict())
        same = [e for e in entries if trained_settings(e.config) == wanted and e.id not in self.running
                and not e.search]
        if any(e.busy or (e.state == "finished" and e.id not in self.finished_before) for e in same):
            self.outcomes.elsewhere.append(planned.title)
            self.on_event(Event("elsewhere", planned))
            return False
        try:
            run, kind = start_or_resume(self.launcher, planned.config, same)
        except UserError as error:
            self.outcomes.failed[planned.title] = str(error)
            self.on_event(Event("failed", planned, detail=str(error)))
            return False
        self.running[run.id] = (run, planned)
        self.on_event(Event(kind, planned, run))
        return True

    def _worth_starting(self, planned: QueuedRun) -> bool:
        """Return True if the run can finish in time, or at least get far enough for a checkpoint."""
        usable = self.seconds_left() - STOP_SECONDS
        return usable >= START_SECONDS or (planned.seconds is not None and planned.seconds <= usable)

    def _collect(self) -> None:
        """Take note of the runs that have ended."""
        for run, planned in list(self.running.values()):
            try:
                status = run.status()
            except UserError as error:  # deleted, or damaged
                status = {"state": "failed", "error": str(error)}
            if status["state"] in BUSY:
                continue
            del self.running[run.id]
            if status["state"] in ("finished", "stopped"):
                {"finished": self.outcomes.finished, "stopped": self.outcomes.stopped}[status["state"]].append(run.id)
                self.on_event(Event(status["state"], planned, run))
            else:
                reason = str(status.get("error") or status["state"])
                self.outcomes.failed[run.id] = reason
                self.on_event(Event("failed", planned, run, reason))

    def _stop_all(self) -> None:
        """Ask the running runs to write a checkpoint and stop, and wait for them."""
        for run, _ in self.running.values():
            self.launcher.stop(run)
        if self.running:
            self.launcher.wait(CLOSE_SECONDS)
        self._collect()
