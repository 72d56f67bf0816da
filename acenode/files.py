"""Files that are whole or not there: written beside and renamed."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO


@contextmanager
def replacing(target: Path) -> Iterator[BinaryIO]:
    """Open a new file beside `target`; it takes the target's place if the body succeeds, else it goes."""
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
    return open(path, "xb")


def discard(path: Path) -> None:
    with suppress(OSError):  # gone already, or its folder never was
        path.unlink()


def write_atomic(path: Path, content: bytes) -> None:
    """Put `content` at `path`; whoever reads sees the old file or the new one, and a failure leaves nothing."""
    with replacing(path) as file:
        file.write(content)


Stamp = tuple[int, int, int]


def stamp(path: Path | str) -> Stamp | None:
    """What tells a file from its earlier self, None where there is none; with the inode, as a clock's tick may hold two
    writes of one length."""
    try:
        found = os.stat(path)
    except OSError:  # not there, or in a folder that may not be searched
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def write_json(path: Path, value: Any, indent: int | None = None) -> None:
    write_atomic(path, json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False).encode())


def read_json(path: Path) -> Any:
    """The value in the file; ValueError where it is not JSON in UTF-8."""
    return json.loads(path.read_bytes().decode("utf-8"))
