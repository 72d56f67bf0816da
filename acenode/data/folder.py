"""The data folder: where it is, and how its files are written, locked and read.

A file is written completely or not at all, and errors of the disk are told in plain words. Arrays are kept as npz files
without pickles.
"""

import errno
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

import numpy as np
from filelock import FileLock, Timeout

from acenode import files
from acenode.errors import UserError

MAX_BYTES = 8_000_000_000  # of all arrays that are read from a file
MAX_RATIO = 1100  # of sizes before and after compression; deflate reaches 1032
is_file = os.path.isfile  # False also in a folder that may not be searched, where Path.is_file raises an error


def data_dir(explicit: Path | str | None = None) -> Path:
    """Return the data folder: `explicit`, else ACENODE_DATA, else `acenode` in the user's cache folder."""
    if explicit is not None:
        return Path(explicit).expanduser()
    if named := os.environ.get("ACENODE_DATA"):
        return Path(named).expanduser()
    try:
        return files.user_cache() / "acenode"
    except RuntimeError as error:  # an account without a home folder
        raise UserError("there is no home folder to keep data in: set ACENODE_DATA to a folder") from error


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
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return UserError(f"{target.parent} is not writable: change its permissions, or {elsewhere}")
    return UserError(f"cannot write {target} ({error.strerror or error}): fix that, or {elsewhere}")


def write_npz(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write the arrays as one npz file. Equal arrays give equal bytes."""
    with replacing(path) as handle, zipfile.ZipFile(handle, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:  # not np.savez: that pickles objects
                np.lib.format.write_array(entry, array, allow_pickle=False)


def read_npz(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Read the named arrays of an npz file. A ValueError says in a few words what is wrong with the file."""
    try:
        with files.open_regular(path) as file, zipfile.ZipFile(file) as archive:
            claimed = sum(_claimed_bytes(archive, name) for name in names)
            if claimed > MAX_BYTES:
                raise ValueError(f"it claims {claimed / 1e9:.1f} GB, and at most {MAX_BYTES / 1e9:.0f} GB are read")
            found = {}
            for name in names:
                with _array(archive, name) as entry:
                    found[name] = np.lib.format.read_array(entry, allow_pickle=False)
            return found
    except KeyError as error:
        raise ValueError("an array is missing from it") from error
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise ValueError("it is incomplete, or not an npz file") from error


@contextmanager
def _array(archive: zipfile.ZipFile, name: str) -> Iterator[IO[bytes]]:
    """Open an array; what numpy says about a damaged one becomes a few words."""
    with archive.open(f"{name}.npy") as entry:
        try:
            yield entry
        except ValueError as error:
            raise ValueError(f"{name} is not a plain array") from error
        except MemoryError as error:
            raise ValueError(f"{name} needs more than there is memory") from error


def _claimed_bytes(archive: zipfile.ZipFile, name: str) -> int:
    """Return how much memory an array's header asks for, before any is allocated, if the file has that much."""
    with _array(archive, name) as entry:
        version = np.lib.format.read_magic(entry)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(entry)
    claimed, stored = math.prod(shape) * dtype.itemsize, archive.getinfo(f"{name}.npy")
    if claimed > stored.file_size or stored.file_size > MAX_RATIO * stored.compress_size + 1_000_000:
        raise ValueError(f"{name} claims {claimed / 1e9:.1f} GB, which the file does not have")
    return claimed
