"""The image sets: what each is, where it is served, and how its files are read."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from acenode.data.base import DataState, RemoteFile
from acenode.data.formats import Split, Splits, read_cifar_archive, read_idx, read_svhn_mat
from acenode.data.store import Progress
from acenode.errors import UserError


@dataclass(frozen=True)
class ImageSource:
    """One image set; `read` turns the folder that holds its files into arrays."""

    name: str
    title: str
    files: tuple[RemoteFile, ...]
    shape: tuple[int, int, int]  # height, width, channels
    train: int
    test: int
    classes: tuple[str, ...]
    read: Callable[[Path], Splits]

    def path(self, root: Path) -> Path:
        return root / f"{self.name}.npz"

    def prepare(self, root: Path, progress: Progress | None = None) -> Path:
        from acenode.data import images  # which is built on this module

        return images.prepare(self.name, root, progress, self)

    def check(self, root: Path) -> DataState:
        from acenode.data import images

        return images.check(self.name, root, self)


def _read_mnist(folder: Path) -> Splits:
    train, test = (
        Split(
            read_idx(folder / f"{part}-images-idx3-ubyte.gz")[..., np.newaxis],  # one channel
            read_idx(folder / f"{part}-labels-idx1-ubyte.gz"),
        )
        for part in ("train", "t10k")
    )
    return Splits(train, test)


def _read_svhn(folder: Path) -> Splits:
    return Splits(read_svhn_mat(folder / "train_32x32.mat"), read_svhn_mat(folder / "test_32x32.mat"))


def _read_cifar10(folder: Path) -> Splits:
    return read_cifar_archive(folder / "cifar-10-binary.tar.gz")


def _mnist_file(name: str, md5: str) -> RemoteFile:
    mirrors = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/")
    return RemoteFile(name, tuple(mirror + name for mirror in mirrors), md5)


def _svhn_file(name: str, md5: str) -> RemoteFile:
    return RemoteFile(name, (f"http://ufldl.stanford.edu/housenumbers/{name}",), md5)


_DIGITS = tuple("0123456789")

SOURCES: dict[str, ImageSource] = {
    "mnist": ImageSource(
        name="mnist",
        title="MNIST handwritten digits",
        files=(
            _mnist_file("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            _mnist_file("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
            _mnist_file("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
            _mnist_file("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
        ),
        shape=(28, 28, 1),
        train=60_000,
        test=10_000,
        classes=_DIGITS,
        read=_read_mnist,
    ),
    "svhn": ImageSource(
        name="svhn",
        title="SVHN street view house numbers, cropped digits",
        files=(
            _svhn_file("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
            _svhn_file("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
        ),
        shape=(32, 32, 3),
        train=73_257,
        test=26_032,
        classes=_DIGITS,
        read=_read_svhn,
    ),
    "cifar10": ImageSource(
        name="cifar10",
        title="CIFAR10 small photographs",
        files=(
            RemoteFile(
                "cifar-10-binary.tar.gz",
                ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
                "c32a1d4ab5d03f1284b67883e8d87530",
            ),
        ),
        shape=(32, 32, 3),
        train=50_000,
        test=10_000,
        classes=(
            "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
        ),
        read=_read_cifar10,
    ),
}


def source_of(name: str) -> ImageSource:
    """The image set of that name, or words that say which there are."""
    if name not in SOURCES:
        raise UserError(f"there is no image set {name!r}: choose one of {', '.join(SOURCES)}")
    return SOURCES[name]
