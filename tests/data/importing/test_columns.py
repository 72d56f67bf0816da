"""What columns mean: guessed from names and first rows, and corrected."""

from __future__ import annotations

import pytest
from importing_tables import csv, labelled, long, table, wide

from acenode.data.importing.columns import (
    Columns,
    checked_columns,
    corrected_columns,
    find_column,
    guess_columns,
    split_unit,
)
from acenode.data.importing.table import TableFile
from acenode.errors import UserError


def guessed(text: str) -> Columns:
    return guess_columns(table(text).head())


def test_a_wide_table() -> None:
    assert guessed(wide()) == Columns("time", ("wind (m/s)", "power (kW)"))


def test_a_wide_table_with_ids_and_labels() -> None:
    assert guessed(labelled()) == Columns("day", ("a", "b"), "id", "label")


def test_a_long_table() -> None:
    assert guessed(long()) == Columns("hour", (), "patient", None, "variable", "value")


def test_a_long_table_with_other_names() -> None:
    """One column of numbers and one of repeated texts can only be long."""
    rows = [(f"2024-01-{i + 1:02d}", place, i * k) for i in range(20) for k, place in enumerate(("north", "south"))]
    assert guessed(csv([("day", "where", "rain"), *rows])) == Columns("day", (), None, None, "where", "rain")


def test_an_index_without_a_name_is_the_time_if_there_is_no_other() -> None:
    assert guessed(csv([("", "a", "b"), *((i, i % 3, -i) for i in range(30))])) == Columns("column 1", ("a", "b"))
    found = guessed(csv([("", "hour", "a", "b"), *((i, i * 2, i % 3, -i) for i in range(30))]))
    assert (found.time, found.variables) == ("hour", ("a", "b"))


def test_a_few_wrong_cells_do_not_change_the_guess() -> None:
    """Otherwise the error would be about the wrong thing."""
    rows = [(f"2024-01-{i + 1:02d}", "oops" if i == 4 else i, -i) for i in range(30)]
    assert guessed(csv([("date", "a", "b"), *rows])) == Columns("date", ("a", "b"))


def test_constant_and_blank_columns_are_left_out() -> None:
    rows = [("t", "a", "b", "site", "c"), *((i, i, -i, 7, None) for i in range(30))]
    assert guessed(csv(rows)).variables == ("a", "b")


@pytest.mark.parametrize(("name", "split"), [
    ("speed (km/h)", ("speed", "km/h")), ("T [°C]", ("T", "°C")), ("plain", ("plain", "")), ("(odd)", ("(odd)", ""))])
def test_units_stand_in_brackets(name: str, split: tuple[str, str]) -> None:
    assert split_unit(name) == split


def test_columns_are_found_without_unit_and_case() -> None:
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


def test_one_column_has_one_role() -> None:
    head = table(wide()).head()
    with pytest.raises(UserError, match="'time' is chosen as time and as id"):
        checked_columns(Columns("time", ("wind", "power"), "time"), head)


def test_semicolons_tabs_and_a_byte_order_mark() -> None:
    for separator in ";\t|":
        assert table("\ufeff" + wide().replace(",", separator)).columns == ("time", "wind (m/s)", "power (kW)")


def test_a_table_is_read_from_a_path_or_a_file(tmp_path) -> None:
    (tmp_path / "a.csv").write_text(long())
    assert list(TableFile(tmp_path / "a.csv").rows()) == list(table(long()).rows())
    assert next(table(long()).rows()) == (2, ["p0", "0", "pulse", "60.0"])


def test_text_in_a_short_column_of_numbers_is_named() -> None:
    head = table(csv([("time", "a", "b"), (0, "x", 1), (1, 2, 3), (2, 4, 5)])).head()
    with pytest.raises(UserError, match=r"only 'b' was chosen or found.* Row 2, column 'a': 'x' is not a number"):
        checked_columns(guess_columns(head), head)
