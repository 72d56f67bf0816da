"""Prepare a data set's file once, even if several processes ask at the same time, and read it afterwards."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from acenode.data.data_source import DataSource, Progress
from acenode.data.disk import is_file, locked, remove_partial_files
from acenode.errors import UserError

T = TypeVar("T")


def prepare_once(source: DataSource, root: Path, progress: Progress | None, make: Callable[[Path], None]) -> Path:
    """Return the prepared file, after making it if there is no usable one.

    `make` gets a folder for downloads. The folder is removed if `make` succeeds; after a failure it stays, so that the
    next attempt needs to download only what is missing.
    """
    path, folder = source.path(root), root / "downloads" / source.name
    # Checked before the lock is taken, too: the file may be in a folder that cannot be written.
    if source.check(root).state == "ready":
        return path

    def waiting() -> None:
        if progress is not None:
            progress(0, None, f"waiting for another download of {source.name}")

    with locked(root / f".{source.name}.lock", waiting):
        if source.check(root).state == "ready":
            return path
        remove_partial_files(path)
        make(folder)
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # downloads of another data set may be in it
            folder.parent.rmdir()
    return path


def read_prepared(source: DataSource, root: Path, read: Callable[[Path], T]) -> T:
    """Read the prepared file with `read`, whose ValueError says what is wrong with the file."""
    path, name = source.path(root), source.name
    if not is_file(path):
        raise UserError(f"{name} is not downloaded yet: run `acenode data get {name}`, or train with --data sample")
    try:
        return read(path)
    except ValueError as error:
        raise UserError(
            f"{path} cannot be used ({error}): delete it, or get it again with `acenode data get {name}`"
        ) from error
