"""Human Activity from synthetic rows, valid and malformed, and from the real file if it is present."""

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from acenode.data import activity
from acenode.data.activity import ACTIVITY, CLASS_OF, CLASSES, FILE, NAMES, ROWS, read_rows, windows
from acenode.data.source import RemoteFile
from acenode.errors import UserError

LEFT, RIGHT, CHEST, BELT = "010-000-024-033", "010-000-030-096", "020-000-033-111", "020-000-032-221"
FIRST = 633790226051280000


def row(bins: float, tag=LEFT, xyz=(1, 2, 3), label="walking", name="A01") -> str:
    x, y, z = xyz
    return f"{name},{tag},{FIRST + round(bins * 100_000)},27.05.2009 14:03:25:127,{x},{y},{z},{label}\r\n"


def written(folder: Path, rows: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_bytes("".join(rows).encode())
    return folder / FILE


def recording(count: int, name="A01", label="walking", gap=3) -> list[str]:
    """Make rows at time points `gap` bins apart, each a reading of the next tag."""
    tags = (LEFT, RIGHT, CHEST, BELT)
    return [row(gap * i, tags[i % 4], (i, i + 0.5, -i), label, name) for i in range(count)]


def read(tmp_path, rows):
    skipped: Counter[str] = Counter()
    found, count = read_rows(written(tmp_path, rows), skipped)
    return found, count, skipped


def test_tags_and_activities_are_those_of_the_published_protocol():
    assert tuple(f"{tag} {a}" for tag in ("left ankle", "right ankle", "chest", "belt") for a in "xyz") == NAMES
    assert len(CLASSES) == 7
    assert len(CLASS_OF) == 11
    one_each = ("walking", "falling", "lying down", "sitting", "standing up from sitting on the ground", "on all fours",
                "sitting on the ground")
    assert [CLASS_OF[a] for a in one_each] == list(range(7))


def test_readings_in_one_bin_are_averaged_and_the_lower_label_is_kept(tmp_path):
    found, count, skipped = read(tmp_path, [
        row(0, LEFT, (1, 2, 3), "sitting"),
        row(0.4, LEFT, (3, 4, 5), "falling"),  # rounds to bin 0
        row(0.45, BELT, (9, 9, 9), "lying"),
        row(0.6, CHEST, (7, 7, 7), "on all fours"),  # rounds to bin 1
        row(5, RIGHT, (6, 6, 6), "lying down"),
    ])
    bins, label, x, m = activity.time_points(found)
    assert (bins.tolist(), label.tolist(), count, dict(+skipped)) == ([0, 1, 5], [1, 5, 2], 5, {})
    assert x[0].tolist() == [2, 3, 4, 0, 0, 0, 0, 0, 0, 9, 9, 9]
    np.testing.assert_array_equal(m.reshape(3, 4, 3).all(axis=2), [[1, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0]])


def test_windows_overlap_by_half_and_start_at_time_0(tmp_path):
    found, _, skipped = read(tmp_path, [*recording(101), *recording(50, "B04", "lying"), *recording(51, "C05")])
    data = windows(found, skipped)
    assert data.fault() is None
    assert data.ids.tolist() == ["A01/0000", "A01/0025", "A01/0050", "C05/0000"]  # while offset + 50 < length
    assert data.group.tolist() == [1, 1, 1, 5]
    assert np.diff(data.offsets).tolist() == [50] * 4
    np.testing.assert_allclose(data.t.reshape(4, 50), np.tile(np.arange(50) * 0.03, (4, 1)), rtol=1e-5)
    assert (data.unit, data.horizon) == ("s", pytest.approx(1.47))
    point = 50 + 7  # the second window's eighth point is the recording's 33rd
    assert data.x[point].tolist() == [32, 32.5, -32] + [0] * 9  # raw, not normalised
    assert data.label.dtype == np.int64
    assert data.pointwise
    assert +skipped == {activity.SHORT: 1}


def test_100_points_make_two_windows(tmp_path):
    found, _, skipped = read(tmp_path, recording(100))
    assert windows(found, skipped).ids.tolist() == ["A01/0000", "A01/0025"]


@pytest.mark.parametrize(("line", "reason"), [
    ("A01,nothing\n", activity.MALFORMED),
    (row(2).replace(",1,2,3,", ",1,2,"), activity.MALFORMED),
    (row(2, xyz=("x", 2, 3)), activity.MALFORMED),
    (row(2, xyz=("nan", 2, 3)), activity.MALFORMED),
    (row(2, name="Ada"), activity.MALFORMED),
    (row(2).replace(str(FIRST)[:6], "today"), activity.MALFORMED),
    (row(2, tag="020-000-000-000"), activity.UNKNOWN),
    (row(2, label="dancing"), activity.UNKNOWN),
    (row(0), activity.OUT_OF_ORDER),
    (row(-5), activity.OUT_OF_ORDER),
])
def test_a_malformed_row_is_skipped_and_counted(tmp_path, line, reason):
    found, count, skipped = read(tmp_path, [row(0), row(1), line, "\n", row(3)])
    assert found.bin.tolist() == [0, 1, 3]
    assert count == 4
    assert +skipped == {reason: 1}


@pytest.mark.parametrize("body", [b"", b"<html>404</html>\n", bytes(range(256)) * 20])
def test_another_file_is_refused(tmp_path, body):
    (tmp_path / FILE).write_bytes(body)
    with pytest.raises(UserError, match=f"is not the official {FILE}: delete it"):
        read_rows(tmp_path / FILE, Counter())


def test_a_file_without_a_complete_window_is_refused(tmp_path):
    written(tmp_path / "activity", recording(20))
    with pytest.raises(UserError, match="no recording has more than 50 time points"):
        ACTIVITY.prepare(tmp_path)


def test_a_part_of_the_file_is_prepared_and_reported_as_a_part(tmp_path, files_under):
    written(tmp_path / "activity", [*recording(120), *recording(80, "A02"), row(1, name="A02")])
    ACTIVITY.prepare(tmp_path)
    state = ACTIVITY.check(tmp_path)
    assert state.state == "ready"
    assert state.detail == ("5 windows of 2 of 25 recordings, a part: results are not comparable with the paper; "
                            "skipped: 1 times out of order")
    assert len(ACTIVITY.load(tmp_path)) == 5
    assert files_under(tmp_path) == ["activity.npz", f"activity/{FILE}"]


def test_a_download_must_have_all_its_rows(tmp_path, mirror, files_under):
    body = "".join(recording(120)).encode()
    file = RemoteFile(FILE, (mirror.serve(FILE, body),))
    with pytest.raises(UserError, match=r"incomplete \(120 of 164,860 rows\): try again later"):
        replace(ACTIVITY, files=(file,)).prepare(tmp_path)
    assert not (tmp_path / "activity.npz").exists()
    replace(ACTIVITY, files=(file,), rows=120).prepare(tmp_path)
    assert files_under(tmp_path) == ["activity.npz"]


@pytest.mark.realdata
def test_the_real_file(tmp_path):
    path = Path(os.environ.get("ACENODE_DATA") or "nowhere") / "activity" / FILE
    if not path.is_file():
        pytest.skip(f"ACENODE_DATA has no activity/{FILE}")
    skipped: Counter[str] = Counter()
    found, count = read_rows(path, skipped)
    data = windows(found, skipped)
    assert data.fault() is None
    assert data.m.sum(axis=1).mean() == pytest.approx(3, abs=0.01)  # nearly every row is its own time point
    assert set(data.group) == {1, 2, 3, 4, 5}
    assert sum(skipped.values()) < 10
    if count == ROWS:
        assert (found.recording.nunique(), len(data)) == (25, 6554)
