"""An image set: downloaded and read by torchvision once, then kept as one npz file and loaded from it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from acenode.data.data_source import DataState, Progress
from acenode.data.disk import disk_error, is_file
from acenode.data.download import fetch
from acenode.data.npz import read_npz, write_npz
from acenode.data.preparation import prepare_once, read_prepared
from acenode.data.torchvision_files import TorchvisionReader
from acenode.errors import UserError

_NAMES = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True, eq=False)
class ImageArrays:
    """Images (uint8, N×H×W×C) and labels (uint8, N) for training and test, and the names of the classes."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: tuple[str, ...]


@dataclass(frozen=True)
class ImageSource:
    """One image set. `dataset` replaces torchvision's class, for example by a subclass with other mirrors."""

    name: str
    title: str
    reader: TorchvisionReader
    shape: tuple[int, int, int]  # height, width, channels
    train: int  # number of images
    test: int
    classes: tuple[str, ...]
    dataset: Any = None

    def path(self, root: Path) -> Path:
        return root / f"{self.name}.npz"

    def prepare(self, root: Path, progress: Progress | None = None) -> Path:
        """Download and check the set and write `root/name.npz`; a usable file is left as it is."""
        return prepare_once(self, root, progress, lambda folder: self._make(root, folder, progress))

    def load(self, root: Path) -> ImageArrays:
        """Read the prepared file."""
        return read_prepared(self, root, self._read)

    def check(self, root: Path) -> DataState:
        """Tell whether the set is ready. The whole file is read, so that a damaged byte is found."""
        path, get = self.path(root), f"run `acenode data get {self.name}`"
        if not is_file(path):
            return DataState(self.name, "missing", path, 0, f"not downloaded yet: {get}")
        size = path.stat().st_size
        try:
            self._read(path)
        except ValueError as error:
            return DataState(self.name, "broken", path, size, f"{error}: {get}")
        return DataState(self.name, "ready", path, size, f"{self.train} training and {self.test} test images")

    def _make(self, root: Path, folder: Path, progress: Progress | None) -> None:
        from acenode.data.torchvision_import import torchvision_datasets  # slow to import, and needed only here

        dataset = self.dataset or getattr(torchvision_datasets(), self.reader.dataset)
        for path, file in self.reader.files(dataset, folder).items():
            fetch(file.urls, path, md5=file.md5, progress=progress)
        try:
            arrays = self.reader.read(dataset, folder)
        except OSError as error:
            raise disk_error(error, folder) from error
        except Exception as error:  # a damaged file raises nearly anything inside a reader
            words = " ".join(f"{type(error).__name__}: {error}".split())
            raise UserError(f"the downloads for {self.name} cannot be read ({words}): delete {folder}, try again") \
                from error
        if fault := self._fault(arrays):
            raise UserError(f"the downloads for {self.name} cannot be used ({fault}): delete {folder}, try again")
        write_npz(self.path(root), arrays)

    def _read(self, path: Path) -> ImageArrays:
        """Read the arrays of a prepared file; a ValueError says what is wrong with it."""
        arrays = read_npz(path, _NAMES)
        if fault := self._fault(arrays):
            raise ValueError(fault)
        return ImageArrays(**arrays, classes=self.classes)

    def _fault(self, arrays: dict[str, np.ndarray]) -> str | None:
        """Describe how the arrays differ from the official set, or return None."""
        for part, count in (("train", self.train), ("test", self.test)):
            x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
            for array, name, shape in ((x, f"x_{part}", (count, *self.shape)), (y, f"y_{part}", (count,))):
                if array.dtype != np.uint8 or array.shape != shape:
                    return f"{name} is {array.dtype} {array.shape}, where uint8 {shape} belongs"
            if y.max(initial=0) >= len(self.classes):
                return f"y_{part} has the label {y.max()}, and there are {len(self.classes)} classes"
        return None
