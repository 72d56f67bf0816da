"""Files that cannot be imported: each gets one sentence that says where and what to do, and leaves nothing behind."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from importing_tables import csv, labelled, long, table, wide

from acenode.cli import main
from acenode.data.importing import observations
from acenode.data.importing import table as table_module
from acenode.data.importing.build import ImportRequest, import_table
from acenode.errors import UserError

WIDE, LONG, LABELLED = wide(), long(), labelled()


def changed(text: str, row: int, column: int, cell: str) -> bytes:
    """Replace a cell; the first row is row 1 and has the names."""
    lines = [line.split(",") for line in text.splitlines()]
    lines[row - 1][column - 1] = cell
    return csv(lines).encode()


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("mine.csv", WIDE)
    return file.getvalue()


@dataclass(frozen=True)
class Bad:
    """A file, and words that its sentence must have."""

    name: str
    content: bytes
    words: tuple[str, ...]
    options: tuple[str, ...] = field(default=())


def only(text: str, rows: int) -> bytes:
    return "".join(text.splitlines(keepends=True)[:rows + 1]).encode()


BAD = [
    # not a table of text
    Bad("empty", b"", ("is empty",)),
    Bad("blank", b"  \n\n \n", ("is blank",)),
    Bad("zip", zipped(), ("zip archive", "unpack")),
    Bad("gzip", b"\x1f\x8b\x08\0\0", ("compressed", "unpack")),
    Bad("old-excel", b"\xd0\xcf\x11\xe0\xa1\xb1", ("Excel", "CSV")),
    Bad("pdf", b"%PDF-1.7 1 0 obj", ("PDF", "CSV")),
    Bad("json", b'[{"time": 1, "a": 2}]', ("JSON", "CSV")),
    Bad("html", b"<html><table></table></html>", ("web page", "CSV")),
    Bad("utf-16", WIDE.encode("utf-16"), ("UTF-16", "UTF-8")),
    Bad("latin-1", changed(WIDE, 1, 2, "wind").replace(b"power", "Kühlung".encode("latin-1")), ("line 1", "UTF-8")),
    Bad("latin-1-late", WIDE.encode() + "2024-12-01,ü,1\n".encode("latin-1"), ("line 242", "UTF-8")),
    Bad("nul-bytes", WIDE.encode()[:2000] + b"\0" + WIDE.encode()[2000:],
        (f"line {WIDE[:2000].count(chr(10)) + 1} of", "NUL byte")),
    Bad("junk", bytes(range(1, 256)) * 20, ("line", "UTF-8")),
    Bad("broken-parquet", b"PAR1" + bytes(40), ("Parquet",)),
    # the shape of the table
    Bad("names-only", b"time,a,b\n", ("no rows",)),
    Bad("one-column", b"time\n1\n2\n", ("one column only", "commas")),
    Bad("no-names", "\n".join(WIDE.splitlines()[1:]).replace("2024-01-01 00:00", "0").encode(),
        ("row 1", "names of the columns")),
    Bad("same-names", changed(WIDE, 1, 3, "wind (m/s)"), ("row 1: columns 2 and 3", "wind (m/s)", "rename")),
    Bad("ragged-short", WIDE.encode() + b"2024-12-01 00:00,5\n", ("row 242", "2 cells", "3 columns")),
    Bad("ragged-long", changed(WIDE, 9, 3, "1,5"), ("row 9", "4 cells")),
    Bad("open-quote", changed(WIDE, 12, 3, '"7'), ("row 12", "quotation mark")),
    Bad("name-is-formula", changed(WIDE, 1, 2, "=cmd|'/c calc'!A1"), ("row 1", "column 2", "formula")),
    # times
    Bad("no-time", csv([("a", "b"), *((i % 7, i % 5) for i in range(200))]).encode(), ("time", "--time")),
    Bad("bad-date", changed(WIDE, 100, 1, "2024-02-30 10:00"), ("row 100", "'time'", "2024-02-30", "not a date")),
    Bad("text-date", changed(WIDE, 51, 1, "yesterday"), ("row 51", "'time'", "not a date")),
    Bad("no-date", changed(WIDE, 30, 1, ""), ("row 30", "'time'", "missing")),
    Bad("unclear-dates", csv([("date", "a", "b"), *((f"{i % 12 + 1}/{i // 12 + 1}/2024", i, -i) for i in range(120))]
                             ).encode(), ("day or the month first", "--dates")),
    Bad("time-zones", changed(WIDE, 77, 1, "2024-01-04 03:00+02:00"), ("row 77", "time zone")),
    Bad("same-time", changed(WIDE, 8, 1, "2024-01-01 04:00"), ("row 8", "'time'", "row 6", "same time")),
    Bad("same-value-twice", (LONG + "p3,2,pulse,61\n").encode(), ("row", "same time and variable")),
    Bad("year-0", WIDE.replace("2024-01-01 00:00", "0001-01-01T00:00+05:00").encode(),
        ("row 2", "'time'", "years 1 to 9999")),
    Bad("infinite-time", changed(LABELLED, 9, 2, "inf"), ("row 9", "'day'", "infinite")),
    # values
    Bad("text-value", changed(WIDE, 61, 2, "broken"), ("row 61", "'wind (m/s)'", "'broken'", "not a number")),
    Bad("decimal-comma", changed(WIDE.replace(",", ";"), 1, 1, WIDE.replace(",", ";").split("\n")[0]).replace(
        b";5.0;", b";5,0;"), ("row 2", "decimal point")),
    Bad("underscore", changed(WIDE, 61, 2, "1_0"), ("row 61", "'1_0'", "not a number")),
    Bad("other-digits", changed(WIDE, 61, 2, "١٢"), ("row 61", "not a number")),
    Bad("infinite", changed(WIDE, 70, 3, "inf"), ("row 70", "'power (kW)'", "infinite")),
    Bad("overflow", changed(WIDE, 70, 3, "1e999"), ("row 70", "infinite")),
    Bad("huge", changed(WIDE, 70, 3, "1e31"), ("row 70", "larger than")),
    Bad("formula", changed(WIDE, 40, 3, "=cmd|'/c calc'!A0"), ("row 40", "'power (kW)'", "formula")),
    Bad("formula-id", changed(LABELLED, 40, 1, "=1+1"), ("row 40", "'id'", "formula")),
    Bad("constant", csv([("time", "a", "b"), *((i, i % 9, 4) for i in range(200))]).encode(),
        ("'b'", "4 everywhere"), ("--variables", "a", "b")),
    Bad("no-values", csv([("time", "a", "b"), *((i, i % 9, None) for i in range(200))]).encode(),
        ("'b'", "no values"), ("--variables", "a", "b")),
    Bad("one-variable", csv([("time", "a"), *((i, i % 9) for i in range(200))]).encode(),
        ("two variables", "only 'a'")),
    # series and labels
    Bad("few-windows", only(WIDE, 20), ("windows", "20 are needed")),
    Bad("few-series", only(LABELLED, 50), ("10 series", "column 'id'", "20 are needed", "--id", "--window"),
        ("--task", "forecast")),
    Bad("no-id", changed(LABELLED, 33, 1, ""), ("row 33", "'id'", "blank")),
    Bad("single-rows", csv([("id", "time", "a", "b"), *((f"s{i}", i, i, -i) for i in range(60))]).encode(),
        ("no series has two times", "--id")),
    Bad("label-changes", changed(LABELLED, 13, 5, "ill"), ("row 13", "'label'", "'ill'", "row 12", "one label")),
    Bad("label-missing", LABELLED.replace("5,0,1.0,-0.5,ill", "5,0,1.0,-0.5,").encode() + b"99,0,1,2,\n99,1,2,3,\n",
        ("row 122", "'label'", "'99'", "no label")),
    Bad("one-class", LABELLED.replace("ill", "well").encode(), ("label 'well'", "two classes")),
    Bad("rare-class", (LABELLED + "x,0,1,2,rare\nx,1,2,3,rare\n").encode(), ("class 'rare'", "1 series")),
    Bad("no-such-column", WIDE.encode(), ("no column 'tmie'", "time"), ("--time", "tmie")),
    Bad("wrong-given", LABELLED.encode(), ("--given", "between"), ("--task", "forecast", "--given", "99")),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_a_bad_file_gets_a_sentence_and_leaves_nothing(bad: Bad, tmp_path: Path, capsys: pytest.CaptureFixture,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path / "data"))
    file = tmp_path / "mine.csv"
    file.write_bytes(bad.content)
    assert main(["data", "import", str(file), "--name", "mine", *bad.options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    for word in bad.words:
        assert word in line
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["mine.csv"]


def test_there_are_forty_bad_files_and_each_is_bad_for_another_reason() -> None:
    assert len({bad.name for bad in BAD}) == len(BAD) >= 40


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "large.csv"
    with open(file, "wb") as handle:
        handle.truncate(table_module.MAX_BYTES + 1)  # a hole: it takes no space
    with pytest.raises(table_module.UserError, match="large.csv has 200 MB: import at most 200 MB"):
        table_module.TableFile(file)


def test_missing_files_and_folders_get_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(table_module.UserError, match="is a folder"):
        table_module.TableFile(tmp_path)
    with pytest.raises(table_module.UserError, match="cannot read .*none.csv"):
        table_module.TableFile(tmp_path / "none.csv")


def test_too_many_columns_are_refused() -> None:
    with pytest.raises(table_module.UserError, match="1001 columns"):
        table(",".join(f"c{i}" for i in range(1001)) + "\n")


def parquet(rows: int) -> bytes:
    pyarrow, file = pytest.importorskip("pyarrow"), io.BytesIO()
    import pyarrow.parquet as parquet_module

    parquet_module.write_table(pyarrow.table({name: np.zeros(rows, np.uint8) for name in ("time", "a", "b")}), file)
    return file.getvalue()


def test_equal_rows_of_parquet_are_counted_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    content = parquet(observations.MAX_CELLS // 3 + 1)
    assert len(content) < 1_000_000
    monkeypatch.setattr("pyarrow.parquet.ParquetFile.iter_batches", lambda *a: pytest.fail("rows were read"))
    with pytest.raises(UserError, match="20,000,001 rows of 3 columns: import at most 60,000,000 values"):
        table(content)


def test_rows_are_counted_while_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observations, "MAX_CELLS", 100)
    with pytest.raises(UserError, match="more than 50 rows: import at most 100 values"):
        import_table(table(WIDE), ImportRequest("mine"))


def test_errors_of_pyarrow_get_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow, content = pytest.importorskip("pyarrow"), parquet(5)

    def fail(*_: object, **__: object) -> None:
        raise pyarrow.ArrowNotImplementedError("no such encoding\nin C++")

    source = table(content)
    monkeypatch.setattr("pyarrow.parquet.ParquetFile.iter_batches", fail)
    with pytest.raises(UserError, match=r"cannot be read as Parquet \(no such encoding\): write it again"):
        list(source.rows())
    monkeypatch.setattr("pyarrow.parquet.ParquetFile.__init__", fail)
    with pytest.raises(UserError, match="no such encoding"):
        table(content)
