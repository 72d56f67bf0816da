"""The folder keeper: reads and writes run directories on the machine of the driver, for workers on any machine.

It is a Ray actor in a process of its own, which Ray restarts if it dies. It therefore keeps nothing that it cannot find
out again from the run directories.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import BaseFileLock

from acenode.errors import UserError
from acenode.execution.cluster.changed_files import FileChange, all_files, apply_changes
from acenode.runs.lock import is_locked, try_lock
from acenode.runs.store import Run

LOCK_SECONDS = 180.0  # until a file server releases the lock of a machine that has vanished
LOOK_SECONDS = 0.5  # between looks at the lock

Reply = Literal["go on", "stop", "send all", "replaced"]


def wait_for_lock(run: Run, stop: threading.Event) -> None:
    """Wait until whoever trained the run before has died, if it was left in state `running`; not for ever."""
    end = time.monotonic() + LOCK_SECONDS
    while run.stored_state() == "running" and is_locked(run) and time.monotonic() < end and not stop.wait(LOOK_SECONDS):
        pass


@dataclass
class _Attempt:
    """A worker that trains a run, as Ray submitted it or submitted it again."""

    worker: str
    number: int = 1
    lock: BaseFileLock | None = None  # of the run here, if the worker has a copy elsewhere


class FolderKeeper:
    """Answers workers: whether a run should stop, which files it has, and writes the files that they send.

    The methods take the path of the run and a name that each worker draws anew: if Ray has given a run to another
    worker, because the first one seemed dead, what the first one still sends is refused.
    """

    def __init__(self) -> None:
        self._attempts: dict[str, _Attempt] = {}
        self._changing = threading.Lock()

    def begin(self, run: str, worker: str) -> int:
        """Register the worker that trains a run from now on; return how many have tried, this one included."""
        with self._changing:
            known = self._attempts.get(run)
            if known is None:
                self._attempts[run] = _Attempt(worker)
                return 1
            if known.worker != worker:  # the same worker asks again if an answer was lost
                known.worker, known.number = worker, known.number + 1
            return known.number

    def files(self, run: str, worker: str) -> list[FileChange]:
        """Lock the run and return its files.

        Raises:
            UserError: another process trains the run.
        """
        with self._changing:
            ours = run in self._attempts and self._attempts[run].lock is not None
        if not ours:
            wait_for_lock(Run(Path(run)), threading.Event())
        self._lock(run, worker)
        return all_files(Path(run))

    def write(self, run: str, worker: str, changes: list[FileChange]) -> Reply:
        """Write the files that a worker has changed, in order, and return what it should do next."""
        if not self._lock(run, worker):
            return "replaced"
        if changes:
            if not (Path(run) / "config.json").exists():  # the user has deleted the run
                return "stop"
            if not apply_changes(Path(run), changes):
                return "send all"
        return self.check(run, worker)

    def check(self, run: str, worker: str) -> Reply:
        """Return what the worker of a run should do."""
        if self._attempt(run, worker) is None:
            return "replaced"
        folder = Path(run)
        return "stop" if (folder / "stop").exists() or not (folder / "config.json").exists() else "go on"

    def end(self, run: str) -> None:
        """Unlock the run: nobody trains it any more."""
        with self._changing:
            known = self._attempts.pop(run, None)
        if known is not None and known.lock is not None:
            known.lock.release()

    def _attempt(self, run: str, worker: str) -> _Attempt | None:
        """Return the attempt of this worker; None if another worker has the run."""
        with self._changing:
            known = self._attempts.setdefault(run, _Attempt(worker))  # unknown after a restart of this actor
            return known if known.worker == worker else None

    def _lock(self, run: str, worker: str) -> bool:
        """Lock the run for its attempts on other machines; return False if another worker has it."""
        known = self._attempt(run, worker)
        if known is None:
            return False
        with self._changing:
            if known.lock is None:
                known.lock = try_lock(Run(Path(run)))
                if known.lock is None:
                    raise UserError(f"{Path(run).name} is being trained already: stop it first with "
                                    f"`acenode stop {Path(run).name}`")
        return True
