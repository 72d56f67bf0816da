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

import torch

from acenode.config import Config
from acenode.environment import device_of
from acenode.errors import UserError
from acenode.execute import create, execute
from acenode.runs import Run, RunStore

IDLE = 0.2  # seconds between looks at an empty queue


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
        self.limits = dict.fromkeys(devices(), 1)
        self.closed = False
        self.dispatcher = threading.Thread(target=self._dispatch, name="acenode-launcher", daemon=True)
        self.dispatcher.start()

    # What can be asked ------------------------------------------------------------------------------------------

    def start(self, config: Config) -> Run:
        """Queue a new run."""
        run = create(self.store, config)
        self._enqueue(run)
        return run

    def resume(self, run: Run) -> None:
        """Queue a run that stopped, failed or was interrupted; it goes on from its last checkpoint."""
        with self.changed:
            if self._find(run.id) is not None:
                raise UserError(f"{run.id} is already waiting or running")
        state = run.status()["state"]
        if state in ("finished", "running"):
            raise UserError(f"{run.id} is {state}: there is nothing to resume")
        run.withdraw_stop()
        run.mark("queued", error=None)
        self._enqueue(run)

    def retry(self, run: Run) -> Run:
        """The same configuration once more, from the beginning, as a new run."""
        return self.start(run.config())

    def stop(self, run: Run) -> None:
        """Take a run out of the queue, or ask it to stop after this iteration; asking twice does no harm."""
        with self.changed:
            job = self._find(run.id)
            if job is not None and job in self.waiting:
                self.waiting.remove(job)
                run.mark("stopped")
                return
        if job is not None:
            job.stop.set()
        elif run.status()["state"] == "running":  # another process trains it
            run.ask_to_stop()

    def delete(self, run: Run) -> None:
        """Remove a run that nobody trains."""
        with self.changed:
            if run.id in self.running:
                raise UserError(f"{run.id} is running: stop it first")
            self.waiting = [job for job in self.waiting if job.run.id != run.id]
        state = "unreadable"
        with contextlib.suppress(UserError):  # a torn run may be deleted all the same
            state = run.status()["state"]
        if state == "running":
            raise UserError(f"{run.id} is trained by another process: stop it first")
        with contextlib.suppress(FileNotFoundError):  # somebody else was faster
            run.delete()

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

    def active(self) -> list[str]:
        """Ids of the runs being trained by this process."""
        with self.changed:
            return list(self.running)

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
            self.changed.notify_all()
        for job in waiting:
            job.run.mark("stopped")
        for job in jobs:
            job.stop.set()
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
                    run.mark("interrupted", error=status["error"])
                    left.append(run)
        return left

    # How it is done ---------------------------------------------------------------------------------------------

    def _enqueue(self, run: Run) -> None:
        job = _Job(run, device_of(run.config().device).type)
        with self.changed:
            if self.closed:
                raise UserError("the launcher is closing: start the app again")
            self.waiting.append(job)
            self.changed.notify_all()

    def _find(self, run_id: str) -> _Job | None:
        return self.running.get(run_id) or next((j for j in self.waiting if j.run.id == run_id), None)

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
        except UserError:
            pass  # in the run's status already
        except BaseException as trouble:  # a bug must not leave the run `running` for ever
            with contextlib.suppress(Exception):
                job.run.mark("failed", error=f"{type(trouble).__name__}: {trouble}".splitlines()[0])
        finally:
            with self.changed:
                self.running.pop(job.run.id, None)
                self.changed.notify_all()


def devices() -> list[str]:
    """Kinds of device that runs can be queued for."""
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
