"""Open a table: refuse what is not one, in words that say what to do, and iterate over its rows.

A CSV file is separated by commas, semicolons, tabs or bars, is encoded in UTF-8 and begins with the names of its
columns. Rows are numbered as a spreadsheet numbers them: the names are in row 1.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from acenode.data.importing import parquet
from acenode.errors import UserError
from acenode.files import open_regular

MAX_BYTES = 200_000_000
MAX_COLUMNS = 1000
MAX_NAME = 100  # characters of a column's name
SAMPLE = 1000  # rows that are read to guess what columns mean
DELIMITERS = ",;\t|"
_CHUNK = 1 << 20

_SAVE_AS_CSV = "save the table as CSV"
_KINDS = {
    b"PK\x03\x04": f"a zip archive or an Excel workbook: unpack it, or {_SAVE_AS_CSV}",
    b"PK\x05\x06": "an empty zip archive: choose a CSV file",
    b"\xd0\xcf\x11\xe0": f"an Excel workbook: {_SAVE_AS_CSV}",
    b"\x1f\x8b": "compressed (gzip): unpack it first",
    b"BZh": "compressed (bzip2): unpack it first",
    b"\xfd7zXZ": "compressed (xz): unpack it first",
    b"(\xb5/\xfd": "compressed (zstd): unpack it first",
    b"7z\xbc\xaf": "a 7z archive: unpack it first",
    b"Rar!": "a rar archive: unpack it first",
    b"%PDF": f"a PDF document: {_SAVE_AS_CSV}",
    b"\x89PNG": f"a picture: {_SAVE_AS_CSV}",
    b"\xff\xd8\xff": f"a picture: {_SAVE_AS_CSV}",
    b"SQLite format 3": f"a database: {_SAVE_AS_CSV}",
    b"\x89HDF": f"an HDF5 file: {_SAVE_AS_CSV}",
    b"ARROW1": f"a Feather file: {_SAVE_AS_CSV} or Parquet",
    b"\x93NUMPY": f"a NumPy file: {_SAVE_AS_CSV}",
    b"\xff\xfe": "encoded in UTF-16: save it in UTF-8",
    b"\xfe\xff": "encoded in UTF-16: save it in UTF-8",
    b"{": f"JSON: {_SAVE_AS_CSV}",
    b"[": f"JSON: {_SAVE_AS_CSV}",
    b"<": f"a web page or XML: {_SAVE_AS_CSV}",
}

Row = tuple[int, list[str]]  # the number of a row, and its cells without surrounding white space


@dataclass(frozen=True)
class TableHead:
    """The names of a table's columns and its first rows, to guess what the columns mean."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def cells(self, column: str) -> list[str]:
        """Return the cells of a column that are not blank."""
        i = self.columns.index(column)
        return [cells[i] for _, cells in self.rows if cells[i]]


