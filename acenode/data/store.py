"""Where data lies, and how a file gets there whole or not at all."""

import errno
import os
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from acenode import files
from acenode.errors import UserError

Progress = Callable[[int, int | None, str], None]
"""Called with the bytes done, the total where it is known, and a label."""

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}


def data_dir(explicit: Path | str | None = None) -> Path:
    """The data folder: the one given, else ACENODE_DATA, else `acenode` in the user's cache folder."""
    if explicit is not None:
        return Path(explicit).expanduser()
    if named := os.environ.get("ACENODE_DATA"):
        return Path(named).expanduser()
    try:
        return user_cache() / "acenode"
    except RuntimeError as error:  # an account without a home folder
        raise UserError("there is no home folder to keep data in: set ACENODE_DATA to a folder") from error


def user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@contextmanager
def replacing(target: Path) -> Iterator[BinaryIO]:
    """`files.replacing`, with the disk's troubles in words."""
    try:
        with files.replacing(target) as handle:
            yield handle
    except BrokenPipeError:  # a progress printer lost its reader: nothing to do with the disk
        raise
    except OSError as error:
        raise disk_error(error, target) from error


def sweep(target: Path) -> None:
    """Remove what a killed process left beside `target`; only under a lock, as a live part looks the same."""
    for part in target.parent.glob(f".{target.name}.*.part"):
        files.discard(part)


def disk_error(error: OSError, target: Path) -> UserError:
    """The same trouble in words that say what to do about it."""
    elsewhere = "set ACENODE_DATA to another folder"
    if error.errno in _FULL:
        return UserError(f"no space left on the disk for {target}: free some, or {elsewhere}")
    if error.errno in _DENIED:
        return UserError(f"{target.parent} is not writable: change its permissions, or {elsewhere}")
    return UserError(f"cannot write {target} ({error.strerror or error}): put that right, or {elsewhere}")


def write_npz(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write the arrays as one npz, whole or not at all. Equal arrays give equal bytes."""
    with replacing(path) as handle, zipfile.ZipFile(handle, "w") as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")
            with archive.open(member, "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def read_npz(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The named arrays of an npz. ValueError says in a few words what is wrong with the file."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name: _read_member(archive, name) for name in names}
    except KeyError as error:
        raise ValueError("an array is missing from it") from error
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise ValueError("it is torn, or not an npz file") from error


def _read_member(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(f"{name}.npy") as entry:
        try:
            return np.lib.format.read_array(entry, allow_pickle=False)
        except ValueError as error:
            raise ValueError(f"{name} is not a plain array") from error
