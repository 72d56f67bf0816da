"""A set of irregular series: from its official files, here or downloaded, to one prepared npz."""

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
class Reading:
    """Official files as arrays, with what was passed over in them and why."""

    arrays: SeriesArrays
    skipped: Counter[str]
    rows: int | None = None  # all of them, skipped ones too, where their number tells that a file is whole


@dataclass(frozen=True)
class SeriesSource:
    """One set of series. `rows` is how many a download must have where no checksum tells that it is whole."""

    name: str
    title: str
    files: tuple[RemoteFile, ...]
    read: Callable[[Mapping[str, Path], Progress | None], Reading]
    describe: Callable[[SeriesArrays], str]
    rows: int | None = None

    def path(self, root: Path) -> Path:
        return root / f"{self.name}.npz"

    def prepare(self, root: Path, progress: Progress | None = None) -> Path:
        """Lay the set out as `root/name.npz`, from `root/name/` where its files are there, else from a download."""
        return prepare_once(self, root, progress, lambda folder: self._make(root, folder, progress))

    def load(self, root: Path) -> SeriesArrays:
        """The prepared series."""
        return read_prepared(self, root, lambda path: series.load(path)[0])

    def check(self, root: Path) -> DataState:
        """Whether the set is ready. The whole file is read, so that a damaged byte is found here too."""
        path, get = self.path(root), f"run `acenode data get {self.name}`"
        if not is_file(path):
            here = all(is_file(place) for place in self._places(root).values())
            words = "its files are there, not prepared yet" if here else "not downloaded yet"
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
        own = all(place.parent != folder for place in places.values())
        if self.rows is not None and not own and (reading.rows or 0) < self.rows:
            raise UserError(f"the download for {self.name} is cut short ({reading.rows or 0:,} of {self.rows:,} rows): "
                            "try again later")
        if fault := reading.arrays.fault():
            raise UserError(f"the files of {self.name} cannot be used ({fault}): get the official ones")
        series.save(self.path(root), reading.arrays, {"skipped": reading.skipped})


def _skipped(notes: Mapping[str, Any]) -> str:
    found = [f"{count:,} {what}" for what, count in notes.get("skipped", {}).items() if count]
    return f"; skipped: {', '.join(found)}" if found else ""
