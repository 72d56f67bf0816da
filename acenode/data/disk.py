"""Files in the data folder: written completely or not at all, locked, and with disk errors in plain words."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from acenode import files
from acenode.errors import UserError

_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}


def is_file(path: Path) -> bool:
    """Return True if there is a file at `path`; False also in a folder that may not be searched."""
    return os.path.isfile(path)  # Path.is_file raises an error there


@contextmanager
def replacing(target: Path) -> Iterator[BinaryIO]:
    """Do what `files.replacing` does, and raise disk errors as UserError."""
    try:
        with files.replacing(target) as handle:
            yield handle
    except BrokenPipeError:  # the progress bar's output was closed: not an error of the disk
        raise
    except OSError as error:
        raise disk_error(error, target) from error


def remove_partial_files(target: Path) -> None:
    """Remove what a killed process left beside `target`. Call it only with the lock held: files that another process
    is writing have the same names."""
    for part in target.parent.glob(f".{target.name}.*.part"):
        files.discard(part)


@contextmanager
def locked(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock file `path`; call `waiting` once if another thread or process holds it.

    The operating system releases the lock when its process ends, also when it is killed. The empty file stays: if it
    were removed, two processes could lock two files of that name.
    """
    # A FileLock is reentrant, so every call makes its own: two of them exclude each other within a process too.
    lock = FileLock(path, thread_local=False, fallback_to_soft=False, preserve_lock_file=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            if waiting is not None:
                waiting()
            lock.acquire()
    except OSError as error:  # includes file systems without locks
        raise disk_error(error, path) from error
    try:
        yield
    finally:
        lock.release()


def disk_error(error: OSError, target: Path) -> UserError:
    """Return a UserError that says what is wrong with the disk and what to do about it."""
    elsewhere = "set ACENODE_DATA to another folder"
    if error.errno in files.NO_ROOM:
        return UserError(f"no space left on the disk for {target}: free some, or {elsewhere}")
    if error.errno in _DENIED:
        return UserError(f"{target.parent} is not writable: change its permissions, or {elsewhere}")
    return UserError(f"cannot write {target} ({error.strerror or error}): fix that, or {elsewhere}")
