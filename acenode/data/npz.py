"""Read and write npz files of plain arrays: no pickles, and a file is written completely or not at all."""

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from acenode.data.disk import replacing


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
        with zipfile.ZipFile(path) as archive:
            return {name: _read_member(archive, name) for name in names}
    except KeyError as error:
        raise ValueError("an array is missing from it") from error
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise ValueError("it is incomplete, or not an npz file") from error


def _read_member(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(f"{name}.npy") as entry:
        try:
            return np.lib.format.read_array(entry, allow_pickle=False)
        except ValueError as error:
            raise ValueError(f"{name} is not a plain array") from error
