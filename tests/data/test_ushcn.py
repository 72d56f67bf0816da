"""USHCN from synthetic rows, valid and malformed, and from the real file if it is present."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from acenode.data import ushcn
from acenode.data.source import RemoteFile
from acenode.data.splits import forecast_parts, two_sided
from acenode.data.ushcn import CUT, FILE, HEADER, USHCN, VARIABLES, read
from acenode.errors import UserError


def row(number, time, **observed) -> str:
    values = ",".join(str(observed.get(name, 0)) for name in VARIABLES)
    return f"{number},{time},{values},{','.join(str(int(name in observed)) for name in VARIABLES)}\n"


SOUND = [row(2, 0, PRCP=0.5), row(2, 160.1, TMAX=-1.25, TMIN=3), row(0, 0.1, SNOW=1), row(0, 199.9, SNWD=2)]


def written(folder: Path, rows: list[str], head: str = HEADER + "\n") -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_bytes((head + "".join(rows)).encode())
    return {FILE: folder / FILE}


def test_rows_are_grouped_into_series_by_number(tmp_path):
    reading = read(written(tmp_path, SOUND))
    a = reading.arrays
    assert a.fault() is None
    assert (a.ids.tolist(), a.offsets.tolist()) == (["0", "2"], [0, 2, 4])
    np.testing.assert_array_equal(a.t, np.array([0.1, 199.9, 0, 160.1], np.float32))
    assert a.names == ("PRCP", "SNOW", "SNWD", "TMAX", "TMIN")
    assert a.x.tolist() == [[0, 1, 0, 0, 0], [0, 0, 2, 0, 0], [0.5, 0, 0, 0, 0], [0, 0, 0, -1.25, 3]]
    np.testing.assert_array_equal(a.m, a.x != 0)
    assert np.isnan(a.label).all()
    assert (a.unit, a.horizon, a.classes, a.pointwise) == ("", 200.0, (), False)
    assert (reading.rows, dict(reading.skipped)) == (4, {})


def test_rows_may_be_in_any_order_and_series_numbers_have_a_point(tmp_path):
    one = read(written(tmp_path / "one", SOUND)).arrays
    pointed = [line.replace("2,", "2.0,", 1).replace(",1,", ",1.0,") for line in reversed(SOUND)]
    two = read(written(tmp_path / "two", pointed)).arrays
    for name in ("ids", "offsets", "t", "x", "m"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_series_are_sorted_by_number_not_as_text(tmp_path):
    rows = [row(number, time, TMAX=1) for number in (10, 9, 100) for time in (1, 151)]
    assert read(written(tmp_path, rows)).arrays.ids.tolist() == ["9", "10", "100"]


def test_unobserved_values_are_0_whatever_the_file_has(tmp_path):
    line = row(5, 3, TMAX=2).replace("5,3,0,0,", "5,3,7,,")
    arrays = read(written(tmp_path, [*SOUND, line])).arrays
    assert arrays.x[-1].tolist() == [0, 0, 0, 2, 0]
    assert arrays.fault() is None


@pytest.mark.parametrize(("line", "reason"), [
    ("2,3\n", ushcn.MALFORMED),
    (row(2, 3, PRCP=1).replace("\n", ",1\n"), ushcn.MALFORMED),
    (row(2, 3, PRCP=1).replace("\n", ",\n"), ushcn.MALFORMED),
    (row(2, 3, PRCP=1).replace("\n", ",1" * 9 + "\n"), ushcn.MALFORMED),
    (row('"2"', 3, PRCP=1), ushcn.MALFORMED),
    (row("two", 3, PRCP=1), ushcn.MALFORMED),
    (row(1.5, 3, PRCP=1), ushcn.MALFORMED),
    (row(-1, 3, PRCP=1), ushcn.MALFORMED),
    (row("inf", 3, PRCP=1), ushcn.MALFORMED),
    (row("nan", 3, PRCP=1), ushcn.MALFORMED),
    (row(2, "noon", PRCP=1), ushcn.MALFORMED),
    (row(2, "nan", PRCP=1), ushcn.MALFORMED),
    (row(2, 3, PRCP=1).replace(",1,0,0,0,0\n", ",2,0,0,0,0\n"), ushcn.MALFORMED),
    (row(2, 3, PRCP="wet"), ushcn.NOT_A_NUMBER),
    (row(2, 3, PRCP=""), ushcn.NOT_A_NUMBER),
    (row(2, 3, PRCP="nan"), ushcn.NOT_A_NUMBER),
    (row(2, 3, PRCP="inf"), ushcn.NOT_A_NUMBER),
    (row(2, 3, PRCP="1e39"), ushcn.NOT_A_NUMBER),
    (row(2, -0.1, PRCP=1), ushcn.OUTSIDE),
    (row(2, 200.1, PRCP=1), ushcn.OUTSIDE),
    (row(2, 3), ushcn.EMPTY),
    (row(2, 160.1, PRCP=1), ushcn.DUPLICATE),
    (row(2, 160.10000000000002, PRCP=1), ushcn.DUPLICATE),  # the same time after a subtraction
])
def test_a_malformed_row_is_skipped_and_counted(tmp_path, line, reason):
    reading = read(written(tmp_path, [*SOUND, line, "\n"]))
    assert reading.skipped == {reason: 1}
    assert reading.rows == 5
    np.testing.assert_array_equal(reading.arrays.x, read(written(tmp_path, SOUND)).arrays.x)  # the first at a time


@pytest.mark.parametrize("head", ["", "<html>404</html>\n", HEADER.replace("Time", "Day") + "\n", "\x00\xff\n"])
def test_another_file_is_refused(tmp_path, head):
    with pytest.raises(UserError, match="does not begin with ID,Time,Value_0.*: delete it and get it again"):
        read(written(tmp_path, SOUND, head))


def test_a_file_without_rows_is_refused(tmp_path):
    with pytest.raises(UserError, match="no rows that can be used"):
        read(written(tmp_path, ["0,1\n"]))


def test_a_file_without_a_series_to_forecast_is_refused(tmp_path):
    with pytest.raises(UserError, match="no series with rows on both sides of time 150"):
        read(written(tmp_path, [row(0, 150, TMAX=1), row(1, 150.1, TMAX=1)]))


def test_the_state_lists_skipped_rows_and_series_for_training_only(tmp_path, files_under):
    written(tmp_path / "ushcn", [*SOUND, row(7, 150, TMAX=1), row(8, 151, TMAX=1), "8,1\n", row(8, 151, TMIN=1)])
    assert "downloaded, but not prepared yet" in USHCN.check(tmp_path).detail
    USHCN.prepare(tmp_path)
    assert USHCN.check(tmp_path).detail == (
        "4 series, 7 observations at 6 times; 2 used for training only, without rows before or after time 150; "
        "skipped: 1 malformed rows, 1 rows at the same time as an earlier one")
    data = USHCN.load(tmp_path)
    assert two_sided(data, CUT).tolist() == [True, True, False, False]
    assert np.isnan(data.label).all()
    assert files_under(tmp_path) == ["ushcn.npz", f"ushcn/{FILE}"]


def test_a_download_is_checked(tmp_path, mirror):
    body = (HEADER + "\n" + "".join(SOUND)).encode()
    file = RemoteFile(FILE, (mirror.serve(FILE, body),), sha256=hashlib.sha256(body).hexdigest())
    replace(USHCN, files=(file,)).prepare(tmp_path / "whole")
    assert len(USHCN.load(tmp_path / "whole")) == 2
    with pytest.raises(UserError):
        replace(USHCN, files=(replace(file, sha256="0" * 64),)).prepare(tmp_path / "torn")


@pytest.mark.realdata
def test_the_real_file(tmp_path):
    path = Path(os.environ.get("ACENODE_DATA") or "nowhere") / "ushcn" / FILE
    if not path.is_file():
        pytest.skip(f"ACENODE_DATA has no ushcn/{FILE}")
    reading = read({FILE: path})
    data = reading.arrays
    assert data.fault() is None
    assert not sum(reading.skipped.values())
    assert abs(len(data) - ushcn.SERIES) < 20
    assert 300 < np.diff(data.offsets).mean() < 330
    assert len(np.unique(data.t)) == 1491  # every day from 1996-12-02 to 2000-12-31
    assert np.abs(data.t * 10 - np.rint(data.t * 10)).max() < 1e-3
    assert 1.05 < data.m.sum(axis=1).mean() < 1.15
    shares = data.m.mean(axis=0)
    assert shares.min() > 0.2
    order = [data.names.index(name) for name in ("TMAX", "TMIN")]
    both = data.m[:, order].all(axis=1)
    assert np.corrcoef(data.x[both][:, order].T)[0, 1] > 0.85  # the names are on the right columns
    fold = forecast_parts(data, 0, CUT)
    if len(data) == ushcn.SERIES:
        assert data.ids[fold.test[:6]].tolist() == ["154", "561", "284", "466", "950", "259"]


@pytest.mark.parametrize(("count", "complete", "note"), [
    (ushcn.SERIES, True, ""),
    (1_107, True, "rebuilt from the station files: 1,107 stations, the published file has 1,114"),
    (ushcn.REBUILT_SERIES - 1, False, ""),
])
def test_a_set_that_was_built_again_is_complete(tmp_path, count, complete, note):
    rows = [row(i, t, PRCP=1) for i in range(count) for t in (0, 160)]
    arrays = read(written(tmp_path, rows)).arrays
    assert ushcn.is_complete(arrays) is complete
    assert ushcn.rebuilt_note(arrays) == note
    assert ushcn.describe(arrays).endswith(note)
