"""Read and write npz files of plain arrays: no pickles, and a file is written completely or not at all."""

import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np

from acenode.data.disk import replacing
from acenode.files import open_regular

MAX_BYTES = 8_000_000_000  # of all arrays that are read from a file
MAX_RATIO = 1100  # of sizes before and after compression; deflate reaches 1032


def write_npz(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write the arrays as one npz file. Equal arrays give equal bytes."""
    with replacing(path) as handle, zipfile.ZipFile(handle, "w") as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")
            with archive.open(member, "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def read_npz(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Read the named arrays of an npz file. A ValueError says in a few words what is wrong with the file."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            claimed = sum(_checked_bytes(archive, name) for name in names)
            if claimed > MAX_BYTES:
                raise ValueError(f"it claims {claimed / 1e9:.1f} GB, and at most {MAX_BYTES / 1e9:.0f} GB are read")
            return {name: _read_member(archive, name) for name in names}
    except KeyError as error:
        raise ValueError("an array is missing from it") from error
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise ValueError("it is incomplete, or not an npz file") from error


def _checked_bytes(archive: zipfile.ZipFile, name: str) -> int:
    """Return how much memory an array asks for; raise a ValueError if the file does not have that much."""
    stored = archive.getinfo(f"{name}.npy")
    with archive.open(stored) as entry:
        claimed = _claimed_bytes(entry, name)
    if claimed > stored.file_size or stored.file_size > MAX_RATIO * stored.compress_size + 1_000_000:
        raise ValueError(f"{name} claims {claimed / 1e9:.1f} GB, which the file does not have")
    return claimed


def _read_member(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(f"{name}.npy") as entry:
        try:
            return np.lib.format.read_array(entry, allow_pickle=False)
        except ValueError as error:
            raise ValueError(f"{name} is not a plain array") from error
        except MemoryError as error:
            raise ValueError(f"{name} needs more than there is memory") from error


def _claimed_bytes(entry: IO[bytes], name: str) -> int:
    """Return how much memory the header of an array asks for, before any is allocated."""
    try:
        version = np.lib.format.read_magic(entry)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(entry)
    except ValueError as error:
        raise ValueError(f"{name} is not a plain array") from error
    return math.prod(shape) * dtype.itemsize
