"""Give up reads that do not return: a network mount that has stalled blocks the thread that reads from it.

Such a thread cannot be interrupted. Other threads therefore do the reading, and one that is blocked is abandoned. While
it is blocked in a place, nobody else reads there.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from acenode.errors import UserError

LIMIT = 10.0  # seconds that a read may take
REASON = "its disk or network mount does not answer: wait until it does, or disconnect it"

T = TypeVar("T")

_blocked: set[str] = set()  # places in which a thread is blocked
_here = threading.local()  # .reader is True in threads that may be abandoned


class _Reader:
    """A thread that reads for others. It does not keep the process from ending."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._work, name="acenode-reader", daemon=True).start()

    def _work(self) -> None:
        _here.reader = True
        while True:
            self.jobs.get()()
            _idle.append(self)


_idle: list[_Reader] = []


def _start(job: Callable[[], None]) -> None:
    try:
        reader = _idle.pop()
    except IndexError:
        reader = _Reader()
    reader.jobs.put(job)


def is_stalled(place: Path | str) -> bool:
    """Return True if a read of this place has not returned yet, for longer than the limit."""
    return str(place) in _blocked


def refuse_stalled(place: Path | str) -> None:
    """Raise a UserError if a read of this place has not returned."""
    if is_stalled(place):
        raise UserError(f"{place} cannot be read: {REASON}")


def within_limit(place: Path | str, read: Callable[[], T]) -> T:
    """Return what `read` returns.

    Raises:
        OSError: it has not returned within the limit, or an earlier read of this place still has not.
    """
    if getattr(_here, "reader", False):
        return read()
    key = str(place)
    if key in _blocked:
        raise OSError(errno.ETIMEDOUT, REASON, key)
    result: Future[T] = Future()

    def job() -> None:
        try:
            result.set_result(read())
        except BaseException as error:
            result.set_exception(error)
        _blocked.discard(key)

    _start(job)
    try:
        return result.result(LIMIT)
    except TimeoutError:
        if result.done():  # just now, or the read itself raised this
            return result.result()
        _blocked.add(key)
        if result.done():  # the job may have ended before the place was added
            _blocked.discard(key)
        raise OSError(errno.ETIMEDOUT, REASON, key) from None


class _Scan:
    """Reads of many places in order, by one thread."""

    def __init__(self, at: int) -> None:
        self.at = at  # the place that is being read
        self.abandoned = ""  # the place in which it was blocked
        self.error: BaseException | None = None
        self.ended = threading.Event()

    def run(self, places: Sequence[str], read: Callable[[str], T], found: list[T | None]) -> None:
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
        _start(partial(scan.run, places, read, found))
        while not scan.ended.wait(limit) and scan.at != before:
            before = scan.at
        if scan.ended.is_set():
            if scan.error is not None:
                raise scan.error
            break
        scan.abandon(places[before])
        start, limit = before + 1, LIMIT / 10  # others in the same mount would each take as long
    return found
