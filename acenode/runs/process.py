"""Who uses a run now: its lock, its process and heartbeat; and reads that give up where a disk does not answer.

A run on another machine is alive while a reader sees its heartbeat change. The clocks of two machines may differ and
may be set back, so a reader measures with its own monotonic clock how long ago it last saw a change. The age by the
clock counts only for a heartbeat that it sees for the first time.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from filelock import BaseFileLock, FileLock, Timeout

from acenode.errors import UserError


def try_lock(path: Path) -> BaseFileLock | None:
    """Lock a file and return the lock, which its holder must release; return None if another thread or process holds
    it. The operating system releases the lock when its process ends, also when it is killed; the empty file stays."""
    # A FileLock is reentrant, so every call makes its own: two of them exclude each other within a process too.
    lock = FileLock(path, thread_local=False, fallback_to_soft=False, preserve_lock_file=True)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return None
    except OSError as error:  # includes file systems without locks
        raise UserError(f"cannot lock {path} ({error.strerror or error}): fix that, or keep runs in another folder "
                        "with --runs DIR") from error
    return lock


# Processes ----------------------------------------------------------------------------------------------------------


def _boot() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _started(pid: int) -> str | None:
    with suppress(OSError):
        stat, boot = Path(f"/proc/{pid}/stat").read_text(), _boot()
        return f"{boot}/{stat.rsplit(')', 1)[1].split()[19]}" if boot else None
    return None


@cache
def _pid_namespace() -> str | None:
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return None


def identity() -> dict[str, Any]:
    """Describe this process, so that another process with the same number is not mistaken for it."""
    return {"pid": os.getpid(), "started": _started(os.getpid()), "host": socket.gethostname(),
            "pid_namespace": _pid_namespace()}


def is_here(who: dict[str, Any]) -> bool:
    """Return True if the process ran on this machine, where its number can be looked up."""
    return who.get("host") == socket.gethostname() and who.get("pid_namespace", _pid_namespace()) == _pid_namespace()


def alive(who: dict[str, Any], heartbeat: float, folder: Path | str, *, queued: bool = False) -> bool:
    """Return True if the process of a run in a folder still exists: on this machine by its number, elsewhere by its
    heartbeat. With `queued`, the run waits in the queue of the process, which renews the time of the folder only."""
    pid, started = who.get("pid"), who.get("started")
    if queued:
        with suppress(OSError):
            heartbeat = max(heartbeat, os.stat(folder).st_mtime)
    if not is_here(who) or not isinstance(pid, int) or not 0 < pid < 2**31:
        return _WATCH.alive(folder, heartbeat)
    if isinstance(started, str):
        if started == _started(pid):
            return True
        # Another boot: this machine was started again since, or another machine has the same name.
        return started.split("/")[0] != _boot() and _WATCH.alive(folder, heartbeat, trust_clock=False)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return _WATCH.alive(folder, heartbeat)


RENEW_SECONDS = 10.0  # longest time between two heartbeats of a writer
SILENT_SECONDS = 60.0  # without a change, after which a run counts as dead
UNSEEN_SECONDS = 120.0  # age by the clock above which a heartbeat counts as dead until it is seen to change
REMEMBERED = 10_000  # runs


class _Seen(NamedTuple):
    beat: float
    at: float  # when this reader saw it first (monotonic)
    alive: bool


class HeartbeatWatch:
    """Remembers the heartbeats that this process has seen, by the run's folder. Threads may share one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, _Seen] = {}

    def alive(self, folder: Path | str, beat: float, *, trust_clock: bool = True) -> bool:
        """Return True if the heartbeat, in seconds of the writer's clock, has changed within the last minute. With
        `trust_clock`, also if it is seen for the first time and recent by the clock."""
        with self._lock:
            known, now = self._seen.get(key := os.fspath(folder)), self._clock()
            if known is not None and known.beat == beat:
                return known.alive and now - known.at < SILENT_SECONDS
            alive = known is not None or (trust_clock and time.time() - beat < UNSEEN_SECONDS)
            self._seen[key] = _Seen(beat, now, alive)
            while len(self._seen) > REMEMBERED:
                del self._seen[next(iter(self._seen))]
            return alive


_WATCH = HeartbeatWatch()


def touch(folder: Path) -> None:
    """Renew the heartbeat of a queued run, which nothing writes to: the time of its folder."""
    with suppress(OSError):  # deleted, or on a file system that cannot be written now
        os.utime(folder)


# Reads that do not return: a network mount that has stalled blocks the thread that reads from it --------------------
#
# Such a thread cannot be interrupted. Other threads therefore do the reading, and one that is blocked is abandoned.
# While it is blocked in a place, nobody else reads there.

LIMIT = 10.0  # seconds that a read may take
REASON = "its disk or network mount does not answer: wait until it does, or disconnect it"

T = TypeVar("T")

_blocked: set[str] = set()  # places in which a thread is blocked
_here = threading.local()  # .reader is True in threads that may be abandoned


class _Scan:
    """Reads of many places in order, by one thread."""

    def __init__(self, at: int) -> None:
        self.at = at  # the place that is being read
        self.abandoned = ""  # the place in which it was blocked
        self.error: BaseException | None = None
        self.ended = threading.Event()

    def run(self, places: Sequence[str], read: Callable[[str], T], found: list[T | None]) -> None:
        _here.reader = True
        try:
            for i in range(self.at, len(places)):
                if self.abandoned:
                    break
                self.at = i
                if places[i] not in _blocked:
                    found[i] = read(places[i])
        except BaseException as error:
            self.error = error
        self.ended.set()
        _blocked.discard(self.abandoned)

    def abandon(self, place: str) -> None:
        self.abandoned = place
        _blocked.add(place)
        if self.ended.is_set():  # it may have ended before the place was added
            _blocked.discard(place)


def each_within_limit(places: Sequence[str], read: Callable[[str], T]) -> list[T | None]:
    """Return what `read` returns for each place; None for those that do not answer within the limit."""
    if getattr(_here, "reader", False):
        return [read(place) for place in places]
    found: list[T | None] = [None] * len(places)
    start, limit = 0, LIMIT
    while start < len(places):
        scan, before = _Scan(start), start
        threading.Thread(target=scan.run, args=(places, read, found), name="acenode-reader", daemon=True).start()
        while not scan.ended.wait(limit) and scan.at != before:
            before = scan.at
        if scan.ended.is_set():
            if scan.error is not None:
                raise scan.error
            break
        scan.abandon(places[before])
        start, limit = before + 1, LIMIT / 10  # others in the same mount would each take as long
    return found


def within_limit(place: Path | str, read: Callable[[], T]) -> T:
    """Return what `read` returns; a TimeoutError if it has not returned within the limit, or an earlier read of this
    place still has not."""
    (found,) = each_within_limit([str(place)], lambda _: [read()])
    if found is None:
        raise OSError(errno.ETIMEDOUT, REASON, str(place))
    return found[0]


def refuse_stalled(place: Path | str) -> None:
    """Raise a UserError if a read of this place has not returned, for longer than the limit."""
    if str(place) in _blocked:
        raise UserError(f"{place} cannot be read: {REASON}")
