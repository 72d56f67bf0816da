"""The imported sets in the data folder: write, list, rename and delete them.

    <data folder>/imported/<name>/set.npz, about.json   the set
                                  import.json           how it was made of its file
                                  original.csv          the file itself, if it was to be kept

A set is written into a folder with another name and renamed, so that it is there completely or not at all.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from acenode.data.folder import disk_error, locked
from acenode.data.importing.build import ImportedTable
from acenode.data.importing.columns import Columns
from acenode.data.importing.table import TableFile
from acenode.data.named_set import NamedSet, check_name
from acenode.errors import UserError
from acenode.files import read_json, write_json

FOLDER = "imported"
DETAILS = "import.json"
FORMAT = 1
MAX_NAME = 40  # characters: names of studies begin with that of their set
_PART = ".part"


@dataclass(frozen=True)
class StoredSet:
    """An imported set, or the reason why it cannot be read."""

    name: str
    path: Path
    set: NamedSet | None
    error: str = ""


@dataclass(frozen=True)
class ImportDetails:
    """How a set was made of its file."""

    columns: Columns
    window: float | None  # the length of its windows, None if series are whole
    notes: tuple[str, ...]


class ImportedSets:
    """The imported sets of a data folder.

    Args:
        root: the data folder.
        reserved: returns names that sets cannot have, such as those of experiments.
    """

    def __init__(self, root: Path, reserved: Callable[[], frozenset[str]] = frozenset) -> None:
        self.folder, self.reserved = root / FOLDER, reserved

    def path(self, name: str) -> Path:
        """Return the folder of a set, whether or not it exists."""
        return self.folder / check_name(name)

    def names(self) -> list[str]:
        """Return the names of the sets in order."""
        return sorted(path.parent.name for path in self.folder.glob("[!.]*/about.json"))

    def exists(self, name: str) -> bool:
        """Return True if there is a set of that name."""
        return name in self.names()

    def load(self, name: str) -> NamedSet:
        """Read a set."""
        self.require(name)
        return NamedSet.load(self.path(name))

    def list(self) -> list[StoredSet]:
        """Read all sets; those that cannot be read come with the reason."""
        found = []
        for name in self.names():
            try:
                found.append(StoredSet(name, self.path(name), self.load(name)))
            except UserError as error:
                found.append(StoredSet(name, self.folder / name, None, str(error)))
        return found

    def details(self, name: str) -> ImportDetails:
        """Return how a set was made of its file, to read another file in the same way."""
        self.require(name)
        try:
            values: dict[str, Any] = read_json(self.path(name) / DETAILS)
            columns = Columns(**{**values["columns"], "variables": tuple(values["columns"]["variables"])})
            return ImportDetails(columns, values["window"], tuple(values["notes"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{self.path(name) / DETAILS} cannot be read: import the file again") from error

    def check_free(self, name: str) -> None:
        """Raise an error if a new set cannot have that name."""
        check_name(name)
        if name in self.reserved():
            raise UserError(f"{name!r} is the name of an experiment, or of a set that runs were trained on: choose "
                            "another one")
        if len(name) > MAX_NAME:
            raise UserError(f"{name!r} has {len(name)} characters: use at most {MAX_NAME}")
        if self.path(name).exists():
            raise UserError(f"there is a set {name!r} already: choose another name, or delete it with "
                            f"`acenode data delete {name}`")

    def write(self, made: ImportedTable, original: TableFile | None = None) -> Path:
        """Write a set; nothing is left if that fails.

        Args:
            made: the set.
            original: its file, if it is to be kept.
        """
        name = made.set.name
        details = {"format": FORMAT, "columns": asdict(made.columns), "window": made.window, "notes": list(made.notes)}
        with self._locked():
            self.check_free(name)
            part = self.folder / f".{name}.{secrets.token_hex(4)}{_PART}"
            try:
                made.set.save(part)
                write_json(part / DETAILS, details, indent=1)
                if original is not None:
                    ending = "parquet" if original.is_parquet else "csv"
                    with original.open() as source, open(part / f"original.{ending}", "xb") as target:
                        shutil.copyfileobj(source, target)
                part.rename(self.path(name))
            except OSError as error:
                raise disk_error(error, self.path(name)) from error
            finally:
                shutil.rmtree(part, ignore_errors=True)
        return self.path(name)

    def rename(self, name: str, new: str) -> Path:
        """Rename a set. Runs that were trained on it keep the old name and cannot be resumed."""
        with self._locked():
            self.require(name)
            self.check_free(new)
            loaded = NamedSet.load(self.path(name))
            title = new if loaded.title == name else loaded.title
            part = self.folder / f".{new}.{secrets.token_hex(4)}{_PART}"
            try:
                shutil.copytree(self.path(name), part)
                replace(loaded, name=new, title=title).save(part)
                part.rename(self.path(new))
            except OSError as error:
                raise disk_error(error, self.path(new)) from error
            finally:
                shutil.rmtree(part, ignore_errors=True)
            self._remove(name)
        return self.path(new)

    def delete(self, name: str) -> None:
        """Delete a set with its folder; runs that were trained on it stay."""
        with self._locked():
            self.require(name)
            self._remove(name)

    def _remove(self, name: str) -> None:
        part = self.folder / f".{name}.{secrets.token_hex(4)}{_PART}"
        try:
            self.path(name).rename(part)  # gone at once, however long it takes to delete its files
            shutil.rmtree(part)
        except OSError as error:
            raise UserError(f"{self.path(name)} cannot be deleted ({error.strerror or error})") from error

    def require(self, name: str) -> None:
        """Raise an error if there is no set of that name."""
        if not self.exists(name):
            known = ", ".join(self.names()) or "there are none yet, see `acenode data import --help`"
            raise UserError(f"there is no imported set {name!r}: choose one of {known}" if self.names()
                            else f"there is no imported set {name!r}: {known}")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the folder's lock; remove what a killed process left."""
        with locked(self.folder.parent / f".{FOLDER}.lock"):
            for part in self.folder.glob(f".*{_PART}"):
                with contextlib.suppress(OSError):
                    shutil.rmtree(part)
            yield
