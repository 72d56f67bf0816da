"""Disk space that is reserved for the last status of a run, which must be written even if the disk is full."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from acenode.files import discard

SIZE = 16_384  # bytes; a status has about 1,000


class Reserve:
    """A file beside `target` that holds disk space until `target` is replaced for the last time."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(f".{target.name}.reserve.part")  # is removed like other unfinished files

    def make(self) -> None:
        """Reserve the space, as far as there is any."""
        with suppress(OSError), open(self.path, "wb") as file:
            file.write(bytes(SIZE))
            file.flush()
            os.fsync(file.fileno())

    def use(self, content: bytes) -> None:
        """Replace `target` without more disk space. Raise an OSError if nothing was reserved."""
        with open(self.path, "r+b") as file:
            file.write(content)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.path, self.target)

    def discard(self) -> None:
        """Free the space."""
        discard(self.path)
