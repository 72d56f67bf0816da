"""The image sets as arrays: prepared once into one npz each, then loaded from it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from acenode.data.base import DataState, RemoteFile, is_there
from acenode.data.download import fetch
from acenode.data.formats import read_cifar_archive, read_idx, read_svhn_mat
from acenode.data.prepared import prepare_once, read_prepared
from acenode.data.sources import SOURCES, ImageSource, source_of
from acenode.data.store import Progress, read_npz, write_npz
from acenode.errors import UserError

__all__ = [
    "SOURCES",
    "DataState",
    "ImageArrays",
    "ImageSource",
    "RemoteFile",
    "check",
    "load",
    "prepare",
    "read_cifar_archive",
    "read_idx",
    "read_svhn_mat",
    "source_of",
]

_NAMES = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True, eq=False)
class ImageArrays:
    """Images (uint8, N×H×W×C) and labels (uint8, N) for training and test, and the classes' names."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: tuple[str, ...]


def prepare(
    name: str, root: Path, progress: Progress | None = None, source: ImageSource | None = None
) -> Path:
    """Download, check and lay out an image set as `root/name.npz`; a sound one is left as it is."""
    source = source or source_of(name)

    def make(folder: Path) -> None:
        for file in source.files:
            fetch(file.urls, folder / file.name, md5=file.md5, progress=progress)
        splits = source.read(folder)
        arrays = {
            "x_train": splits.train.x,
            "y_train": splits.train.y,
            "x_test": splits.test.x,
            "y_test": splits.test.y,
        }
        if fault := _fault(source, arrays):
            raise UserError(f"the downloads for {name} cannot be used ({fault}): delete {folder}, try again")
        write_npz(source.path(root), arrays)

    return prepare_once(source, root, progress, make)


def load(name: str, root: Path, source: ImageSource | None = None) -> ImageArrays:
    """A prepared image set."""
    source = source or source_of(name)
    return read_prepared(source, root, lambda path: _read(source, path))


def check(name: str, root: Path, source: ImageSource | None = None) -> DataState:
    """Whether the set is ready. The whole file is read, so that a damaged byte is found here too."""
    source = source or source_of(name)
    path = source.path(root)
    if not is_there(path):
        return DataState(name, "missing", path, 0, f"not there yet: run `acenode data get {name}`")
    size = path.stat().st_size
    try:
        _read(source, path)
    except ValueError as error:
        return DataState(name, "broken", path, size, f"{error}: run `acenode data get {name}`")
    return DataState(name, "ready", path, size, f"{source.train} training and {source.test} test images")


def _read(source: ImageSource, path: Path) -> ImageArrays:
    """The arrays of a prepared file; ValueError says what is wrong with it."""
    arrays = read_npz(path, _NAMES)
    if fault := _fault(source, arrays):
        raise ValueError(fault)
    return ImageArrays(**arrays, classes=source.classes)


def _fault(source: ImageSource, arrays: dict[str, np.ndarray]) -> str | None:
    """How the arrays differ from what the set is known to be, or None."""
    for part, count in (("train", source.train), ("test", source.test)):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        for array, name, shape in ((x, f"x_{part}", (count, *source.shape)), (y, f"y_{part}", (count,))):
            if array.dtype != np.uint8 or array.shape != shape:
                return f"{name} is {array.dtype} {array.shape}, where uint8 {shape} belongs"
        if y.max(initial=0) >= len(source.classes):
            return f"y_{part} has the label {y.max()}, and there are {len(source.classes)} classes"
    return None
