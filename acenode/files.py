"""Write files atomically: a new file is written beside the old one and renamed over it."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO


@contextmanager
def replacing(target: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `target` when the block succeeds and is deleted when it fails."""
    part = target.with_name(f".{target.name}.{secrets.token_hex(6)}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with create(part) as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(part, target)
    finally:
        discard(part)


def create(path: Path) -> BinaryIO:
    """Open a new file for writing."""
    return open(path, "xb")


def discard(path: Path) -> None:
    """Delete a file if it exists and can be deleted."""
    with suppress(OSError):
        path.unlink()


def write_atomic(path: Path, content: bytes) -> None:
    """Write `content` to `path`. Readers see the old file or the new one; after a failure the old one remains."""
    with replacing(path) as file:
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


def write_json(path: Path, value: Any, indent: int | None = None) -> None:
    """Write a value as JSON, atomically. NaN and infinity raise a ValueError."""
    write_atomic(path, json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False).encode())


def read_json(path: Path) -> Any:
    """Read a JSON file; raise a ValueError if it is not JSON in UTF-8."""
    return json.loads(path.read_bytes().decode("utf-8"))


def user_cache() -> Path:
    """Return the folder in which this system keeps a user's caches. RuntimeError: the account has no home folder."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
