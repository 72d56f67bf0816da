"""The interface of every data set that is downloaded or read from official files."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

Progress = Callable[[int, int | None, str], None]
"""Called with the bytes done, the total if it is known, and a label."""


@dataclass(frozen=True)
class RemoteFile:
    """A file to download: its name, its mirrors in the order to try them, and its checksums if they are known."""

    name: str
    urls: tuple[str, ...]
    md5: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class DataState:
    """The state of a prepared file; `detail` describes it in words."""

    name: str
    state: Literal["ready", "missing", "broken"]
    path: Path
    bytes: int
    detail: str


class DataSource(Protocol):
    """A data set that is prepared once under a root folder and then read from there."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...

    def path(self, root: Path) -> Path: ...  # of the prepared file
    def prepare(self, root: Path, progress: Progress | None = None) -> Path: ...
    def check(self, root: Path) -> DataState: ...
