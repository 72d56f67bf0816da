"""Runs on workers of a Ray cluster, and their files between the machine of the driver and workers on any machine.

Ray executes `train_run` again if its worker or its machine dies; the run then continues from its last checkpoint. A
worker that sees the run directory itself (`sees`) trains there. For others, the folder keeper, an actor on the machine
of the driver, sends the run's files and writes what changes: whole files and appended lines, in order. What a file
refers to is sent before it: metrics before the checkpoint that counts them, the result before the status that announces
it. So the files are applied in the order of `_ORDER`, and read in the opposite order: whatever a file refers to was
written before it and is therefore read as well.
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
from typing import Any, BinaryIO, Literal

from filelock import BaseFileLock

from acenode.errors import UserError
from acenode.files import discard, open_regular, write_atomic
from acenode.runs.process import try_lock
from acenode.runs.store import Run

APPENDED = ("metrics.jsonl", "log.txt")
_ORDER = ("metrics.jsonl", "log.txt", "config.json", "snapshots/", "checkpoints/best.safetensors",
          "checkpoints/last.pt", "result.json", "status.json")
_SNAPSHOT = re.compile(r"snapshots/[\w-][\w.-]*\.npz")


@dataclass(frozen=True)
class FileChange:
    """New content of one file of a run."""

    name: str
    content: bytes
    offset: int | None = None  # of an appended file: the content follows so many bytes; None replaces the whole file


class ChangedFiles:
    """Finds what has changed in a run directory since the last changes were received; `sent` says that the receiver has
    all its present files."""

    def __init__(self, folder: Path, *, sent: bool) -> None:
        self.folder = folder
        self._sent: dict[str, tuple[int, ...]] = {}  # stamps of whole files; inode and size of appended ones
        if sent:
            self.collect()
            self.received()

    def collect(self) -> list[FileChange]:
        """Return the changes in the order in which they must be applied, without files of the machine or the user."""
        self._found = dict(self._sent)
        snapshots = [f"snapshots/{path.name}" for path in sorted((self.folder / "snapshots").glob("[!.]*.npz"))]
        names = [found for name in _ORDER for found in (snapshots if name == "snapshots/" else [name])]
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
    """Write changes to a run directory; return False if something is missing here that an appended part follows: all
    files must be sent again. A name that is not that of a run's file is a ValueError."""
    for change in changes:
        if change.name == "snapshots/" or (change.name not in _ORDER and not _SNAPSHOT.fullmatch(change.name)):
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
    """Answers workers: whether a run should stop, which files it has, and writes the files that they send. Each worker
    draws a name: what one sends after Ray has given its run to another one, because it seemed dead, is refused."""

    def __init__(self) -> None:
        self._attempts: dict[str, _Attempt] = {}
        self._changing = threading.Lock()

    def begin(self, run: str, worker: str) -> int:
        """Register the worker that trains a run from now on; return how many have tried, this one included."""
        with self._changing:
            known = self._attempts.setdefault(run, _Attempt(worker))
            if known.worker != worker:  # the same worker asks again if an answer was lost
                known.worker, known.number = worker, known.number + 1
            return known.number

    def files(self, run: str, worker: str) -> list[FileChange]:
        """Lock the run and return its files; a UserError if another process trains it."""
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
        if changes and (Path(run) / "config.json").exists() and not apply_changes(Path(run), changes):
            return "send all"
        return self.check(run, worker)

    def check(self, run: str, worker: str) -> Reply:
        """Return what the worker of a run should do; one that the user has deleted stops."""
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
    """Write and lock a file with a random name in the folder, yield its path and delete it at the end. A folder that
    cannot be written, or has no locks, is a UserError."""
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
    """Return True if this machine sees the file of a probe and its lock. Where it could lock it too, locks end at the
    machine, and two machines might train one run: files are sent instead."""
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
    """Make a temporary folder for the block, by default on Unix in /tmp: the paths of Ray's sockets must be short.
    Delete those whose names begin alike and that killed processes have left."""
    place = place or Path("/tmp" if os.name == "posix" else tempfile.gettempdir())
    for left in place.glob(f"{name}-[0-9]*-*"):
        found = re.match(r"[0-9]+", left.name.removeprefix(f"{name}-"))
        with suppress(OSError, OverflowError):  # another user's
            try:
                os.kill(int(found[0]) if found else os.getpid(), 0)
            except ProcessLookupError:
                shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory("", f"{name}-{os.getpid()}-", place, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


# A worker: it trains in the run's directory if this machine sees it, else in a copy that is sent as it is written -----

MAX_ATTEMPTS = 10  # workers that may die of one run, for instance because memory runs out
CONTACT_SECONDS = 0.4  # between exchanges with the folder keeper
ANSWER_SECONDS = 60.0  # longest time for an answer
SILENT_SECONDS = 120.0  # without an answer, after which a run whose files are sent stops with a checkpoint


def train_run(keeper: Any, path: str, data_root: str, probe: str | None, process: dict[str, Any], threads: int,
              gpu: float) -> None:
    """Train a run in contact with the folder keeper; every outcome is in its status.json.

    `path` is that on the machine of the driver, `probe` the file that is seen on a shared file system (None: send files
    in any case), `process` the launcher's, and `gpu` the share of a GPU that Ray has assigned. A machine that does not
    see the folder of data uses its own.
    """
    contact = Contact(path, keeper)
    if contact.ask("begin") > MAX_ATTEMPTS:
        raise UserError(f"{MAX_ATTEMPTS} workers died while they trained this run: it may need more memory than a "
                        "machine has; resume it to try again")
    if contact.ask("check") == "stop":
        return
    if not gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if Path(data_root).is_dir():
        os.environ["ACENODE_DATA"] = data_root
    import torch

    from acenode.data.folder import data_dir
    from acenode.execution.execute import attempt

    torch.set_num_threads(threads)
    if probe is not None and sees(Path(probe)):
        with contact.open(None) as stop:
            run = Run(Path(path))
            wait_for_lock(run, stop)
            attempt(run, data_dir(), stop, process=process)
        return
    with own_folder("acenode-run") as place:
        copy = Run(place / Path(path).name)
        copy.path.mkdir()
        apply_changes(copy.path, contact.ask("files"))
        with contact.open(ChangedFiles(copy.path, sent=True)) as stop:
            attempt(copy, data_dir(), stop, process=process)


class Contact:
    """Exchanges files and stop requests with the folder keeper, in a thread while the run is trained; `run` is its path
    on the machine of the driver."""

    def __init__(self, run: str, keeper: Any) -> None:
        self.run, self.keeper, self.worker = run, keeper, secrets.token_hex(8)
        self.changed: ChangedFiles | None = None

    def ask(self, method: str, *more: Any, timeout: float | None = None) -> Any:
        """Call a method of the keeper."""
        import ray

        return ray.get(getattr(self.keeper, method).remote(self.run, self.worker, *more), timeout=timeout)

    @contextmanager
    def open(self, changed: ChangedFiles | None) -> Iterator[threading.Event]:
        """Stay in contact during the block; send what changed, if given. Yield the event that asks the run to stop.
        Raise an error if the last files could not be sent."""
        self.changed = changed
        stop, ended = threading.Event(), threading.Event()
        thread = threading.Thread(target=self._stay, args=(stop, ended), name="acenode-contact", daemon=True)
        thread.start()
        try:
            yield stop
        finally:
            ended.set()
            thread.join()
        self._exchange()

    def _stay(self, stop: threading.Event, ended: threading.Event) -> None:
        answered = time.monotonic()
        while not ended.wait(CONTACT_SECONDS):
            try:
                if self._exchange() == "stop":
                    stop.set()
                answered = time.monotonic()
            except Exception:  # the driver's disk is full, or its machine cannot be reached
                if self.changed is not None and time.monotonic() - answered > SILENT_SECONDS:
                    stop.set()

    def _exchange(self) -> str:
        """Send changes and return the keeper's reply."""
        if self.changed is None:
            reply = self.ask("check", timeout=ANSWER_SECONDS)
        else:
            reply = self.ask("write", self.changed.collect(), timeout=ANSWER_SECONDS)
            self.changed.received()
        if reply == "replaced":  # Ray took this worker for dead and another one trains the run
            os._exit(1)
        if reply == "send all" and self.changed is not None:
            self.changed.forget()
            return self._exchange()
        return reply
