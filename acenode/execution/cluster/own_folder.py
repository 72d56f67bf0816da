"""Temporary folders with the number of their process, so that those of killed processes are deleted later."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def own_folder(name: str, place: Path | None = None) -> Iterator[Path]:
    """Make a temporary folder for the block; delete those of the same name that killed processes have left.

    Args:
        name: the beginning of the folder's name.
        place: where to make it; by default, on Unix, /tmp: the paths of Ray's sockets must be short.
    """
    place = place or Path("/tmp" if os.name == "posix" else tempfile.gettempdir())
    for left in place.glob(f"{name}-[0-9]*-*"):
        found = re.match(r"[0-9]+", left.name.removeprefix(f"{name}-"))
        if found and not _exists(int(found[0])):
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-{os.getpid()}-", dir=place))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's
        return True
    return True
