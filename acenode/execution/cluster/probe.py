"""Find out whether a worker sees a run directory itself: a file with a random name, written here, looked for there.

The file is also locked here. A worker that sees it but could lock it too is on a file system whose locks end at the
machine, where two machines might train one run. Such a folder counts as not shared, and files are sent instead.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from acenode.files import discard

PREFIX = ".shared-"


@contextmanager
def shared_probe(folder: Path) -> Iterator[Path]:
    """Write and lock a file in the folder, and yield its path; delete it at the end.

    Raises:
        OSError: the folder cannot be written, or has no locks.
    """
    for left in folder.glob(f"{PREFIX}*"):  # by a process that was killed
        discard(left)
    path = folder / f"{PREFIX}{secrets.token_hex(8)}"
    lock = _lock(path)
    lock.acquire(blocking=False)
    try:
        yield path
    finally:
        discard(path)
        lock.release()


def sees(path: Path) -> bool:
    """Return True if this machine sees the file of a probe and its lock."""
    if not path.is_file():
        return False
    lock = _lock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return True
    except OSError:
        return False
    lock.release()
    return False


def _lock(path: Path) -> FileLock:
    return FileLock(path, thread_local=False, fallback_to_soft=False, preserve_lock_file=True)
