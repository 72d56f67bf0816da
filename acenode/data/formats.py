"""Readers for the image sets' official files. Nothing is unpickled and nothing is extracted to disk."""

import gzip
import math
import struct
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from acenode.errors import UserError

_CIFAR_TRAIN = tuple(f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6))
_CIFAR_TEST = "cifar-10-batches-bin/test_batch.bin"
_CIFAR_RECORD = 1 + 3 * 32 * 32  # the label, then the red, green and blue planes


@dataclass(frozen=True, eq=False)
class Split:
    """Images (N×H×W×C) and their labels (N), both uint8."""

    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True, eq=False)
class Splits:
    """The official training and test sets."""

    train: Split
    test: Split


def _foreign(path: Path, kind: str) -> UserError:
    return UserError(f"{path} is cut short or is not {kind}: delete it and get it again")


def read_idx(path: Path) -> np.ndarray:
    """A gzipped IDX file of unsigned bytes, in the shape its header gives."""
    trouble = _foreign(path, "a gzipped IDX file of bytes")
    try:
        with gzip.open(path, "rb") as handle:
            content = handle.read()
    except (OSError, EOFError, zlib.error) as error:
        raise trouble from error
    # Two zero bytes, the type (8: unsigned byte), the number of axes, then each length, big-endian.
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise trouble
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise trouble
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if len(content) - start != math.prod(shape):
        raise trouble
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_svhn_mat(path: Path) -> Split:
    """An SVHN file of cropped digits, where label 10 stands for the digit 0."""
    from scipy.io import loadmat

    trouble = _foreign(path, "an SVHN file of cropped digits")
    try:
        content = loadmat(path, variable_names=("X", "y"))
        x, y = content["X"], content["y"].ravel()
    except Exception as error:  # a damaged file raises nearly anything inside the reader
        raise trouble from error
    if x.shape != (32, 32, 3, len(y)) or x.dtype != np.uint8 or not np.isin(y, range(1, 11)).all():
        raise trouble
    # (H, W, C, N) -> (N, H, W, C)
    return Split(np.ascontiguousarray(x.transpose(3, 0, 1, 2)), (y % 10).astype(np.uint8))


def read_cifar_archive(path: Path) -> Splits:
    """CIFAR10's binary version, read straight out of its archive."""
    trouble = _foreign(path, "CIFAR10's binary archive")
    batches: dict[str, Split] = {}
    try:
        with gzip.open(path, "rb") as stream:
            with tarfile.open(fileobj=stream, mode="r:") as archive:
                for member in archive:  # in the archive's own order: gzip cannot step back cheaply
                    if member.name in (*_CIFAR_TRAIN, _CIFAR_TEST) and (entry := archive.extractfile(member)):
                        batches[member.name] = _cifar_batch(entry.read())
            stream.read()  # to the end, where gzip keeps its checksum
        train = [batches[name] for name in _CIFAR_TRAIN]
        test = batches[_CIFAR_TEST]
    except (OSError, EOFError, zlib.error, tarfile.TarError, KeyError, ValueError) as error:
        raise trouble from error
    return Splits(
        Split(np.concatenate([b.x for b in train]), np.concatenate([b.y for b in train])),
        test,
    )


def _cifar_batch(content: bytes) -> Split:
    records = np.frombuffer(content, np.uint8).reshape(-1, _CIFAR_RECORD)
    planes = records[:, 1:].reshape(-1, 3, 32, 32)  # (N, C, H, W)
    return Split(np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), records[:, 0])
