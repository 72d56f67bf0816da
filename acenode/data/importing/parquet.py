"""Read a Parquet file as rows of texts, so that it is checked like a CSV file. It needs pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from typing import Any, BinaryIO

from acenode.data.importing.cells import MAX_CELLS
from acenode.errors import UserError

MAGIC = b"PAR1"
_BATCH = 10_000  # rows


def is_parquet(file: BinaryIO) -> bool:
    """Return True if a file begins as a Parquet file does."""
    file.seek(0)
    return file.read(len(MAGIC)) == MAGIC


def column_names(file: BinaryIO, name: str) -> list[str]:
    """Return the names of the columns; nested columns and too many rows are errors.

    Equal values take almost no space in Parquet, so the size of the file does not bound the number of rows.
    """
    opened = _opened(file, name)  # says so if pyarrow is missing
    schema, rows, columns = opened.schema_arrow, opened.metadata.num_rows, opened.metadata.num_columns
    if rows * columns > MAX_CELLS:
        raise UserError(f"{name} has {rows:,} rows of {columns} columns: import at most {MAX_CELLS:,} values, for "
                        "example fewer rows or columns")
    import pyarrow.types as kinds

    for field in schema:
        if kinds.is_nested(field.type) or kinds.is_binary(field.type):
            raise UserError(f"column {field.name!r} of {name} has the type {field.type}: leave it out of the file")
    return [str(column) for column in schema.names]


def rows(file: BinaryIO, name: str) -> Iterator[tuple[int, list[str]]]:
    """Iterate over the rows as texts; the first is row 2, as in a CSV file with the names in row 1."""
    number, opened = 1, _opened(file, name)
    import pyarrow

    try:
        for batch in opened.iter_batches(_BATCH):
            columns = [column.to_pylist() for column in batch.columns]
            for values in zip(*columns, strict=True):
                number += 1
                yield number, [_text(value) for value in values]
    except (OSError, ValueError, OverflowError, MemoryError, pyarrow.ArrowException) as error:
        raise _unreadable(name, error) from None


def _opened(file: BinaryIO, name: str) -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise UserError("reading Parquet needs pyarrow: run `pip install pyarrow`, or save the table as CSV") from None
    file.seek(0)
    try:
        return pyarrow.parquet.ParquetFile(file)
    except (OSError, ValueError, MemoryError, pyarrow.ArrowException) as error:
        raise _unreadable(name, error) from None


def _unreadable(name: str, error: BaseException) -> UserError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return UserError(f"{name} cannot be read as Parquet ({reason}): write it again")


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bool):
        return str(int(value))
    return str(value).strip()
