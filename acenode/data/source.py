"""What all data sets that are downloaded or read from official files have in common: one prepared file, made once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

from acenode import files
from acenode.data.download import Progress
from acenode.data.folder import is_file, locked
from acenode.errors import UserError

REPORT_LINES = 5000  # between two calls of progress
Arrays = TypeVar("Arrays")


@dataclass(frozen=True)
class DataState:
    """The state of a prepared file; `detail` describes it in words."""

    name: str
    state: Literal["ready", "missing", "broken"]
    path: Path
    bytes: int
    detail: str


@dataclass(frozen=True)
class DataSource(Generic[Arrays]):
    """A data set that is prepared once under a root folder and then read from there.

    A subclass makes the file (`_make`) and reads it with a description in words (`_read`, whose ValueError says what is
    wrong with the file).
    """

    name: str
    title: str

    def path(self, root: Path) -> Path:
        """Return where the prepared file is."""
        return root / f"{self.name}.npz"

    def prepare(self, root: Path, progress: Progress | None = None) -> Path:
        """Write the prepared file, and download what that needs; a usable file is left as it is.

        Several processes may ask at the same time. After a failure the downloads stay, so that the next attempt needs
        only what is missing.
        """
        path, downloads = self.path(root), root / "downloads" / self.name
        # Checked before the lock is taken, too: the file may be in a folder that cannot be written.
        if self.check(root).state == "ready":
            return path

        def waiting() -> None:
            if progress is not None:
                progress(0, None, f"waiting for another download of {self.name}")

        with locked(root / f".{self.name}.lock", waiting):
            if self.check(root).state == "ready":
                return path
            for part in root.glob(f".{path.name}.*.part"):  # a killed process left it: nobody else holds the lock
                files.discard(part)
            self._make(root, downloads, progress)
            shutil.rmtree(downloads, ignore_errors=True)
            with suppress(OSError):  # downloads of another data set may be in it
                downloads.parent.rmdir()
        return path

    def load(self, root: Path) -> Arrays:
        """Read the prepared file."""
        path, name = self.path(root), self.name
        if not is_file(path):
            raise UserError(f"{name} is not downloaded yet: run `acenode data get {name}`, or train with --data sample")
        try:
            return self._read(path)[0]
        except ValueError as error:
            raise UserError(f"{path} cannot be used ({error}): delete it, or get it again with "
                            f"`acenode data get {name}`") from error

    def check(self, root: Path) -> DataState:
        """Tell whether the set is ready. The whole file is read, so that a damaged byte is found."""
        path, get = self.path(root), f"run `acenode data get {self.name}`"
        if not is_file(path):
            return DataState(self.name, "missing", path, 0, f"{self._missing(root)}: {get}")
        size = path.stat().st_size
        try:
            return DataState(self.name, "ready", path, size, self._read(path)[1])
        except ValueError as error:
            return DataState(self.name, "broken", path, size, f"{error}: {get}")

    def _missing(self, root: Path) -> str:
        return "not downloaded yet"

    def _make(self, root: Path, downloads: Path, progress: Progress | None) -> None:
        raise NotImplementedError

    def _read(self, path: Path) -> tuple[Arrays, str]:
        raise NotImplementedError


def lines_of(path: Path, progress: Progress | None = None) -> Iterator[str]:
    """Iterate over the lines that are not blank, stripped of surrounding white space."""
    done = count = 0
    try:
        size = path.stat().st_size
        with open(path, "rb") as handle:
            for raw in handle:
                done += len(raw)
                if progress is not None and count % REPORT_LINES == 0:
                    progress(done, size, f"reading {path.name}")
                if line := raw.decode("utf-8", errors="replace").strip():
                    count += 1
                    yield line
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror or error})") from error
