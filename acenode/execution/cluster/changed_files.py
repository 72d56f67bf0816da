"""Copy a run directory to another machine while it is written: whole files and appended lines, in order.

What a file refers to is sent before it: metrics before the checkpoint that counts them, the result before the status
that announces it. So the files are applied in the order of `_ORDER`, and read in the opposite order: whatever a file
refers to was written before it and is therefore read as well.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from acenode.files import Stamp, open_regular, stamp, write_atomic

APPENDED = ("metrics.jsonl", "log.txt")
_ORDER = ("metrics.jsonl", "log.txt", "config.json", "snapshots", "checkpoints/best.safetensors",
          "checkpoints/last.pt", "result.json", "status.json")
_NAME = re.compile(r"metrics\.jsonl|log\.txt|(config|result|status)\.json|checkpoints/(best\.safetensors|last\.pt)"
                   r"|snapshots/[\w-][\w.-]*\.npz")


@dataclass(frozen=True)
class FileChange:
    """New content of one file of a run."""

    name: str
    content: bytes
    offset: int | None = None  # of an appended file: the content follows so many bytes; None replaces the whole file


@dataclass
class _Sent:
    """What the receiver has: stamps of whole files; inode and size of appended ones."""

    whole: dict[str, Stamp] = field(default_factory=dict)
    appended: dict[str, tuple[int, int]] = field(default_factory=dict)


class ChangedFiles:
    """Finds what has changed in a run directory since the last changes were received.

    Args:
        folder: the run directory.
        sent: True if the receiver has all its present files.
    """

    def __init__(self, folder: Path, *, sent: bool) -> None:
        self.folder = folder
        self._sent, self._found = _Sent(), _Sent()
        if sent:
            self.collect()
            self.received()

    def collect(self) -> list[FileChange]:
        """Return the changes, in the order in which they must be applied."""
        self._found = _Sent(dict(self._sent.whole), dict(self._sent.appended))
        changes = [self._appended(name) if name in APPENDED else self._whole(name) for name in reversed(self._names())]
        return [change for change in reversed(changes) if change is not None]

    def received(self) -> None:
        """Take note that the changes of the last `collect` were applied."""
        self._sent = self._found

    def forget(self) -> None:
        """Send all files again."""
        self._sent = _Sent()

    def _names(self) -> list[str]:
        return list(_names(self.folder))

    def _whole(self, name: str) -> FileChange | None:
        now = stamp(self.folder / name)
        if now is None or now == self._sent.whole.get(name):
            return None
        try:
            with open_regular(self.folder / name) as file:
                content = file.read()
        except OSError:  # replaced at this moment: the next call finds it
            return None
        self._found.whole[name] = now
        return FileChange(name, content)

    def _appended(self, name: str) -> FileChange | None:
        try:
            with open_regular(self.folder / name) as file:
                inode = os.fstat(file.fileno()).st_ino
                before, offset = self._sent.appended.get(name, (inode, 0))
                if before != inode or offset > os.fstat(file.fileno()).st_size:  # cut, and perhaps longer again since
                    offset = 0
                file.seek(offset)
                content = file.read()
        except OSError:
            return None
        if not content and name in self._sent.appended and self._sent.appended[name] == (inode, offset):
            return None
        self._found.appended[name] = inode, offset + len(content)
        return FileChange(name, content, offset)


def _names(folder: Path) -> Iterable[str]:
    """Yield the files of a run that are copied, in order."""
    for name in _ORDER:
        if name == "snapshots":
            yield from (f"snapshots/{path.name}" for path in sorted((folder / name).glob("[!.]*.npz")))
        else:
            yield name


def all_files(folder: Path) -> list[FileChange]:
    """Return all files of a run directory as changes, without those that belong to its machine or its user."""
    return ChangedFiles(folder, sent=False).collect()


def apply_changes(folder: Path, changes: Iterable[FileChange]) -> bool:
    """Write changes to a run directory.

    Returns:
        False if something is missing here that an appended part follows: all files must be sent again.

    Raises:
        OSError: the disk is full, or the folder was deleted.
        ValueError: a name is not that of a run's file.
    """
    for change in changes:
        if not _NAME.fullmatch(change.name):
            raise ValueError(f"{change.name!r} is not a file of a run")
        path = folder / change.name
        if path.parent != folder and folder.is_dir():
            path.parent.mkdir(exist_ok=True)
        if change.offset:
            if not _append(path, change.offset, change.content):
                return False
        else:
            write_atomic(path, change.content, make_folder=False)
    return True


def _append(path: Path, offset: int, content: bytes) -> bool:
    """Write at an offset and cut the file behind it; return False if the file is shorter than the offset."""
    try:
        with open(path, "r+b") as file:
            if os.fstat(file.fileno()).st_size < offset:
                return False
            file.seek(offset)
            file.write(content)
            file.truncate()
    except FileNotFoundError:
        return False
    return True
