"""MNIST, SVHN and CIFAR10 as torchvision knows them: mirrors, checksums, and readers of the official files.

The files are downloaded here with progress, timeouts and one-line errors, which torchvision does not offer; torchvision
then verifies their checksums, extracts and reads them. CIFAR10's batches are pickles: torchvision compares each one's
md5 with the published one before it unpickles anything, so a changed file is never unpickled.

`dataset` is torchvision's class of that name, or a subclass with other mirrors.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from acenode.data.data_source import RemoteFile
from acenode.files import discard

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class TorchvisionReader:
    """How one image set of torchvision is stored and read.

    files: returns where torchvision expects each official file under a folder, and where to download it.
    read: returns `x_train`, `y_train`, `x_test` and `y_test` as uint8, images N×H×W×C, from the files in a folder.
    """

    dataset: str  # name of the class in torchvision.datasets
    files: Callable[[Any, Path], dict[Path, RemoteFile]]
    read: Callable[[Any, Path], Arrays]


def _mnist_files(dataset: Any, folder: Path) -> dict[Path, RemoteFile]:
    raw = folder / dataset.__name__ / "raw"
    return {raw / name: RemoteFile(name, tuple(mirror + name for mirror in dataset.mirrors), md5)
            for name, md5 in dataset.resources}


def _read_mnist(dataset: Any, folder: Path) -> Arrays:
    for path in _mnist_files(dataset, folder):  # torchvision trusts extracted files, which a killed process may have
        discard(path.with_suffix(""))           # left incomplete
    arrays = {}
    for part in ("train", "test"):
        images = dataset(folder, train=part == "train", download=True)
        arrays[f"x_{part}"] = images.data.numpy()[..., np.newaxis]  # one channel
        arrays[f"y_{part}"] = images.targets.numpy().astype(np.uint8)
    return arrays


def _svhn_files(dataset: Any, folder: Path) -> dict[Path, RemoteFile]:
    found = (dataset.split_list[part] for part in ("train", "test"))
    return {folder / name: RemoteFile(name, (url,), md5) for url, name, md5 in found}


def _read_svhn(dataset: Any, folder: Path) -> Arrays:
    arrays = {}
    for part in ("train", "test"):
        images = dataset(folder, split=part, download=True)
        arrays[f"x_{part}"] = np.ascontiguousarray(images.data.transpose(0, 2, 3, 1))  # (N, C, H, W) -> (N, H, W, C)
        arrays[f"y_{part}"] = images.labels.astype(np.uint8)
    return arrays


def _cifar10_files(dataset: Any, folder: Path) -> dict[Path, RemoteFile]:
    return {folder / dataset.filename: RemoteFile(dataset.filename, (dataset.url,), dataset.tgz_md5)}


def _read_cifar10(dataset: Any, folder: Path) -> Arrays:
    arrays = {}
    for part in ("train", "test"):
        images = dataset(folder, train=part == "train", download=True)
        arrays[f"x_{part}"] = np.ascontiguousarray(images.data)
        arrays[f"y_{part}"] = np.array(images.targets, np.uint8)
    return arrays


MNIST = TorchvisionReader("MNIST", _mnist_files, _read_mnist)
SVHN = TorchvisionReader("SVHN", _svhn_files, _read_svhn)
CIFAR10 = TorchvisionReader("CIFAR10", _cifar10_files, _read_cifar10)
