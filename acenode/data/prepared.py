"""What every data set does alike: prepare its file once, whoever asks at the same time, and read it afterwards."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from acenode.data.base import DataSource, is_there
from acenode.data.store import Progress, sweep
from acenode.errors import UserError
from acenode.lock import locked

T = TypeVar("T")


def prepare_once(source: DataSource, root: Path, progress: Progress | None, make: Callable[[Path], None]) -> Path:
    """The prepared file, made unless a sound one is there; `make` gets a folder for downloads, gone afterwards."""
    path, folder = source.path(root), root / "downloads" / source.name
    # Asked before the lock too: a folder that cannot be written may still hold a sound file.
    if source.check(root).state == "ready":
        return path

    def waiting() -> None:
        if progress is not None:
            progress(0, None, f"waiting for another download of {source.name}")

    with locked(root / f".{source.name}.lock", waiting):
        if source.check(root).state == "ready":
            return path
        sweep(path)
        make(folder)
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # another set's downloads may be under way
            folder.parent.rmdir()
    return path


def read_prepared(source: DataSource, root: Path, read: Callable[[Path], T]) -> T:
    """What `read` makes of the prepared file; a ValueError of it says what is wrong with the file."""
    path, name = source.path(root), source.name
    if not is_there(path):
        raise UserError(f"{name} is not there yet: run `acenode data get {name}`, or train with --data sample")
    try:
        return read(path)
    except ValueError as error:
        raise UserError(
            f"{path} cannot be used ({error}): delete it, or get it again with `acenode data get {name}`"
        ) from error
