"""Read a Parquet file as rows of texts, so that it is checked like a CSV file. It needs pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from typing import Any, BinaryIO

from acenode.errors import UserError

MAGIC = b"PAR1"
_BATCH = 10_000  # rows


def is_parquet(file: BinaryIO) -> bool:
    """Return True if a file begins as a Parquet file does."""
    file.seek(0)
    return file.read(len(MAGIC)) == MAGIC


def column_names(file: BinaryIO, name: str) -> list[str]:
    """Return the names of the columns; nested columns are an error."""
    schema = _opened(file, name).schema_arrow  # says so if pyarrow is missing
    import pyarrow.types as kinds

    for field in schema:
        if kinds.is_nested(field.type) or kinds.is_binary(field.type):
            raise UserError(f"column {field.name!r} of {name} has the type {field.type}: leave it out of the file")
    return [str(column) for column in schema.names]


def rows(file: BinaryIO, name: str) -> Iterator[tuple[int, list[str]]]:
    """Iterate over the rows as texts; the first is row 2, as in a CSV file with the names in row 1."""
    number = 1
    try:
        for batch in _opened(file, name).iter_batches(_BATCH):
            columns = [column.to_pylist() for column in batch.columns]
            for values in zip(*columns, strict=True):
                number += 1
                yield number, [_text(value) for value in values]
    except (OSError, ValueError, MemoryError) as error:
        raise UserError(f"{name} cannot be read as Parquet ({str(error).splitlines()[0]}): write it again") from None


def _opened(file: BinaryIO, name: str) -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise UserError("reading Parquet needs pyarrow: run `pip install pyarrow`, or save the table as CSV") from None
    file.seek(0)
    try:
        return pyarrow.parquet.ParquetFile(file)
    except (OSError, ValueError) as error:
        raise UserError(f"{name} cannot be read as Parquet ({str(error).splitlines()[0]}): write it again") from None


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bool):
        return str(int(value))
    return str(value).strip()
