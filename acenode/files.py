"""Write files atomically, and read files that others may have written: regular ones, of bounded size, strictly parsed.

A new file is written beside the old one and renamed over it.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

MAX_JSON = 100_000_000  # bytes
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})  # errors of a full disk, a quota and a size limit


@contextmanager
def replacing(target: Path, *, make_folder: bool = True) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `target` when the block succeeds and is deleted when it fails.

    Without `make_folder`, a missing folder is a FileNotFoundError.
    """
    part = target.with_name(f".{target.name}.{secrets.token_hex(6)}.part")
    try:
        if make_folder:
            target.parent.mkdir(parents=True, exist_ok=True)
        with create(part) as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(part, target)
    finally:
        discard(part)


def create(path: Path) -> BinaryIO:
    return open(path, "xb")


def discard(path: Path) -> None:
    """Delete a file if it exists and can be deleted."""
    with suppress(OSError):
        path.unlink()


def write_atomic(path: Path, content: bytes, *, make_folder: bool = True) -> None:
    """Write `content` to `path`. Readers see the old file or the new one; after a failure the old one remains."""
    with replacing(path, make_folder=make_folder) as file:
        file.write(content)


Stamp = tuple[int, int, int]  # modification time, size and inode of a file


def stamp(path: Path | str) -> Stamp | None:
    """Return a value that changes whenever the file is replaced, or None if the file cannot be read.

    The inode is part of it, since two files of one size may be written within one tick of the clock.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def json_bytes(value: Any, indent: int | None = None) -> bytes:
    """Return a value as JSON. NaN and infinity raise a ValueError."""
    return json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False).encode()


def write_json(path: Path, value: Any, indent: int | None = None, *, make_folder: bool = True) -> None:
    """Write a value as JSON, atomically. NaN and infinity raise a ValueError."""
    write_atomic(path, json_bytes(value, indent), make_folder=make_folder)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading. Raise an OSError for anything else: to open a pipe would wait for a writer."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_json(path: Path) -> Any:
    """Read a JSON file; raise a ValueError if it is too large, or not JSON as `parse_json` reads it."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_JSON:
            raise ValueError(f"it has more than {MAX_JSON // 1_000_000} MB")
        return parse_json(file.read(size))  # a buffer of MAX_JSON would take longer to reserve than to fill


_ANY = json.JSONDecoder(parse_constant=float)  # json.loads makes a decoder at every call
_ONLY_NUMBERS = json.JSONDecoder(parse_constant=lambda name: None)


def parse_json(data: bytes, *, only_numbers: bool = False) -> Any:
    """Read JSON in UTF-8; raise a ValueError for anything else, for deep nesting, and for halves of surrogate pairs.

    With `only_numbers`, NaN and infinity become None; browsers cannot read them.
    """
    try:
        value = (_ONLY_NUMBERS if only_numbers else _ANY).decode(data.decode("utf-8"))
        if b"\\ud" in data.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeError:
        raise ValueError("it is not valid UTF-8") from None
    return value


def user_cache() -> Path:
    """Return the folder in which this system keeps a user's caches. RuntimeError: the account has no home folder."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
