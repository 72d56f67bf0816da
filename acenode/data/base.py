"""What every data set offers, whatever its kind: its name, its place, how to prepare and how to check it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from acenode.data.store import Progress


@dataclass(frozen=True)
class RemoteFile:
    """A file by name, with its mirrors in order and the checksum that is known of it."""

    name: str
    urls: tuple[str, ...]
    md5: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class DataState:
    """What stands at a data set's place: `detail` says it in words."""

    name: str
    state: Literal["ready", "missing", "broken"]
    path: Path
    bytes: int
    detail: str


class DataSource(Protocol):
    """A data set that is prepared once under a root folder and read from there."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...

    def path(self, root: Path) -> Path: ...  # of the prepared file
    def prepare(self, root: Path, progress: Progress | None = None) -> Path: ...
    def check(self, root: Path) -> DataState: ...


def is_there(path: Path) -> bool:
    return os.path.isfile(path)  # unlike Path.is_file, False in a folder that may not be searched
