"""Locks of files: one thread of one process trains a run, or conducts a search, at a time."""

from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from acenode.errors import UserError
from acenode.runs.store import Run


def try_lock(run: Run) -> BaseFileLock | None:
    """Lock the run and return the lock, which its holder must release; return None if another thread or process holds
    it."""
    return try_lock_file(run.path / "lock")


def try_lock_file(path: Path) -> BaseFileLock | None:
    """Lock a file and return the lock, or None if another thread or process holds it. The operating system releases the
    lock when its process ends, also when it is killed; the empty file stays."""
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


def is_locked(run: Run) -> bool:
    """Return True if a thread or process trains the run. A missing lock file is not created: the disk may be full."""
    if not (run.path / "lock").exists():
        return False
    lock = try_lock(run)
    if lock is not None:
        lock.release()
    return lock is None
