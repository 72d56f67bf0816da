"""Image sets: MNIST, SVHN and CIFAR10 through torchvision, and scikit-learn's digits, which need no download.

Official files are downloaded here with progress, timeouts and one-line errors, which torchvision does not offer;
torchvision then verifies their checksums, extracts and reads them once. CIFAR10's batches are pickles: torchvision
compares each one's md5 with the published one before it unpickles anything, so a changed file is never unpickled.
"""

from __future__ import annotations

import importlib
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from acenode.data.folder import disk_error, read_npz, write_npz
from acenode.data.source import DataSource, Progress, RemoteFile, fetch
from acenode.data.splits import stratified_holdout
from acenode.errors import UserError
from acenode.files import discard

SPLIT_SEED = 1797  # of the digits, so that every run is tested on the same ones

MIN_CONTRAST = 80.0  # between the luminances of digit and background, of 255
LUMINANCE = np.array([0.299, 0.587, 0.114])  # of red, green and blue (ITU-R BT.601)
_DIGITS = tuple("0123456789")


@dataclass(frozen=True, eq=False)
class ImageArrays:
    """Images (uint8, N×H×W×C) and labels (uint8, N) for training and test, and the names of the classes."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: tuple[str, ...]


@dataclass(frozen=True)
class ImageSource(DataSource[ImageArrays]):
    """One image set of torchvision."""

    torchvision: str  # the name of the class in torchvision.datasets
    shape: tuple[int, int, int]  # height, width, channels
    train: int  # number of images
    test: int
    classes: tuple[str, ...] = _DIGITS  # the names of the labels
    dataset: Any = None  # replaces torchvision's class, for example by a subclass with other mirrors

    def files(self, dataset: Any, folder: Path) -> dict[Path, RemoteFile]:
        """Return where torchvision's class expects each official file under a folder, and where to download it."""
        if hasattr(dataset, "resources"):  # MNIST
            raw = folder / dataset.__name__ / "raw"
            return {raw / name: RemoteFile(name, tuple(mirror + name for mirror in dataset.mirrors), ("md5", md5))
                    for name, md5 in dataset.resources}
        archives = ([dataset.split_list[part] for part in ("train", "test")] if hasattr(dataset, "split_list")  # SVHN
                    else [(dataset.url, dataset.filename, dataset.tgz_md5)])  # CIFAR10
        return {folder / name: RemoteFile(name, (url,), ("md5", md5)) for url, name, md5 in archives}

    def _make(self, root: Path, downloads: Path, progress: Progress | None) -> None:
        dataset = self.dataset or getattr(torchvision_datasets(), self.torchvision)
        for path, file in self.files(dataset, downloads).items():
            fetch(file, path, progress)
            discard(path.with_suffix(""))  # extracted by a process that was killed: torchvision would trust it
        arrays: dict[str, np.ndarray] = {}
        try:
            for part in ("train", "test"):
                which = {"split": part} if hasattr(dataset, "split_list") else {"train": part == "train"}
                found = dataset(downloads, download=True, **which)
                x, y = np.asarray(found.data), found.labels if hasattr(found, "labels") else found.targets
                x = x[..., None] if x.ndim == 3 else x.transpose(0, 2, 3, 1) if x.shape[1] == 3 else x  # (N, H, W, C)
                arrays |= {f"x_{part}": np.ascontiguousarray(x), f"y_{part}": np.asarray(y).astype(np.uint8)}
        except OSError as error:
            raise disk_error(error, downloads) from error
        except Exception as error:  # a damaged file raises nearly anything inside a reader
            words = " ".join(f"{type(error).__name__}: {error}".split())
            raise UserError(f"the downloads for {self.name} cannot be read ({words}): delete {downloads}, try again") \
                from error
        if fault := self._fault(arrays):
            raise UserError(f"the downloads for {self.name} cannot be used ({fault}): delete {downloads}, try again")
        write_npz(self.path(root), arrays)

    def _read(self, path: Path) -> tuple[ImageArrays, str]:
        arrays = read_npz(path, ("x_train", "y_train", "x_test", "y_test"))
        if fault := self._fault(arrays):
            raise ValueError(fault)
        return ImageArrays(**arrays, classes=self.classes), f"{self.train} training and {self.test} test images"

    def _fault(self, arrays: dict[str, np.ndarray]) -> str | None:
        """Describe how the arrays differ from the official set, or return None."""
        for part, count in (("train", self.train), ("test", self.test)):
            for name, shape in ((f"x_{part}", (count, *self.shape)), (f"y_{part}", (count,))):
                array = arrays[name]
                if array.dtype != np.uint8 or array.shape != shape:
                    return f"{name} is {array.dtype} {array.shape}, where uint8 {shape} belongs"
            if array.max(initial=0) >= len(self.classes):
                return f"y_{part} has the label {array.max()}, and there are {len(self.classes)} classes"
        return None


