"""Training in background threads: one queue, some workers a device. Knows nothing of who looks on.

What passes between a worker and whoever watches is the run directory alone; the launcher adds the order of the queue
and the flags that ask a run to stop.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from acenode.config import Config
from acenode.errors import UserError
from acenode.execution.devices import CpuMeter, DeviceState, cpu_state, gpu_state, kinds
from acenode.execution.environment import device_of
from acenode.execution.execute import create, execute
from acenode.runs.lock import is_locked
from acenode.runs.process import identity
from acenode.runs.store import BUSY, Run, RunStore

IDLE = 0.2  # seconds between looks at an empty queue
LEFT = "nobody trains it any more, and its last state could not be written"


@dataclass
class _Job:
    """A run that waits or runs, the device it wants, and the flag that asks it to stop."""

    run: Run
    device: str
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None


class Launcher:
    """Start, stop, resume, delete and reorder runs; each device works through the queue on its own."""

    def __init__(self, store: RunStore, data_root: Path) -> None:
        self.store, self.data_root = store, data_root
        self.changed = threading.Condition()
        self.waiting: list[_Job] = []
        self.running: dict[str, _Job] = {}
        self.limits = dict.fromkeys(kinds(), 1)
        self.closed = False
        self.meter = CpuMeter()
        self.dispatcher = threading.Thread(target=self._dispatch, name="acenode-launcher", daemon=True)
        self.dispatcher.start()

    # What can be asked ------------------------------------------------------------------------------------------

    def start(self, config: Config) -> Run:
        """Queue a new run."""
        with self.changed:  # nobody may take it for one that was left behind before it waits
            self._check_open()
            run = create(self.store, config)
            self._enqueue(run, device_of(config.device).type)
        return run

    def resume(self, run: Run) -> None:
        """Queue a run that stopped, failed or was interrupted; it goes on from its last checkpoint."""
        with self.changed:  # held throughout: of two who ask, one is told that it waits already
            if self._find(run.id) is not None:
                raise UserError(f"{run.id} is already waiting or running")
            state = self._state(run)
            if state in ("finished", "running", "queued"):  # the latter two by another process
                raise UserError(f"{run.id} is {state}: there is nothing to resume")
            device = device_of(run.config().device).type
            self._check_open()
            run.cancel_stop()
            run.set_state("queued", error=None)
            self._enqueue(run, device)

    def retry(self, run: Run) -> Run:
        """The same configuration once more, from the beginning, as a new run."""
        return self.start(run.config())

    def stop(self, run: Run) -> None:
        """Take a run out of the queue, or ask it to stop after this iteration; asking twice does no harm."""
        with self.changed:
            job = self._find(run.id)
            if job is not None and job in self.waiting:
                self.waiting.remove(job)
                run.set_state("stopped")
                self.changed.notify_all()
            elif job is not None:
                job.stop.set()
            elif self._state(run) in BUSY:  # by another process
                run.request_stop()
            elif run.stored_state() in BUSY:  # nobody is left to hear it
                run.set_state("interrupted", error=run.status()["error"] or LEFT)

    def delete(self, run: Run) -> None:
        """Remove a run that nobody trains."""
        with self.changed:
            if run.id in self.running:
                raise UserError(f"{run.id} is running: stop it first")
            state = "unreadable"
            with contextlib.suppress(UserError):  # a torn run may be deleted all the same
                state = self._state(run)
            if state == "running":
                raise UserError(f"{run.id} is trained by another process: stop it first")
            self.waiting = [job for job in self.waiting if job.run.id != run.id]
            self.changed.notify_all()
            try:
                run.delete()
            except FileNotFoundError:
                pass  # somebody else was faster
            except OSError as error:
                raise UserError(f"{run.path} cannot be deleted ({error.strerror or error}): put that right, then "
                                "try again") from None

    def move(self, run: Run, place: int) -> None:
        """Give a waiting run another place in the queue, counted from 0."""
        with self.changed:
            job = self._find(run.id)
            if job is None or job not in self.waiting:
                raise UserError(f"{run.id} is not waiting")
            self.waiting.remove(job)
            self.waiting.insert(max(0, place), job)

    def set_workers(self, device: str, count: int) -> None:
        """How many runs a device trains at a time."""
        if device not in self.limits:
            raise UserError(f"there is no device {device!r}: choose one of {', '.join(self.limits)}")
        if not 1 <= count <= 64:
            raise UserError(f"a device takes 1 to 64 runs at a time, not {count}")
        with self.changed:
            self.limits[device] = count
            self.changed.notify_all()

    def queue(self) -> list[str]:
        """Ids of the waiting runs, next one first."""
        with self.changed:
            return [job.run.id for job in self.waiting]

    def place(self, run_id: str) -> int | None:
        """A waiting run's place in the queue, counted from 0; None where it does not wait."""
        with self.changed:
            return next((i for i, job in enumerate(self.waiting) if job.run.id == run_id), None)

    def active(self) -> list[str]:
        """Ids of the runs being trained by this process."""
        with self.changed:
            return list(self.running)

    def read_outs(self) -> list[DeviceState]:
        """What each device has to do and how loaded it is."""
        with self.changed:
            limits = dict(self.limits)
            running = [job.device for job in self.running.values()]
        return [cpu_state(self.meter, workers, running.count(name)) if name == "cpu" else
                gpu_state(workers, running.count(name)) for name, workers in limits.items()]

    def wait(self, timeout: float | None = None) -> bool:
        """Until nothing waits or runs; whether that came to pass."""
        with self.changed:
            return self.changed.wait_for(lambda: not self.waiting and not self.running, timeout)

    def close(self, timeout: float | None = 60.0) -> None:
        """Start nothing more, ask what runs to write a checkpoint and stop, and wait for it."""
        with self.changed:
            self.closed = True
            waiting, self.waiting = self.waiting, []
            jobs = list(self.running.values())
            for job in jobs:
                job.stop.set()
            for job in waiting:
                with contextlib.suppress(UserError, OSError):  # a torn run keeps no other from being stopped
                    job.run.set_state("stopped")
            self.changed.notify_all()
        for job in jobs:
            if job.thread is not None:
                job.thread.join(timeout)

    def recover(self) -> list[Run]:
        """Mark as interrupted what a dead process left waiting or running; those runs."""
        left = []
        for run in self.store:
            with contextlib.suppress(UserError):
                status = run.status()
                if status["state"] == "interrupted" and run.stored_state() != "interrupted":
                    run.set_state("interrupted", error=status["error"])
                    left.append(run)
        return left

    # How it is done ---------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self.closed:
            raise UserError("the launcher is closing: start the app again")

    def _enqueue(self, run: Run, device: str) -> None:
        with self.changed:
            self._check_open()
            self.waiting.append(_Job(run, device))
            self.changed.notify_all()

    def _find(self, run_id: str) -> _Job | None:
        return self.running.get(run_id) or next((j for j in self.waiting if j.run.id == run_id), None)

    def _state(self, run: Run) -> str:
        """The state; `interrupted` too where this process was to train it and does not: its last write failed."""
        status = run.status()
        here = status["state"] in BUSY and status["process"] == identity()
        return "interrupted" if here and self._find(run.id) is None and not is_locked(run) else status["state"]

    def _ready(self) -> Iterator[_Job]:
        """Waiting jobs whose device has room, in order."""
        busy = {name: sum(j.device == name for j in self.running.values()) for name in self.limits}
        for job in list(self.waiting):
            if busy[job.device] < self.limits[job.device]:
                busy[job.device] += 1
                yield job

    def _dispatch(self) -> None:
        while True:
            with self.changed:
                if self.closed:
                    return
                for job in self._ready():
                    self.waiting.remove(job)
                    self.running[job.run.id] = job
                    job.thread = threading.Thread(target=self._work, args=(job,), name=f"acenode-{job.run.id}",
                                                  daemon=True)
                    job.thread.start()
                    self.changed.notify_all()
                self.changed.wait(IDLE)

    def _work(self, job: _Job) -> None:
        try:
            execute(job.run, self.data_root, stop=job.stop)
        except UserError as trouble:  # in the run's status already, unless it never came to that
            with contextlib.suppress(UserError, OSError):
                if job.run.stored_state() == "queued":
                    job.run.set_state("failed", error=str(trouble))
        except BaseException as trouble:  # a bug must not leave the run `running` for ever
            with contextlib.suppress(Exception):
                job.run.set_state("failed", error=f"{type(trouble).__name__}: {trouble}".splitlines()[0])
        finally:
            with self.changed:
                self.running.pop(job.run.id, None)
                self.changed.notify_all()
