"""One at a time: a lock that threads and processes share and that a killed process cannot leave behind."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from acenode.data.store import disk_error

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


def try_lock(path: Path) -> BinaryIO | None:
    """The lock file, held until it is closed, or None where another thread or process has it."""
    handle = _open(path)
    try:
        if _try_lock(handle):
            return handle
    except OSError as error:  # a file system without locks
        handle.close()
        raise disk_error(error, path) from error
    handle.close()
    return None


@contextmanager
def locked(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock file `path`; `waiting` is called once if another thread or process has it.

    The system drops the lock with the process, however that ends. The empty file stays: were it
    removed, a third party could lock a new file of that name while the second still holds the old.
    """
    with _open(path) as handle:  # closing the file lets go of the lock
        try:
            free = _try_lock(handle)
        except OSError as error:  # a file system without locks
            raise disk_error(error, path) from error
        if not free:
            if waiting is not None:
                waiting()
            _wait_lock(handle)
        yield


def _open(path: Path) -> BinaryIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "ab")
    except OSError as error:
        raise disk_error(error, path) from error


if sys.platform == "win32":

    def _try_lock(handle: BinaryIO) -> bool:
        try:
            msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _wait_lock(handle: BinaryIO) -> None:
        while True:
            try:
                return msvcrt.locking(handle.fileno(), msvcrt.LK_LOCK, 1)
            except OSError:  # it gives up after ten seconds
                continue

else:

    def _try_lock(handle: BinaryIO) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _wait_lock(handle: BinaryIO) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX)