class TableFile:
    """A table in a file.

    Args:
        source: a path, or an open file that can be read from its beginning.
        name: the name of the file, for messages.

    Raises:
        UserError: the file cannot be read, or is not a table.
    """

    def __init__(self, source: Path | BinaryIO, name: str = "") -> None:
        self.source = source
        self.name = name or (source.name if isinstance(source, Path) else "the file")
        with self.open() as file:
            self.is_parquet = parquet.is_parquet(file)
            _check_bytes(file, self.name, self.is_parquet)
            if self.is_parquet:
                self.columns = _checked_names(parquet.column_names(file, self.name))
            else:
                self.delimiter = _delimiter(file)
                self.columns = _checked_names(next(self._records(file))[1])
        if len(self.columns) < 2:
            raise UserError(f"{self.name} has one column only: separate the columns by commas, and have one for the "
                            "time and one for each variable")

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the file at its beginning."""
        if not isinstance(self.source, Path):
            self.source.seek(0)
            yield self.source
            return
        try:
            if self.source.is_dir():
                raise UserError(f"{self.source} is a folder: choose a file")
            file = open_regular(self.source)  # closed below; only the opening may fail in these ways
        except OSError as error:
            raise UserError(f"cannot read {self.source} ({error.strerror or error}): check its name") from None
        with file:
            yield file

    def rows(self) -> Iterator[Row]:
        """Iterate over the rows that are not blank; each has one cell for every column."""
        with self.open() as file:
            if self.is_parquet:
                yield from parquet.rows(file, self.name)
                return
            records = self._records(file)
            next(records)
            for number, cells in records:
                if len(cells) != len(self.columns):
                    raise UserError(f"row {number} has {_count(len(cells), 'cell')}, but the first row names "
                                    f"{_count(len(self.columns), 'column')}: correct that row")
                if any(cells):
                    yield number, cells

    def head(self) -> TableHead:
        """Read the first rows."""
        rows = []
        for row in self.rows():
            rows.append(row)
            if len(rows) == SAMPLE:
                break
        if not rows:
            raise UserError(f"{self.name} has no rows below the names of its columns")
        return TableHead(self.columns, tuple(rows))

    def _records(self, file: BinaryIO) -> Iterator[Row]:
        """Iterate over all rows that have cells, the names included."""
        file.seek(len(codecs.BOM_UTF8) if _starts_with(file, codecs.BOM_UTF8) else 0)
        number = 0
        try:
            for cells in csv.reader((line.decode() for line in file), delimiter=self.delimiter, strict=True):
                number += 1
                if cells:
                    yield number, [cell.strip() for cell in cells]
        except csv.Error as error:
            raise UserError(f"row {number + 1} cannot be read ({error}): look for a quotation mark that is not "
                            "closed") from None


def _check_bytes(file: BinaryIO, name: str, is_parquet: bool) -> None:
    """Raise an error if a file is too large, empty, of another kind, or not text in UTF-8."""
    size = file.seek(0, io.SEEK_END)
    if size > MAX_BYTES:
        raise UserError(f"{name} has {size / 1e6:.0f} MB: import at most {MAX_BYTES / 1e6:.0f} MB, for example fewer "
                        "rows or columns")
    if size == 0:
        raise UserError(f"{name} is empty")
    if is_parquet:
        return
    file.seek(0)
    start = file.read(16).removeprefix(codecs.BOM_UTF8).lstrip()
    for magic, kind in _KINDS.items():
        if start.startswith(magic):
            raise UserError(f"{name} is {kind}")
    if not start:
        raise UserError(f"{name} is blank")
    file.seek(0)
    decoder, line = codecs.getincrementaldecoder("utf-8")(), 1
    while chunk := file.read(_CHUNK):
        if b"\0" in chunk:
            line += chunk[:chunk.index(b"\0")].count(b"\n")
            raise UserError(f"line {line} of {name} has a NUL byte: it is not a text file, {_SAVE_AS_CSV}")
        try:
            decoder.decode(chunk)
        except UnicodeDecodeError as error:
            line += error.object[:error.start].count(b"\n")
            raise UserError(f"line {line} of {name} is not UTF-8: save the file with the encoding UTF-8") from None
        line += chunk.count(b"\n")
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise UserError(f"line {line} of {name} is not UTF-8: save the file with the encoding UTF-8") from None


def _delimiter(file: BinaryIO) -> str:
    """Return the character that separates the names of the columns: the most frequent one of those outside quotes."""
    file.seek(0)
    first = b""
    while not first.strip(b"\r\n\t ;,|" + codecs.BOM_UTF8):
        line = file.readline(_CHUNK)
        if not line:
            raise UserError("the first row has no names: give every column a name")
        first = line
    outside = "".join(first.decode("utf-8", "replace").split('"')[::2])
    return max(DELIMITERS, key=outside.count)


def _checked_names(names: list[str]) -> tuple[str, ...]:
    """Return the names of the columns; a column without a name is called by its number."""
    while names and not names[-1]:  # delimiters at the end of the line
        names = names[:-1] if len(names) > MAX_COLUMNS else [*names[:-1], f"column {len(names)}"]
    if len(names) > MAX_COLUMNS:
        raise UserError(f"the file has {len(names)} columns: import at most {MAX_COLUMNS}")
    found = [name or f"column {i}" for i, name in enumerate(names, 1)]
    for i, name in enumerate(found, 1):
        if len(name) > MAX_NAME:
            raise UserError(f"row 1, column {i}: the name has {len(name)} characters: use at most {MAX_NAME}")
        if not name.isprintable():
            raise UserError(f"row 1, column {i}: the name {name!r} has control characters: rename the column")
        if name[0] in "=@":
            raise UserError(f"row 1, column {i}: {name[:40]!r} is a formula: rename the column")
        if found.index(name) < i - 1:
            raise UserError(f"row 1: columns {found.index(name) + 1} and {i} are both called {name!r}: rename one")
    if sum(_is_number(name) for name in found) > len(found) / 2:
        raise UserError(f"row 1 has numbers such as {next(n for n in found if _is_number(n))} where the names of the "
                        "columns belong: add a row with names")
    return tuple(found)


def _starts_with(file: BinaryIO, start: bytes) -> bool:
    file.seek(0)
    return file.read(len(start)) == start


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"
