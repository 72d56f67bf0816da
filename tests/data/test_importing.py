"""Tables of one's own: what columns mean, values, windows and parts, files that cannot be imported, and stored sets."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from importing_tables import csv, labelled, long, table, wide

from acenode.cli import main
from acenode.data.importing import observations
from acenode.data.importing import table as table_module
from acenode.data.importing.build import ImportedTable, ImportRequest, import_table, read_series
from acenode.data.importing.cells import TimeReader, fitting_unit, guess_form
from acenode.data.importing.columns import (
    Columns,
    checked_columns,
    corrected_columns,
    find_column,
    guess_columns,
    split_unit,
)
from acenode.data.importing.store import ImportedSets, plain_times, summarise, summary_text
from acenode.data.importing.table import TableFile
from acenode.data.named_set import PARTS, NamedSet
from acenode.errors import UserError

WIDE, LONG, LABELLED = wide(), long(), labelled()


def changed(text: str, row: int, column: int, cell: str) -> bytes:
    """Replace a cell; the first row is row 1 and has the names."""
    lines = [line.split(",") for line in text.splitlines()]
    lines[row - 1][column - 1] = cell
    return csv(lines).encode()


class Bad(NamedTuple):
    """A file, and words that its sentence must have."""

    name: str
    content: bytes
    words: tuple[str, ...]
    options: tuple[str, ...] = ()


def only(text: str, rows: int) -> bytes:
    return "".join(text.splitlines(keepends=True)[:rows + 1]).encode()


BAD = [
    # not a table of text
    Bad("empty", b"", ("is empty",)),
    Bad("blank", b"  \n\n \n", ("is blank",)),
    Bad("zip", b"PK\x03\x04\x14\0", ("zip archive", "unpack")),
    Bad("old-excel", b"\xd0\xcf\x11\xe0\xa1\xb1", ("Excel", "CSV")),
    Bad("json", b'[{"time": 1, "a": 2}]', ("JSON", "CSV")),
    Bad("utf-16", WIDE.encode("utf-16"), ("UTF-16", "UTF-8")),
    Bad("latin-1", WIDE.encode() + "2024-12-01,ü,1\n".encode("latin-1"), ("line 242", "UTF-8")),
    Bad("nul-bytes", WIDE.encode()[:2000] + b"\0" + WIDE.encode()[2000:],
        (f"line {WIDE[:2000].count(chr(10)) + 1} of", "NUL byte")),
    Bad("broken-parquet", b"PAR1" + bytes(40), ("Parquet",)),
    # the shape of the table
    Bad("names-only", b"time,a,b\n", ("no rows",)),
    Bad("one-column", b"time\n1\n2\n", ("one column only", "commas")),
    Bad("no-names", "\n".join(WIDE.splitlines()[1:]).replace("2024-01-01 00:00", "0").encode(),
        ("row 1", "names of the columns")),
    Bad("same-names", changed(WIDE, 1, 3, "wind (m/s)"), ("row 1: columns 2 and 3", "wind (m/s)", "rename")),
    Bad("ragged-short", WIDE.encode() + b"2024-12-01 00:00,5\n", ("row 242", "2 cells", "3 columns")),
    Bad("open-quote", changed(WIDE, 12, 3, '"7'), ("row 12", "quotation mark")),
    Bad("name-is-formula", changed(WIDE, 1, 2, "=cmd|'/c calc'!A1"), ("row 1", "column 2", "formula")),
    # times
    Bad("no-time", csv([("a", "b"), *((i % 7, i % 5) for i in range(200))]).encode(), ("time", "--time")),
    Bad("bad-date", changed(WIDE, 100, 1, "2024-02-30 10:00"), ("row 100", "'time'", "2024-02-30", "not a date")),
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
def test_a_bad_file_gets_a_sentence_and_leaves_nothing(bad: Bad, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file = tmp_path / "mine.csv"
    file.write_bytes(bad.content)
    assert main(["data", "import", str(file), "--name", "mine", *bad.options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    for word in bad.words:
        assert word in line
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["mine.csv"]


def test_missing_files_folders_and_large_tables_are_refused(tmp_path: Path) -> None:
    with open(tmp_path / "large.csv", "wb") as handle:
        handle.truncate(table_module.MAX_BYTES + 1)  # a hole: it takes no space
    for name, words in (("large.csv", "large.csv has 200 MB: import at most 200 MB"), ("", "is a folder"),
                        ("none.csv", "cannot read .*none.csv")):
        with pytest.raises(UserError, match=words):
            TableFile(tmp_path / name)
    with pytest.raises(UserError, match="1001 columns"):
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
        made(WIDE)


def test_errors_of_pyarrow_get_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow, source = pytest.importorskip("pyarrow"), table(parquet(5))

    def fail(*_: object, **__: object) -> None:
        raise pyarrow.ArrowNotImplementedError("no such encoding\nin C++")

    monkeypatch.setattr("pyarrow.parquet.ParquetFile.iter_batches", fail)
    with pytest.raises(UserError, match=r"cannot be read as Parquet \(no such encoding\): write it again"):
        list(source.rows())


DAYS = [f"2024-01-{i + 1:02d}" for i in range(30)]


@pytest.mark.parametrize(("text", "columns"), [
    (wide(), Columns("time", ("wind (m/s)", "power (kW)"))),
    (labelled(), Columns("day", ("a", "b"), "id", "label")),
    (long(), Columns("hour", (), "patient", None, "variable", "value")),
    # one column of numbers and one of repeated texts can only be long
    (csv([("day", "where", "rain"), *((day, place, i * k) for i, day in enumerate(DAYS) for k, place in
                                      enumerate(("north", "south")))]),
     Columns("day", (), None, None, "where", "rain")),
    # an index without a name is the time if there is no other
    (csv([("", "a", "b"), *((i, i % 3, -i) for i in range(30))]), Columns("column 1", ("a", "b"))),
    (csv([("", "hour", "a", "b"), *((i, i * 2, i % 3, -i) for i in range(30))]), Columns("hour", ("a", "b"))),
    # a few wrong cells do not change the guess: the error would be about the wrong thing
    (csv([("date", "a", "b"), *((day, "oops" if i == 4 else i, -i) for i, day in enumerate(DAYS))]),
     Columns("date", ("a", "b"))),
    # constant and blank columns are left out
    (csv([("t", "a", "b", "site", "c"), *((i, i, -i, 7, None) for i in range(30))]), Columns("t", ("a", "b")))])
def test_columns_are_guessed(text: str, columns: Columns) -> None:
    assert guess_columns(table(text).head()) == columns


def test_units_stand_in_brackets_and_columns_are_found_without_unit_and_case() -> None:
    assert [split_unit(name) for name in ("speed (km/h)", "T [°C]", "plain", "(odd)")] == [
        ("speed", "km/h"), ("T", "°C"), ("plain", ""), ("(odd)", "")]
    names = ("Time", "wind (m/s)", "Wind gust")
    assert [find_column(names, n) for n in ("time", "WIND", "Wind gust")] == ["Time", "wind (m/s)", "Wind gust"]
    with pytest.raises(UserError, match="no column 'wnd'.*Time, wind"):
        find_column(names, "wnd")


def test_corrections_replace_guesses() -> None:
    head = table(labelled()).head()
    assert corrected_columns(head, label="none") == Columns("day", ("a", "b"), "id")
    assert corrected_columns(head, id="none", label="none", time="a") == Columns("a", ("b",))
    assert corrected_columns(head, label="a") == Columns("day", ("b",), "id", "a")
    assert corrected_columns(head, variables=["day", "a"], time="b").variables == ("day", "a")
    long_head = table(long()).head()
    assert corrected_columns(long_head, variables=["pulse"]) == Columns(
        "hour", ("pulse",), "patient", None, "variable", "value")
    assert corrected_columns(head, long=("label", "a")).value == "a"

    with pytest.raises(UserError, match="'time' is chosen as time and as id"):
        checked_columns(Columns("time", ("wind", "power"), "time"), table(wide()).head())


def test_a_table_is_read_from_a_path_or_a_file_with_any_separator_and_byte_order_mark(tmp_path) -> None:
    (tmp_path / "a.csv").write_text(long())
    rows = list(TableFile(tmp_path / "a.csv").rows())
    assert rows[0] == (2, ["p0", "0", "pulse", "60.0"])
    for separator in ",;\t|":
        found = table("\ufeff" + long().replace(",", separator))
        assert (found.columns, list(found.rows())) == (("patient", "hour", "variable", "value"), rows)


def test_text_in_a_short_column_of_numbers_is_named() -> None:
    head = table(csv([("time", "a", "b"), (0, "x", 1), (1, 2, 3), (2, 4, 5)])).head()
    with pytest.raises(UserError, match=r"only 'b' was chosen or found.* Row 2, column 'a': 'x' is not a number"):
        checked_columns(guess_columns(head), head)


def made(text: str | bytes, name: str = "mine", **request: Any) -> ImportedTable:
    return import_table(table(text), ImportRequest(name, **request))


def spans(found: NamedSet) -> list[tuple[float, float]]:
    """Return the first and the last time for training, validation and test."""
    parts = [[found.series[i].t for i in found.parts[part]] for part in PARTS]
    return [(min(t[0] for t in part), max(t[-1] for t in part)) for part in parts]


def test_one_long_series_becomes_windows_in_the_order_of_time() -> None:
    found = made(wide(480), window=12, stride=6).set
    assert (found.variables, found.units, found.time_unit, found.time_origin) == (
        ("wind", "power"), ("m/s", "kW"), "hours", "2024-01-01")
    assert (found.task, found.given) == ("forecast", 6)
    assert all(len(record.t) == 12 for record in found.series)
    assert found.ids[1] == "2024-01-01 06:00"
    train, validation, test = spans(found)
    assert train[1] < validation[0] < validation[1] < test[0]
    assert (train[0], test[1]) == (0, 479)  # the last row is used


def test_there_are_neither_too_few_nor_too_many_windows() -> None:
    few, many = (made(csv([("t", "a", "b"), *((i, i % 7, i % 5) for i in range(n))])).set for n in (150, 60_000))
    assert 80 < len(few) < 150  # a window begins at every row
    assert 4000 < len(many) <= 5000


def test_blanks_are_gaps_and_values_keep_their_units() -> None:
    found = made(wide(480), window=12, stride=12).set
    first = found.series[0]
    assert first.m[:, 0].all()
    assert first.m[:, 1].tolist() == [i % 7 != 0 for i in range(12)]
    assert first.x[6, 0] == pytest.approx(5 + 3 * np.sin(1), abs=1e-4)
    summary = summarise(found)
    assert summary.variables[1].gaps == pytest.approx(1 / 7, abs=0.01)
    assert summary.variables[0].high == pytest.approx(8, abs=0.01)
    assert summary_text(summary, found.time_unit).endswith("of about 12 times in 11 hours, 2 variables, 7% gaps")
    assert plain_times(found, found.series[1])[:2] == ["2024-01-01 12:00", "2024-01-01 13:00"]


def test_many_series_are_split_by_series_and_the_order_of_rows_does_not_matter() -> None:
    found = made(long()).set
    assert (len(found), found.ids[:2], found.variables, found.time_unit) == (24, ("p0", "p1"), ("pulse", "pressure"),
                                                                            "hours")
    assert found.series[0].m.tolist() == [[True, i % 3 != 0] for i in range(8)]
    assert sorted(np.concatenate(list(found.parts.values())).tolist()) == list(range(24))
    assert {part: len(index) for part, index in found.parts.items()} == {"train": 15, "validation": 4, "test": 5}
    assert found.given == 3.5
    head, first, *lines = long().splitlines()
    other = made("\n".join([head, first, *sorted(lines, key=lambda line: line[::-1])])).set
    by_id = dict(zip(other.ids, other.series, strict=True))
    order = [found.variables.index(name) for name in other.variables]
    assert all(np.array_equal(r.x[:, order], by_id[id].x) for id, r in zip(found.ids, found.series, strict=True))


def test_labels_are_split_in_proportion() -> None:
    found = made(LABELLED).set
    assert (found.task, found.given, found.classes) == ("classify", 0, ("ill", "well"))
    assert found.labels is not None
    assert found.labels[:3].tolist() == [1, 0, 1]
    for index in found.parts.values():
        assert abs(found.labels[index].mean() - 0.5) < 0.2
    assert summarise(found).classes == {"ill": 12, "well": 12}
    assert made(labelled(), task="fill").set.labels is None
    with pytest.raises(UserError, match="--label"):
        made(long(), task="classify")


def test_columns_that_are_not_used_are_named() -> None:
    lines = [("id", "hour", "a", "b", "state", "empty")]
    lines += [(s, i, s + i, i - s / 10, "worn" if s % 2 else "ok", None) for s in range(24) for i in range(5)]
    assert made(csv(lines)).ignored == ("state", "empty")
    assert made(csv(lines), columns=Columns("hour", ("a", "b"), "id", "state")).ignored == ("empty",)
    assert made(long()).ignored == ()
    assert made(wide(480)).ignored == ()


def test_few_long_series_are_cut_at_the_same_time() -> None:
    rows = [(place, i, np.sin(i + k), np.cos(i * k)) for k, place in enumerate("abc") for i in range(100)]
    found = made(csv([("station", "hour", "u", "v"), *rows]), window=10).set
    train, validation, test = spans(found)
    assert train[1] < validation[0] < validation[1] < test[0]
    assert found.ids[0] == "a 0"
    assert len(set(found.ids)) == len(found.ids)


def test_windows_of_many_series_stay_in_the_part_of_their_series() -> None:
    found = made(long(times=20), window=5).set
    owners = [{found.ids[i].split()[0] for i in index} for index in found.parts.values()]
    assert sum(map(len, owners)) == len(set.union(*owners)) == 24


def test_short_series_and_unforecastable_ones_are_left_out_and_counted() -> None:
    text = long() + "lone,0,pulse,60\n" + "early,0,pulse,61\nearly,1,pulse,62\n"
    found = made(text, given=3.0)
    assert len(found.set) == 24
    assert found.notes == ("1 series with fewer than two times were left out",
                           "1 series without values before or after the forecast's start were left out")
    assert "left out" in found.set.note


def test_a_window_that_is_cut_by_a_gap_keeps_a_name_of_its_own() -> None:
    rows = [(i if i < 100 else i + 50, i % 7, i % 5) for i in range(200)]
    found = made(csv([("t", "a", "b"), *rows]), window=20, stride=4).set
    assert len(set(found.ids)) == len(found.ids) >= 20


def test_parquet_reads_as_csv_does() -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    buffer = io.BytesIO()
    frame = pandas.read_csv(io.StringIO(wide(480)))
    frame["time"] = pandas.to_datetime(frame["time"])
    frame.to_parquet(buffer, index=False)
    one, other = made(wide(480)).set, made(buffer.getvalue()).set
    assert (one.ids, one.variables, one.time_origin) == (other.ids, other.variables, other.time_origin)
    assert all(np.array_equal(a.x, b.x) and np.array_equal(a.m, b.m)
               for a, b in zip(one.series, other.series, strict=True))


def test_another_file_is_read_like_the_first() -> None:
    found = made(wide(480), window=12)
    later = "\n".join(["time,power (kW),wind (m/s)", "2024-01-02 00:00,,5", "2024-01-02 01:30,7,6"])
    observations, (piece,) = read_series(table(later), found.columns, found.set.time_unit, found.set.time_origin)
    assert observations.variables == ("wind", "power")
    assert piece.t.tolist() == [24.0, 25.5]
    assert np.array_equal(piece.x, [[5, np.nan], [6, 7]], equal_nan=True)
    with pytest.raises(UserError, match="has numbers, but the set has dates"):
        read_series(table("time,wind (m/s),power (kW)\n1,2,3\n2,3,4\n"), found.columns, "hours", "2024-01-01")


# Times --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("form", "text", "iso"), [
    ("date", "2024-03-01", "2024-03-01T00:00:00"), ("date", "2024-03-01T05:06:07", "2024-03-01T05:06:07"),
    ("date", "2024-03-01 05:00+02:00", "2024-03-01T03:00:00"), ("date", "1 Mar 2024", "2024-03-01T00:00:00"),
    ("date", "2024/03/01 05:06", "2024-03-01T05:06:00"), ("day-first", "1/3/2024", "2024-03-01T00:00:00"),
    ("month-first", "3/1/24 5:06 PM", "2024-03-01T17:06:00"), ("day-first", "01.03.2024 00:30", "2024-03-01T00:30:00"),
])
def test_dates(form: Any, text: str, iso: str) -> None:
    assert np.datetime64("1970-01-01T00:00:00") + np.timedelta64(int(TimeReader(form)(text)), "s") == np.datetime64(iso)


def test_forms_are_guessed() -> None:
    for texts, form in ((["1", "2.5", "-3e2"], "number"), (["2024-01-31", "2024-02-01 10:00"], "date"),
                        (["1/2/2024", "13/2/2024"], "day-first"), (["1/2/2024", "1/13/2024"], "month-first"),
                        (["1/2/2024", "soon"], None)):
        assert guess_form(texts) == form
    with pytest.raises(UserError, match="day or the month first"):
        guess_form(["1/2/2024", "3/2/2024"])


def test_units_fit_the_step_or_are_in_the_name_of_the_column() -> None:
    steps = {1: "seconds", 300: "minutes", 3600: "hours", 86400: "days", 604800: "weeks", 2629800: "days",
             31557600: "years"}
    assert {step: fitting_unit(step) for step in steps} == steps
    for name, unit in (("minutes", "minutes"), ("t (h)", "hours"), ("t [frames]", "frames"), ("t", "")):
        text = csv([(name, "a", "b"), *((i, i % 7, i % 5) for i in range(200))])
        assert made(text, columns=Columns(name, ("a", "b"))).set.time_unit == unit
        assert made(text, columns=Columns(name, ("a", "b")), time_unit="d").set.time_unit == "days"


@pytest.fixture
def sets(tmp_path: Path) -> ImportedSets:
    return ImportedSets(tmp_path / "data", lambda: frozenset({"mnist"}))


def test_a_set_is_written_and_read_and_its_file_kept_only_if_asked(sets: ImportedSets) -> None:
    (sets.folder / ".wells.1234.part").mkdir(parents=True)  # left by a killed process
    wells = made(LABELLED, "wells")
    assert sets.write(wells) == sets.folder / "wells"
    assert os.listdir(sets.folder) == ["wells"]
    assert sorted(os.listdir(sets.folder / "wells")) == ["about.json", "import.json", "set.npz"]
    loaded = sets.load("wells")
    assert np.array_equal(loaded.series[3].x, wells.set.series[3].x)
    assert sets.details("wells").columns == wells.columns
    assert [stored.name for stored in sets.list()] == ["wells"]
    assert (sets.write(made(LABELLED, "other"), table(LABELLED)) / "original.csv").read_text() == LABELLED


@pytest.mark.parametrize("fails", ["save", "rename"])
def test_nothing_is_half_imported(sets: ImportedSets, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*((NamedSet, "save", full) if fails == "save" else (Path, "rename", full)))
    with pytest.raises(UserError, match="no space left"):
        sets.write(made(LABELLED, "wells"))
    assert list(sets.folder.glob("*")) == []
    assert sets.names() == []


def test_names_that_cannot_be_used_renaming_and_deleting(sets: ImportedSets) -> None:
    sets.write(made(LABELLED, "wells"))
    for name, words in (("mnist", "experiment"), ("wells", "already"), ("../up", "cannot name")):
        with pytest.raises(UserError, match=words):
            sets.check_free(name)
    sets.rename("wells", "springs")
    assert (sets.load("springs").name, sets.load("springs").title) == ("springs", "springs")
    with pytest.raises(UserError, match="no imported set 'wells': choose one of springs"):
        sets.rename("wells", "x")
    sets.delete("springs")
    assert os.listdir(sets.folder) == []
    with pytest.raises(UserError, match="no imported set"):
        sets.delete("springs")


def test_a_damaged_set_is_listed_with_the_reason_and_can_be_deleted(sets: ImportedSets) -> None:
    (sets.write(made(LABELLED, "wells")) / "set.npz").write_bytes(b"junk")
    (stored,) = sets.list()
    assert (stored.set, "import it again" in stored.error) == (None, True)
    sets.delete("wells")
    assert sets.names() == []


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file = tmp_path / "park.csv"
    file.write_text(wide(480))
    assert main(["data", "import", str(file), "--preview", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["series"] > 20
    assert not (tmp_path / "data").exists()
    assert main(["data", "import", str(file), "--name", "park", "--window", "12", "--given", "8", "--task", "forecast",
                 "--time", "time", "--id", "none", "--variables", "wind", "power"]) == 0
    out = capsys.readouterr().out
    assert "the first 8 hours of each are given" in out
    assert "acenode train park --method ace" in out
    assert main(["data", "list", "--json"]) == 0
    listed = {state["name"]: state for state in json.loads(capsys.readouterr().out)}
    assert listed["park"]["state"] == "ready"
    assert "mnist" in listed
    assert main(["data", "check", "park"]) == 0
    assert main(["data", "rename", "park", "farm"]) == 0
    assert main(["data", "delete", "farm"]) == 2
    assert "--yes" in capsys.readouterr().err
    assert main(["data", "delete", "farm", "--yes"]) == 0
    assert not list((tmp_path / "data" / "imported").iterdir())


def test_a_preview_names_the_columns_that_it_ignores_and_checks_the_name(tmp_path: Path,
                                                                         capsys: pytest.CaptureFixture) -> None:
    file = tmp_path / "ward.csv"
    file.write_text(labelled().replace("label", "state"))
    assert main(["data", "import", str(file), "--preview"]) == 0
    assert "ignored: state (--label NAME makes one the label)" in capsys.readouterr().out.splitlines()
    assert main(["data", "import", str(file), "--preview", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ignored"] == ["state"]
    assert main(["data", "import", str(file), "--preview", "--label", "state"]) == 0
    out = capsys.readouterr().out
    assert "label: state" in out
    assert "ignored" not in out
    assert main(["data", "import", str(file), "--preview", "--name", "mnist"]) == 2
    assert "'mnist' is the name of an experiment" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