IMAGE_SOURCES: dict[str, ImageSource] = {source.name: source for source in (
    ImageSource("mnist", "MNIST handwritten digits", "MNIST", (28, 28, 1), 60_000, 10_000),
    ImageSource("svhn", "SVHN street view house numbers, cropped digits", "SVHN", (32, 32, 3), 73_257, 26_032),
    ImageSource("cifar10", "CIFAR10 small photographs", "CIFAR10", (32, 32, 3), 50_000, 10_000,
                ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")),
)}


def digits(colour: bool = False, seed: int = 0) -> ImageArrays:
    """Return scikit-learn's 1,797 digits of 8×8 pixels, 80% for training, grey or in random colours like house numbers.

    `seed` is for the colours only.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    ink = bunch.images[..., np.newaxis] / 16.0  # (N, 8, 8, 1), 0 to 1
    digit, background = np.array(255), np.array(0)
    if colour:  # random ones with enough contrast
        rng = np.random.default_rng(seed)
        pairs = rng.integers(0, 256, (len(ink), 2, 3))  # digit and background
        while (faint := np.abs(np.diff(pairs @ LUMINANCE)[:, 0]) < MIN_CONTRAST).any():
            pairs[faint] = rng.integers(0, 256, (faint.sum(), 2, 3))
        digit, background = pairs[:, 0, None, None], pairs[:, 1, None, None]  # (N, 1, 1, 3)
    x = np.rint(background + (digit - background) * ink).astype(np.uint8)  # (N, 8, 8, C)
    y = bunch.target.astype(np.uint8)
    train, test = stratified_holdout(y, round(0.2 * len(y)), SPLIT_SEED)
    return ImageArrays(x[train], y[train], x[test], y[test], classes=_DIGITS)


# torchvision built for another torch or another CUDA fails at import with "operator torchvision::nms does not exist" or
# a complaint about CUDA versions. Its data sets are plain Python and need none of these operators.

_LOCK = threading.Lock()  # two downloads may import it at the same time
_LIBRARIES: list[Any] = []  # torch drops a definition together with its library


def torchvision_datasets() -> ModuleType:
    """Return the module `torchvision.datasets`, also where torchvision's compiled operators do not load."""
    with _LOCK:
        try:
            return importlib.import_module("torchvision.datasets")
        except ImportError as error:
            raise UserError(f"torchvision cannot be imported ({error}): install it with `pip install torchvision`") \
                from error
        except RuntimeError:  # its compiled operators did not load
            _replace_operators()
        try:
            return importlib.import_module("torchvision.datasets")
        except Exception as error:
            import torch

            raise UserError(f"torchvision cannot be imported ({str(error).splitlines()[0]}): install the torchvision "
                            f"that matches torch {torch.__version__}") from error


def _replace_operators() -> None:
    """Declare the operators that torchvision registers more of at import; calling one of them is an error."""
    import torch

    def no_operators() -> None:
        raise RuntimeError(f"torchvision's compiled operators do not load with torch {torch.__version__}")

    if "torchvision.extension" not in sys.modules:  # it raised the error itself, as it was built for another CUDA
        stub = ModuleType("torchvision.extension", "Stands for operators that were built for another CUDA.")
        vars(stub).update(_has_ops=lambda: False, _load_library=lambda name: False, _check_cuda_version=lambda: -1,
                          _assert_has_ops=no_operators)
        sys.modules[stub.__name__] = stub
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _LIBRARIES.append(library)
