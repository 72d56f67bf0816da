"""Open a table: refuse what is not one, in words that say what to do, and iterate over its rows as texts.

A CSV file is separated by commas, semicolons, tabs or bars, is encoded in UTF-8 and begins with the names of its
columns. Rows are numbered as a spreadsheet numbers them: the names are in row 1. A Parquet file needs pyarrow.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

from acenode.errors import UserError
from acenode.files import open_regular

MAX_BYTES = 200_000_000
MAX_CELLS = 60_000_000
MAX_COLUMNS = 1000
MAX_NAME = 100  # characters of a column's name
SAMPLE = 1000  # rows that are read to guess what columns mean
DELIMITERS = ",;\t|"
_PARQUET = b"PAR1"


_SAVE_AS_CSV = "save the table as CSV"
_KINDS = {  # by how files of a kind begin
    f"a zip archive or an Excel workbook: unpack it, or {_SAVE_AS_CSV}": (b"PK\x03\x04",),
    "an empty zip archive: choose a CSV file": (b"PK\x05\x06",),
    f"an Excel workbook: {_SAVE_AS_CSV}": (b"\xd0\xcf\x11\xe0",),
    "compressed (gzip): unpack it first": (b"\x1f\x8b",),
    "compressed (bzip2): unpack it first": (b"BZh",),
    "compressed (xz): unpack it first": (b"\xfd7zXZ",),
    "compressed (zstd): unpack it first": (b"(\xb5/\xfd",),
    "a 7z archive: unpack it first": (b"7z\xbc\xaf",),
    "a rar archive: unpack it first": (b"Rar!",),
    f"a PDF document: {_SAVE_AS_CSV}": (b"%PDF",),
    f"a picture: {_SAVE_AS_CSV}": (b"\x89PNG", b"\xff\xd8\xff"),
    f"a database: {_SAVE_AS_CSV}": (b"SQLite format 3",),
    f"an HDF5 file: {_SAVE_AS_CSV}": (b"\x89HDF",),
    f"a Feather file: {_SAVE_AS_CSV} or Parquet": (b"ARROW1",),
    f"a NumPy file: {_SAVE_AS_CSV}": (b"\x93NUMPY",),
    "encoded in UTF-16: save it in UTF-8": (b"\xff\xfe", b"\xfe\xff"),
    f"JSON: {_SAVE_AS_CSV}": (b"{", b"["),
    f"a web page or XML: {_SAVE_AS_CSV}": (b"<",),
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
    """A table in a file, or in an open one that can be read from its beginning; `name` is for messages.

    A UserError says that it cannot be read, or is not a table.
    """

    def __init__(self, source: Path | BinaryIO, name: str = "") -> None:
        self.source = source
        self.name = name or (source.name if isinstance(source, Path) else "the file")
        with self.open() as file:
            self.is_parquet = file.read(len(_PARQUET)) == _PARQUET
            size = file.seek(0, io.SEEK_END)
            if size > MAX_BYTES:
                raise UserError(f"{self.name} has {size / 1e6:.0f} MB: import at most {MAX_BYTES / 1e6:.0f} MB, for "
                                "example fewer rows or columns")
            if size == 0:
                raise UserError(f"{self.name} is empty")
            if self.is_parquet:
                names = self._parquet_names(file)
            else:
                _check_text(file, self.name)
                self.delimiter = _delimiter(file)
                names = next(self._records(file))[1]
        self.columns = _checked_names(names)
        if len(self.columns) < 2:
            raise UserError(f"{self.name} has one column only: separate the columns by commas, and have one for the "
                            "time and one for each variable")

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
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
                yield from self._parquet_rows(file)
                return
            for number, cells in islice(self._records(file), 1, None):
                if len(cells) != len(self.columns):
                    raise UserError(f"row {number} has {len(cells)} cell{'s' * (len(cells) > 1)}, but the first row "
                                    f"names {len(self.columns)} columns: correct that row")
                if any(cells):
                    yield number, cells

    def head(self) -> TableHead:
        if rows := tuple(islice(self.rows(), SAMPLE)):
            return TableHead(self.columns, rows)
        raise UserError(f"{self.name} has no rows below the names of its columns")

    def _records(self, file: BinaryIO) -> Iterator[Row]:
        """Iterate over all rows that have cells, the names included."""
        file.seek(0)
        number = 0
        try:
            records = csv.reader(codecs.iterdecode(file, "utf-8-sig"), delimiter=self.delimiter, strict=True)
            for number, cells in enumerate(records, 1):
                if cells:
                    yield number, [cell.strip() for cell in cells]
        except csv.Error as error:
            raise UserError(f"row {number + 1} cannot be read ({error}): look for a quotation mark that is not "
                            "closed") from None

    def _parquet_names(self, file: BinaryIO) -> list[str]:
        """Return the names of the columns; nested columns and too many rows are errors.

        Equal values take almost no space in Parquet, so the size of the file does not bound the number of rows.
        """
        with self._parquet(file) as opened:
            schema, rows, columns = opened.schema_arrow, opened.metadata.num_rows, opened.metadata.num_columns
        if rows * columns > MAX_CELLS:
            raise UserError(f"{self.name} has {rows:,} rows of {columns} columns: import at most {MAX_CELLS:,} values, "
                            "for example fewer rows or columns")
        import pyarrow.types as kinds

        for field in schema:
            if kinds.is_nested(field.type) or kinds.is_binary(field.type):
                raise UserError(f"column {field.name!r} of {self.name} has the type {field.type}: leave it out of the "
                                "file")
        return [str(column) for column in schema.names]

    def _parquet_rows(self, file: BinaryIO) -> Iterator[Row]:
        """Iterate over the rows; the first is row 2, as in a CSV file with the names in row 1."""
        with self._parquet(file) as opened:
            batches = (zip(*(column.to_pylist() for column in batch.columns), strict=True)
                       for batch in opened.iter_batches(10_000))
            for number, values in enumerate(chain.from_iterable(batches), 2):
                yield number, ["" if value is None else value.isoformat() if isinstance(value, datetime | date)
                               else str(int(value) if isinstance(value, bool) else value).strip() for value in values]

    @contextmanager
    def _parquet(self, file: BinaryIO) -> Iterator[Any]:
        """Open a Parquet file; whatever pyarrow says about a damaged one becomes one sentence."""
        try:
            import pyarrow.parquet
        except ImportError:
            raise UserError("reading Parquet needs pyarrow: run `pip install pyarrow`, or save the table as CSV") \
                from None
        file.seek(0)
        try:
            yield pyarrow.parquet.ParquetFile(file)
        except (OSError, ValueError, OverflowError, MemoryError, pyarrow.ArrowException) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise UserError(f"{self.name} cannot be read as Parquet ({reason}): write it again") from None


def _check_text(file: BinaryIO, name: str) -> None:
    file.seek(0)
    start = file.read(16).removeprefix(codecs.BOM_UTF8).lstrip()
    for kind, magics in _KINDS.items():
        if start.startswith(magics):
            raise UserError(f"{name} is {kind}")
    if not start:
        raise UserError(f"{name} is blank")
    file.seek(0)
    for number, line in enumerate(file, 1):
        if b"\0" in line:
            raise UserError(f"line {number} of {name} has a NUL byte: it is not a text file, {_SAVE_AS_CSV}")
        try:
            line.decode()
        except UnicodeDecodeError:
            raise UserError(f"line {number} of {name} is not UTF-8: save the file with the encoding UTF-8") from None


def _delimiter(file: BinaryIO) -> str:
    """Return the character that separates the names of the columns: the most frequent one of those outside quotes."""
    file.seek(0)
    first = b""
    while not first.strip(b"\r\n\t ;,|" + codecs.BOM_UTF8):
        first = file.readline(1 << 20)
        if not first:
            raise UserError("the first row has no names: give every column a name")
    outside = "".join(first.decode("utf-8", "replace").split('"')[::2])
    return max(DELIMITERS, key=outside.count)


def _checked_names(names: list[str]) -> tuple[str, ...]:
    """Return the names of the columns; a column without a name is called by its number."""
    while len(names) > MAX_COLUMNS and not names[-1]:  # delimiters at the end of the line
        names = names[:-1]
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
    numbers = []
    for name in found:
        with suppress(ValueError):
            float(name)
            numbers.append(name)
    if len(numbers) > len(found) / 2:
        raise UserError(f"row 1 has numbers such as {numbers[0]} where the names of the columns belong: add a row with "
                        "names")
    return tuple(found)
