"""Files of runs on a Ray cluster, between the machine of the driver and workers on any machine.

A worker that sees the run directory itself (`sees`) trains there. For others, the folder keeper, an actor on the
machine of the driver, sends the run's files and writes what changes: whole files and appended lines, in order. What a
file refers to is sent before it: metrics before the checkpoint that counts them, the result before the status that
announces it. So the files are applied in the order of `_ORDER`, and read in the opposite order: whatever a file refers
to was written before it and is therefore read as well.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from filelock import BaseFileLock

from acenode.errors import UserError
from acenode.files import discard, open_regular, write_atomic
from acenode.runs.process import try_lock
from acenode.runs.store import Run

APPENDED = ("metrics.jsonl", "log.txt")
_ORDER = ("metrics.jsonl", "log.txt", "config.json", "snapshots", "checkpoints/best.safetensors",
          "checkpoints/last.pt", "result.json", "status.json")
_NAME = re.compile(r"metrics\.jsonl|log\.txt|(config|result|status)\.json|checkpoints/(best\.safetensors|last\.pt)"
                   r"|snapshots/[\w-][\w.-]*\.npz")


@dataclass(frozen=True)
class FileChange:
    """New content of one file of a run."""

    name: str
    content: bytes
    offset: int | None = None  # of an appended file: the content follows so many bytes; None replaces the whole file


class ChangedFiles:
    """Finds what has changed in a run directory since the last changes were received.

    Args:
        folder: the run directory.
        sent: True if the receiver has all its present files.
    """

    def __init__(self, folder: Path, *, sent: bool) -> None:
        self.folder = folder
        self._sent: dict[str, tuple[int, ...]] = {}  # stamps of whole files; inode and size of appended ones
        self._found = self._sent
        if sent:
            self.collect()
            self.received()

    def collect(self) -> list[FileChange]:
        """Return the changes in the order in which they must be applied, without files of the machine or the user."""
        self._found = dict(self._sent)
        snapshots = [f"snapshots/{path.name}" for path in sorted((self.folder / "snapshots").glob("[!.]*.npz"))]
        names = [found for name in _ORDER for found in (snapshots if name == "snapshots" else [name])]
        changes = []
        for name in reversed(names):
            with suppress(OSError), open_regular(self.folder / name) as file:
                changes += self._changed(name, file)
        return changes[::-1]

    def _changed(self, name: str, file: BinaryIO) -> list[FileChange]:
        state, known, offset = os.fstat(file.fileno()), self._sent.get(name), None
        now: tuple[int, ...] = (state.st_mtime_ns, state.st_size, state.st_ino)
        if name in APPENDED:
            inode, offset = known or (state.st_ino, 0)
            if inode != state.st_ino or offset > state.st_size:  # cut, and perhaps longer again since
                offset = 0
            file.seek(offset)
        elif now == known:
            return []
        content = file.read()
        if offset is not None:
            now = state.st_ino, offset + len(content)
        self._found[name] = now
        return [FileChange(name, content, offset)] if now != known else []

    def received(self) -> None:
        """Take note that the changes of the last `collect` were applied."""
        self._sent = self._found

    def forget(self) -> None:
        """Send all files again."""
        self._sent = {}


def apply_changes(folder: Path, changes: Iterable[FileChange]) -> bool:
    """Write changes to a run directory.

    Returns:
        False if something is missing here that an appended part follows: all files must be sent again.

    Raises:
        OSError: the disk is full, or the folder was deleted.
        ValueError: a name is not that of a run's file.
    """
    for change in changes:
        if not _NAME.fullmatch(change.name):
            raise ValueError(f"{change.name!r} is not a file of a run")
        path = folder / change.name
        if path.parent != folder and folder.is_dir():
            path.parent.mkdir(exist_ok=True)
        if not change.offset:
            write_atomic(path, change.content, make_folder=False)
        elif not path.exists() or path.stat().st_size < change.offset:
            return False
        else:
            with open(path, "r+b") as file:
                file.seek(change.offset)
                file.write(change.content)
                file.truncate()
    return True


# The folder keeper --------------------------------------------------------------------------------------------------

LOCK_SECONDS = 180.0  # until a file server releases the lock of a machine that has vanished
LOOK_SECONDS = 0.5  # between looks at the lock

Reply = Literal["go on", "stop", "send all", "replaced"]


def wait_for_lock(run: Run, stop: threading.Event) -> None:
    """Wait until whoever trained the run before has died, if it was left in state `running`; not for ever."""
    end = time.monotonic() + LOCK_SECONDS
    while run.stored_state() == "running" and run.locked and time.monotonic() < end and not stop.wait(LOOK_SECONDS):
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
        return ChangedFiles(Path(run), sent=False).collect()

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
        with self._changing:
            if known is not None and known.lock is None:
                known.lock = try_lock(Path(run) / "lock")
                if known.lock is None:
                    raise UserError(f"{Path(run).name} is being trained already: stop it first with "
                                    f"`acenode stop {Path(run).name}`")
        return known is not None


# Which machines share a folder; temporary folders -------------------------------------------------------------------

PREFIX = ".shared-"


@contextmanager
def shared_probe(folder: Path) -> Iterator[Path]:
    """Write and lock a file with a random name in the folder, and yield its path; delete it at the end.

    Raises:
        UserError: the folder cannot be written, or has no locks.
    """
    for left in folder.glob(f"{PREFIX}*"):  # by a process that was killed
        discard(left)
    path = folder / f"{PREFIX}{secrets.token_hex(8)}"
    lock = try_lock(path)
    try:
        yield path
    finally:
        discard(path)
        if lock is not None:
            lock.release()


def sees(path: Path) -> bool:
    """Return True if this machine sees the file of a probe and its lock.

    A worker that sees the file but could lock it too is on a file system whose locks end at the machine, where two
    machines might train one run. Such a folder counts as not shared, and files are sent instead.
    """
    if not path.is_file():
        return False
    try:
        lock = try_lock(path)
    except UserError:
        return False
    if lock is not None:
        lock.release()
    return lock is None


@contextmanager
def own_folder(name: str, place: Path | None = None) -> Iterator[Path]:
    """Make a temporary folder for the block; delete those of the same name that killed processes have left.

    Args:
        name: the beginning of the folder's name.
        place: where to make it; by default, on Unix, /tmp: the paths of Ray's sockets must be short.
    """
    place = place or Path("/tmp" if os.name == "posix" else tempfile.gettempdir())
    for left in place.glob(f"{name}-[0-9]*-*"):
        found = re.match(r"[0-9]+", left.name.removeprefix(f"{name}-"))
        try:
            os.kill(int(found[0]) if found else os.getpid(), 0)
        except ProcessLookupError:
            shutil.rmtree(left, ignore_errors=True)
        except (OSError, OverflowError):  # another user's
            pass
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-{os.getpid()}-", dir=place))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
