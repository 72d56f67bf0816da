"""Human Activity from synthetic rows, valid and malformed."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from acenode.data import activity
from acenode.data.activity import ACTIVITY, CLASS_OF, FILE, NAMES, read_rows, time_points, windows
from acenode.data.source import RemoteFile
from acenode.errors import UserError

LEFT, RIGHT, CHEST, BELT = "010-000-024-033", "010-000-030-096", "020-000-033-111", "020-000-032-221"
FIRST = 633790226051280000


def row(bins: float, tag=LEFT, xyz=(1, 2, 3), label="walking", name="A01") -> str:
    x, y, z = xyz
    return f"{name},{tag},{FIRST + round(bins * 100_000)},27.05.2009 14:03:25:127,{x},{y},{z},{label}\r\n"


def recording(count: int, name="A01", label="walking") -> list[str]:
    """Make rows at time points 3 bins apart, each a reading of the next tag."""
    return [row(3 * i, (LEFT, RIGHT, CHEST, BELT)[i % 4], (i, i + 0.5, -i), label, name) for i in range(count)]


def read(tmp_path, rows):
    skipped: Counter[str] = Counter()
    (tmp_path / FILE).write_bytes("".join(rows).encode())
    return *read_rows(tmp_path / FILE, skipped), skipped


def test_readings_in_one_bin_are_averaged_and_the_lower_label_is_kept(tmp_path):
    assert NAMES[:4] == ("left ankle x", "left ankle y", "left ankle z", "right ankle x")
    assert [CLASS_OF[a] for a in ("walking", "falling", "lying down", "sitting", "standing up from lying",
                                  "on all fours", "sitting on the ground")] == list(range(7))
    found, count, skipped = read(tmp_path, [
        row(0, LEFT, (1, 2, 3), "sitting"),
        row(0.4, LEFT, (3, 4, 5), "falling"),  # rounds to bin 0
        row(0.45, BELT, (9, 9, 9), "lying"),
        row(0.6, CHEST, (7, 7, 7), "on all fours"),  # rounds to bin 1
        row(5, RIGHT, (6, 6, 6), "lying down"),
    ])
    bins, label, x, m = time_points(found)
    assert (bins.tolist(), label.tolist(), count, dict(+skipped)) == ([0, 1, 5], [1, 5, 2], 5, {})
    assert x[0].tolist() == [2, 3, 4, 0, 0, 0, 0, 0, 0, 9, 9, 9]
    np.testing.assert_array_equal(m.reshape(3, 4, 3).all(axis=2), [[1, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0]])


def test_windows_overlap_by_half_and_start_at_time_0(tmp_path):
    found, _, skipped = read(tmp_path, [*recording(101), *recording(50, "B04", "lying"), *recording(51, "C05")])
    data = windows(found, skipped)
    assert data.fault() is None
    assert data.ids.tolist() == ["A01/0000", "A01/0025", "A01/0050", "C05/0000"]  # while offset + 50 < length
    assert (data.group.tolist(), np.diff(data.offsets).tolist()) == ([1, 1, 1, 5], [50] * 4)
    np.testing.assert_allclose(data.t.reshape(4, 50), np.tile(np.arange(50) * 0.03, (4, 1)), rtol=1e-5)
    assert (data.unit, data.horizon, data.pointwise) == ("s", pytest.approx(1.47), True)
    assert data.x[50 + 7].tolist() == [32, 32.5, -32] + [0] * 9  # of the recording's 33rd point, not normalised
    assert +skipped == {activity.SHORT: 1}


@pytest.mark.parametrize(("line", "reason"), [
    ("A01,nothing\n", activity.MALFORMED), (row(2).replace(",1,2,3,", ",1,2,"), activity.MALFORMED),
    (row(2, xyz=("x", 2, 3)), activity.MALFORMED), (row(2, xyz=("nan", 2, 3)), activity.MALFORMED),
    (row(2, name="Ada"), activity.MALFORMED), (row(2).replace(str(FIRST)[:6], "today"), activity.MALFORMED),
    (row(2, tag="020-000-000-000"), activity.UNKNOWN), (row(2, label="dancing"), activity.UNKNOWN),
    (row(0), activity.OUT_OF_ORDER), (row(-5), activity.OUT_OF_ORDER)])
def test_a_malformed_row_is_skipped_and_counted(tmp_path, line, reason):
    found, count, skipped = read(tmp_path, [row(0), row(1), line, "\n", row(3)])
    assert (found.bin.tolist(), count, +skipped) == ([0, 1, 3], 4, {reason: 1})


def test_another_file_is_refused(tmp_path):
    (tmp_path / "activity").mkdir()
    for body, words in ((bytes(range(256)) * 20, f"is not the official {FILE}: delete it"),
                        ("".join(recording(20)).encode(), "no recording has more than 50 time points")):
        (tmp_path / "activity" / FILE).write_bytes(body)
        with pytest.raises(UserError, match=words):
            ACTIVITY.prepare(tmp_path)


def test_a_part_of_the_file_is_reported_and_a_download_must_have_all_rows(tmp_path, mirror, files_under):
    (tmp_path / "activity").mkdir()
    (tmp_path / "activity" / FILE).write_text("".join([*recording(120), *recording(80, "A02"), row(1, name="A02")]))
    ACTIVITY.prepare(tmp_path)
    assert ACTIVITY.check(tmp_path).detail == (
        "5 windows of 2 of 25 recordings, a part: results are not comparable with the paper; "
        "skipped: 1 times out of order")
    assert len(ACTIVITY.load(tmp_path)) == 5
    assert files_under(tmp_path) == ["activity.npz", f"activity/{FILE}"]
    source = replace(ACTIVITY, files=(RemoteFile(FILE, (mirror.serve(FILE, "".join(recording(120)).encode()),)),))
    with pytest.raises(UserError, match=r"incomplete \(120 of 164,860 rows\): try again later"):
        source.prepare(tmp_path / "new")
    replace(source, rows=120).prepare(tmp_path / "new")
    assert files_under(tmp_path / "new") == ["activity.npz"]
