"""Train runs through the launcher while the caller waits: a plan, of a study or of the paper, or seeds of one command.

Unfinished runs of a plan are continued, a few at a time, within a number of minutes. When the time is up, or the user
asks to stop, running ones write a checkpoint and stop; the same plan then goes on from there.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from acenode import experiments
from acenode.compare.groups import trained_settings, unfinished
from acenode.compare.metrics import duration
from acenode.compare.reproduction import PlannedRun, Seconds, measured_seconds
from acenode.compare.study_grid import GridCell, StudyGrid, make_grid, repeat_title
from acenode.config import Config
from acenode.data.folder import data_dir, is_file
from acenode.data.registry import source_of
from acenode.errors import UserError
from acenode.execution.devices import default_workers, quick_device
from acenode.execution.engine_choice import MAX_SEEDS, separate_reason, without_seed
from acenode.execution.environment import device_of
from acenode.execution.estimate import estimate
from acenode.execution.execute import Outcome
from acenode.execution.launcher import ABANDONED, Launcher
from acenode.runs.catalogue import Catalogue, Entry
from acenode.runs.questions import Search, Study
from acenode.runs.recorded import chosen_recorded_runs
from acenode.runs.store import BUSY, Run, RunStore

POLL_SECONDS = 0.5
STOP_SECONDS = 30.0  # before the end, running runs are asked to stop: an iteration, a checkpoint
START_SECONDS = 60.0  # a run that will not finish needs so long to set up and reach a checkpoint worth keeping
CLOSE_SECONDS = 120.0


def start_or_resume(launcher: Launcher, config: Config, entries: Iterable[Entry]) -> tuple[Run, str]:
    """Start a run, or continue the one of these that is unfinished; return it with `started` or `resumed`."""
    before = unfinished(config, entries)
    if before is None:
        return launcher.start(config), "started"
    launcher.resume(before.run)
    return before.run, "resumed"


@dataclass(frozen=True)
class StudyRun:
    """A run to train for a study."""

    title: str
    config: Config
    seconds: float | None


QueuedRun = PlannedRun | StudyRun  # for the paper's tables, or for a study


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


class PlanTrainer:
    """Trains a plan, at most `workers` runs at a time."""

    def __init__(self, plan: Sequence[QueuedRun], launcher: Launcher, catalogue: Catalogue, *, workers: int = 1,
                 seconds: float | None = None, on_event: Callable[[Event], None] = lambda event: None,
                 on_progress: Callable[[PlanTrainer], None] = lambda trainer: None) -> None:
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
            for run, _ in self.running.values():  # it writes a checkpoint
                self.launcher.stop(run)
            if self.running:
                self.launcher.wait(CLOSE_SECONDS)
            self._collect()
        self.outcomes.left = self.waiting
        return self.outcomes

    def _start(self) -> None:
        """Start the next runs while there are free workers and time; seeds of one computation need one worker."""
        with self.launcher.queue_together():
            joined = set[Config]()  # configurations whose other seeds start with the first one
            for planned in list(self.waiting):
                usable = self.seconds_left() - STOP_SECONDS
                # It can finish in time, or at least get far enough for a checkpoint. A shorter one may still finish.
                worth = usable >= START_SECONDS or (planned.seconds is not None and planned.seconds <= usable)
                configs = [running.config for _, running in self.running.values()]
                used = {without_seed(c) if self.launcher.trains_together(c) else c for c in configs}
                if worth and (without_seed(planned.config) in joined or len(used) < self.workers):
                    self.waiting.remove(planned)
                    if self._begin(planned) and self.launcher.trains_together(planned.config):
                        joined.add(without_seed(planned.config))

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

    def _collect(self) -> None:
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


# Studies ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StudyTime:
    """The runs that are left and how long they take, `workers` at a time."""

    runs: int  # that are missing, unfinished or running
    seconds: float | None  # of those whose time is known; None if that is none of them
    unknown: int = 0  # runs whose time is not known
    workers: int = 1
    basis: str = ""  # what the time is based on, or why there is none

    @property
    def text(self) -> str:
        """The time in words: `9 runs, about 8 min (from 3 similar finished runs)`."""
        if not self.runs:
            return "all runs are finished"
        text = f"{self.runs} run{'s' * (self.runs > 1)}, "
        text += "time unknown" if self.seconds is None else f"about {duration(self.seconds)}"
        if self.seconds is not None:
            text += f" {self.workers} at a time" * (self.workers > 1)
            text += f" and {self.unknown} of unknown time" * (self.unknown > 0)
        return text + (f" ({self.basis})" if self.basis else "")


def time_left(grid: StudyGrid, seconds: Seconds, workers: int = 1, basis: str = "") -> StudyTime:
    """Return the time of the runs that are left, if runs side by side are as fast as alone."""
    times = [cell_seconds(cell, seconds) for cell in grid.cells if cell.value is None]
    known = [time for time in times if time is not None]
    total = max(sum(known) / workers, max(known)) if known else None
    return StudyTime(len(times), total, len(times) - len(known), workers, basis)


def cell_seconds(cell: GridCell, seconds: Seconds) -> float | None:
    """Return the seconds that are left of one cell: what a running run says itself, else a share of the whole."""
    if cell.value is not None:
        return 0.0
    if cell.entry is not None and cell.entry.state == "running" and cell.entry.seconds_left is not None:
        return cell.entry.seconds_left
    whole = seconds(cell.config)
    return None if whole is None else whole * (1 - cell.progress)


def plan(grid: StudyGrid, device: str = "auto", seconds: Seconds = lambda config: None) -> list[StudyRun]:
    """Return the runs that are missing or unfinished, the first seed of every group first."""
    names = {id(cell): row.name for row in grid.rows for cell in row.cells}
    return [StudyRun(f"{names[id(cell)]}, {repeat_title(grid.study, cell.repeat)}", replace(cell.config, device=device),
                     cell_seconds(cell, seconds)) for cell in grid.wanted]


def check_data(use: Study | Search, root: Path) -> None:
    """Raise a UserError if a study or search needs data that is not in the data folder."""
    source = experiments.get(use.experiment).source
    if use.data == "full" and source is not None and not is_file(source_of(source).path(root)):
        raise UserError(f"the data of {use.experiment} is missing: get it with `acenode data get {source}`")


def estimated_time(grid: StudyGrid, catalogue: Catalogue, root: Path, *, device: str = "auto",
                   workers: int = 1) -> StudyTime:
    """Return the time of the runs that are left, from similar finished runs; where there are none, iterations are
    timed, which takes seconds."""
    wanted = [replace(cell.config, device=device) for cell in grid.cells if cell.value is None]
    found = estimate(wanted, catalogue, root)
    each = {replace(config, device="auto"): seconds for config, seconds in found.seconds_each.items()}
    return time_left(grid, lambda config: each.get(replace(config, device="auto")), workers, found.basis)


def measured_time(grid: StudyGrid, catalogue: Catalogue, *, device: str = "auto", workers: int = 1) -> StudyTime:
    """Return the time of the runs that are left from similar finished runs alone, at once: for a study that runs."""
    kind, title = quick_device(device)
    return time_left(grid, measured_seconds(catalogue.entries(), kind, title), workers)


def queue_study(grid: StudyGrid, launcher: Launcher, entries: Sequence[Entry], *, device: str = "auto") -> list[Run]:
    """Queue the runs of a study that are missing, resume those that are unfinished, and return them in order."""
    with launcher.queue_together():
        return [start_or_resume(launcher, planned.config, entries)[0] for planned in plan(grid, device)]


def train_study(study: Study, runs: Path | str = "runs", *, device: str = "auto") -> StudyGrid:
    """Train the runs of a study that are missing, and continue those that are unfinished.

    Ctrl-C stops with a checkpoint; the next call continues from there. A run that fails is left out.

    Args:
        study: the study.
        runs: the folder of runs.
        device: auto, cpu or cuda.

    Returns:
        The grid of the study with all runs there are.
    """
    root, catalogue = data_dir(), Catalogue(RunStore(runs, recorded=chosen_recorded_runs()))
    check_data(study, root)
    if left := plan(make_grid(study, catalogue.entries()), device):
        launcher, _ = launcher_for_seeds(left[0].config, catalogue.store, root)
        with contextlib.closing(launcher), stop_on_interrupt() as stop:
            PlanTrainer(left, launcher, catalogue, workers=launcher.workers(device), on_event=_print_failure).run(stop)
    return make_grid(study, catalogue.entries())


def _print_failure(event: Event) -> None:
    if event.kind == "failed":
        print(f"{event.planned.title} failed: {event.detail}")


# One run, or seeds of a configuration, while the caller waits --------------------------------------------------------

SHOWN = ("phase", "progress", "epoch", "epochs", "step", "seconds", "seconds_left", "best", "metric")  # of status.json


def launcher_for_seeds(config: Config, store: RunStore, data_root: Path) -> tuple[Launcher, int]:
    """Return a launcher for seeds of a configuration and how many it trains at a time: on a processor as one
    computation, if the model supports it, or one after another; on a GPU in processes of their own."""
    device = str(device_of(config.device))
    launcher = Launcher(store, data_root)
    if device == "cpu":
        return launcher, 1 if separate_reason(config, device) is not None else MAX_SEEDS
    gpus = launcher.devices(device)
    size = default_workers("cuda", gpus)
    launcher.set_workers(device, -(-size // gpus))
    return launcher, size


def execute_queued(launcher: Launcher, runs: Sequence[Run], *, stop: threading.Event | None = None,
                   progress: Callable[[Run, dict[str, Any]], None] = lambda run, status: None) -> list[Outcome]:
    """Have a launcher train and test runs, and return how each ended; those that `stop` left out are stopped.

    `progress` is called with a run and its status about twice a second, and for each epoch.
    """
    stop, stopped, ended = stop or threading.Event(), False, False
    offsets = {run.id: run.metrics()[1] for run in runs}
    try:
        with launcher.queue_together():
            for run in runs:
                launcher.resume(run)
        while not ended:
            ended = launcher.wait(POLL_SECONDS)
            if stop.is_set() and not stopped:
                stopped = True
                for run in runs:
                    with contextlib.suppress(UserError, OSError):  # deleted meanwhile, or the disk is full
                        launcher.stop(run)
            _report(runs, offsets, progress)
    finally:
        launcher.close()
    return [_outcome(run) for run in runs]


def _report(runs: Sequence[Run], offsets: dict[str, int], progress: Callable[[Run, dict[str, Any]], None]) -> None:
    """Report what is new in the run directories, the epochs of all runs in order; `offsets` are in their metrics."""
    found: list[tuple[float, Run, dict[str, Any]]] = []
    for run in runs:
        try:
            records, offset = run.metrics(offsets[run.id])
            status = run.status()
        except UserError:  # deleted meanwhile
            continue
        if "phase" in status and status["state"] != "queued":
            offsets[run.id] = offset
            shown: dict[str, Any] = {key: status.get(key) for key in SHOWN} | {"fallback": None}
            for record in records:
                shown |= {k: record[k] for k in ("L_h", "L_a") if k in record}
                if record.get("kind") == "epoch":
                    value, epoch = record.get(f"validation_{status.get('metric')}"), record["epoch"]
                    found.append((epoch, run, shown | {"epoch": epoch, "validation": value,
                                                       "seconds": record.get("elapsed", shown["seconds"])}))
            found.append((math.inf, run, shown))
    for _, run, shown in sorted(found, key=lambda each: each[0]):
        progress(run, shown)


def _outcome(run: Run) -> Outcome:
    try:
        status, result, params = run.status(), run.result(), int(run.description().get("params", 0))
    except UserError as error:  # deleted meanwhile, or damaged
        return Outcome(run, "failed", {}, 0.0, 0, str(error))
    if status["state"] in BUSY:
        status |= {"state": "failed", "error": ABANDONED}
    tested = result["test"] if result and status["state"] == "finished" else {}
    return Outcome(run, status["state"], {k: float("nan") if v is None else v for k, v in tested.items()},
                   float(status.get("seconds") or 0), params, status.get("error"))


@contextlib.contextmanager
def stop_on_interrupt() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C or SIGTERM sets; a second Ctrl-C raises KeyboardInterrupt."""
    stop = threading.Event()

    def request(number: int, frame: object) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {s: signal.signal(s, request) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
