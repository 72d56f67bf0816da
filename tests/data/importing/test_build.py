"""Sets from good tables: values, times, windows and parts."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from importing_tables import csv, labelled, long, table, wide

from acenode.data.importing.build import ImportedTable, ImportRequest, import_table, read_series
from acenode.data.importing.cells import TimeReader, fitting_unit, guess_form
from acenode.data.importing.columns import Columns
from acenode.data.importing.preview import plain_times, summarise, summary_text
from acenode.errors import UserError


def made(text: str | bytes, **request: Any) -> ImportedTable:
    return import_table(table(text), ImportRequest("mine", **request))


def test_one_long_series_becomes_windows_in_the_order_of_time() -> None:
    found = made(wide(480), window=12, stride=6).set
    assert (found.variables, found.units, found.time_unit, found.time_origin) == (
        ("wind", "power"), ("m/s", "kW"), "hours", "2024-01-01")
    assert found.task == "forecast"
    assert found.given == 6
    assert all(len(record.t) == 12 for record in found.series)
    assert found.ids[1] == "2024-01-01 06:00"
    ends = {part: max(found.series[i].t[-1] for i in index) for part, index in found.parts.items()}
    starts = {part: min(found.series[i].t[0] for i in index) for part, index in found.parts.items()}
    assert ends["train"] < starts["validation"]
    assert ends["validation"] < starts["test"]
    assert starts["train"] == 0
    assert ends["test"] == 479  # the last row is used


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


def test_many_series_are_split_by_series() -> None:
    found = made(long()).set
    assert (len(found), found.ids[:2], found.variables, found.time_unit) == (24, ("p0", "p1"), ("pulse", "pressure"),
                                                                            "hours")
    assert found.series[0].m.tolist() == [[True, i % 3 != 0] for i in range(8)]
    assert sorted(np.concatenate(list(found.parts.values())).tolist()) == list(range(24))
    assert {part: len(index) for part, index in found.parts.items()} == {"train": 15, "validation": 4, "test": 5}
    assert found.given == 3.5


def test_the_order_of_rows_does_not_matter() -> None:
    lines = long().splitlines()
    mixed = [lines[0], lines[1], *sorted(lines[2:], key=lambda line: hash(line[::-1]))]
    one, other = made(long()).set, made("\n".join(mixed)).set
    by_id = dict(zip(other.ids, other.series, strict=True))
    for id, record in zip(one.ids, one.series, strict=True):
        order = [one.variables.index(name) for name in other.variables]
        assert np.array_equal(record.x[:, order], by_id[id].x)


def test_labels_are_split_in_proportion() -> None:
    found = made(labelled()).set
    assert (found.task, found.given, found.classes) == ("classify", 0, ("ill", "well"))
    assert found.labels is not None
    assert found.labels[:3].tolist() == [1, 0, 1]
    for index in found.parts.values():
        assert abs(found.labels[index].mean() - 0.5) < 0.2
    assert summarise(found).classes == {"ill": 12, "well": 12}


def test_a_label_is_not_needed_for_other_tasks() -> None:
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
    ends = {part: max(found.series[i].t[-1] for i in index) for part, index in found.parts.items()}
    starts = {part: min(found.series[i].t[0] for i in index) for part, index in found.parts.items()}
    assert ends["train"] < starts["validation"] < ends["validation"] < starts["test"]
    assert found.ids[0] == "a 0"
    assert len(set(found.ids)) == len(found.ids)


def test_windows_of_many_series_stay_in_the_part_of_their_series() -> None:
    found = made(long(times=20), window=5).set
    owners = [{found.ids[i].split()[0] for i in index} for index in found.parts.values()]
    assert not owners[0] & owners[1]
    assert not owners[0] & owners[2]
    assert not owners[1] & owners[2]


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
    assert guess_form(["1", "2.5", "-3e2"]) == "number"
    assert guess_form(["2024-01-31", "2024-02-01 10:00"]) == "date"
    assert guess_form(["1/2/2024", "13/2/2024"]) == "day-first"
    assert guess_form(["1/2/2024", "1/13/2024"]) == "month-first"
    assert guess_form(["1/2/2024", "soon"]) is None
    with pytest.raises(UserError, match="day or the month first"):
        guess_form(["1/2/2024", "3/2/2024"])


@pytest.mark.parametrize(("step", "unit"), [(1, "seconds"), (300, "minutes"), (3600, "hours"), (86400, "days"),
                                            (604800, "weeks"), (2629800, "days"), (31557600, "years")])
def test_units_fit_the_step(step: float, unit: str) -> None:
    assert fitting_unit(step) == unit


def test_the_unit_of_numbers_is_in_the_name_of_the_column() -> None:
    for name, unit in (("minutes", "minutes"), ("t (h)", "hours"), ("t [frames]", "frames"), ("t", "")):
        text = csv([(name, "a", "b"), *((i, i % 7, i % 5) for i in range(200))])
        assert made(text, columns=Columns(name, ("a", "b"))).set.time_unit == unit
        assert made(text, columns=Columns(name, ("a", "b")), time_unit="d").set.time_unit == "days"
