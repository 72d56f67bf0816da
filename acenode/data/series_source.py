"""A set of irregular series: its official files, local or downloaded, are read once into one npz file."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acenode.data import series
from acenode.data.data_source import DataState, Progress, RemoteFile
from acenode.data.disk import is_file
from acenode.data.download import fetch
from acenode.data.preparation import prepare_once, read_prepared
from acenode.data.series import SeriesArrays
from acenode.errors import UserError


@dataclass(frozen=True)
class ReadResult:
    """The arrays in official files, and how many lines or records were skipped for which reason."""

    arrays: SeriesArrays
    skipped: Counter[str]
    rows: int | None = None  # all rows, skipped ones included, if their number shows that a file is complete


@dataclass(frozen=True)
class SeriesSource:
    """One set of series. `rows` is the number of rows of a complete download, for files without a checksum."""

    name: str
    title: str
    files: tuple[RemoteFile, ...]
    read: Callable[[Mapping[str, Path], Progress | None], ReadResult]
    describe: Callable[[SeriesArrays], str]
    rows: int | None = None

    def path(self, root: Path) -> Path:
        return root / f"{self.name}.npz"

    def prepare(self, root: Path, progress: Progress | None = None) -> Path:
        """Write `root/name.npz` from the files in `root/name/`, and download those that are missing."""
        return prepare_once(self, root, progress, lambda folder: self._make(root, folder, progress))

    def load(self, root: Path) -> SeriesArrays:
        """Read the prepared file."""
        return read_prepared(self, root, lambda path: series.load(path)[0])

    def check(self, root: Path) -> DataState:
        """Tell whether the set is ready. The whole file is read, so that a damaged byte is found."""
        path, get = self.path(root), f"run `acenode data get {self.name}`"
        if not is_file(path):
            here = all(is_file(place) for place in self._places(root).values())
            words = "downloaded, but not prepared yet" if here else "not downloaded yet"
            return DataState(self.name, "missing", path, 0, f"{words}: {get}")
        size = path.stat().st_size
        try:
            arrays, notes = series.load(path)
        except ValueError as error:
            return DataState(self.name, "broken", path, size, f"{error}: {get}")
        return DataState(self.name, "ready", path, size, self.describe(arrays) + _skipped(notes))

    def _places(self, root: Path) -> dict[str, Path]:
        return {file.name: root / self.name / file.name for file in self.files}

    def _make(self, root: Path, folder: Path, progress: Progress | None) -> None:
        places = self._places(root)
        for file in self.files:
            if not is_file(places[file.name]):
                places[file.name] = fetch(file.urls, folder / file.name, md5=file.md5, sha256=file.sha256,
                                          progress=progress)
        reading = self.read(places, progress)
        local = all(place.parent != folder for place in places.values())
        if self.rows is not None and not local and (reading.rows or 0) < self.rows:
            raise UserError(f"the download for {self.name} is incomplete ({reading.rows or 0:,} of {self.rows:,} "
                            "rows): try again later")
        if fault := reading.arrays.fault():
            raise UserError(f"the files of {self.name} cannot be used ({fault}): get the official ones")
        series.save(self.path(root), reading.arrays, {"skipped": reading.skipped})


def _skipped(notes: Mapping[str, Any]) -> str:
    found = [f"{count:,} {what}" for what, count in notes.get("skipped", {}).items() if count]
    return f"; skipped: {', '.join(found)}" if found else ""
