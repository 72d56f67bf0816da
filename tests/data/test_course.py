"""How series step from halt to halt."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sporadic_problems import STEP, batch, series, several

from acenode.data.course import course_of
from acenode.data.points import pad


def arrivals(course: object, halts: object) -> list[tuple[int, int, float]]:
    """(series, point, time) of every halt, the time being the sum of the steps up to its row."""
    dt = course.dt.double().cumsum(0)  # type: ignore[attr-defined]
    return sorted((int(b), int(p), float(dt[r].expand(len_of(course), 1)[b, 0])) for r, b, p in zip(
        halts.row, halts.series, halts.point, strict=True))  # type: ignore[attr-defined]


def len_of(course: object) -> int:
    return max(course.dt.shape[1], int(course.jumps.series.max()) + 1)  # type: ignore[attr-defined]


@pytest.mark.parametrize("step", [STEP, 0.3, 1.7])
def test_every_point_is_met_at_its_own_time(step: float) -> None:
    of = several()
    course = course_of(pad(of), None, step)
    expected = sorted((b, i, float(t)) for b, r in enumerate(of) for i, t in enumerate(r.t))
    found = arrivals(course, course.jumps)
    assert [f[:2] for f in found] == [e[:2] for e in expected]
    assert np.allclose([f[2] for f in found], [e[2] for e in expected], atol=1e-5)


def test_a_series_jumps_once_in_a_row_however_close_its_points_are() -> None:
    of = [series(np.array([1.0, 1.00005, 2.0]), 0), series(np.array([0.0, 1.0]), 1)]
    course = course_of(pad(of), pad([series(np.array([1.00002]), 2), series(np.array([0.0]), 3)]), 0.1)
    rows = [course.jumps.row[course.jumps.series == b].tolist() for b in (0, 1)]
    assert [len(set(r)) for r in rows] == [3, 2]
    assert rows[1][0] == int(course.reads.row[course.reads.series == 1]) == 0
    assert float(course.dt[:, 0].sum()) == pytest.approx(2.0, abs=1e-4)


def test_no_step_is_longer_than_asked_and_none_follows_the_last_halt() -> None:
    of = several()
    course = course_of(pad(of), None, 0.3)
    assert course.dt.shape[1] == len(of)
    assert float(course.dt.max()) <= 0.3 * (1 + 1e-3)
    ends = torch.tensor([float(r.t[-1]) for r in of])
    assert torch.allclose(course.dt.sum((0, 2)), ends, atol=1e-5)


def test_on_the_grid_a_row_is_a_moment_of_all() -> None:
    course = course_of(pad(several()), None, STEP)
    assert course.dt.shape[1:] == (1, 1)
    assert course.dt[0] == 0
    assert (course.dt[1:] == STEP).all()
    t = pad(several()).t[course.jumps.series, course.jumps.point]
    assert torch.allclose(course.jumps.row * STEP, t)


def test_halts_are_in_the_order_of_their_rows() -> None:
    course = course_of(pad(several()), None, STEP)
    assert course.jumps.offsets[-1] == len(course.jumps.row) == 12
    for i in range(course.rows):
        here = slice(*course.jumps.offsets[i:i + 2])
        assert (course.jumps.row[here] == i).all()


def test_targets_are_read_and_not_jumped_at() -> None:
    of = batch([series(np.array([0.0, 1.0]))], [series(np.array([1.5, 3.0]))])
    course = course_of(of.seen, of.target, STEP)
    assert course.jumps.row.tolist() == [0, 4]
    assert course.reads.row.tolist() == [6, 12]
    assert course.reads.point.tolist() == [0, 1]


def test_what_is_padded_changes_no_row() -> None:
    of = several()
    alone, beside = course_of(pad(of[2:]), None, STEP), course_of(pad(of), None, STEP)
    mine = beside.jumps.series == 2
    assert beside.jumps.row[mine].tolist() == alone.jumps.row.tolist()


def test_small_departures_from_the_grid_do_not_add_up() -> None:
    t = 0.0986 * np.arange(1, 151)
    course = course_of(pad([series(t)]), None, 0.1)
    assert float(course.dt.sum()) == pytest.approx(14.79, abs=1e-3)


def test_a_time_in_single_precision_is_still_on_the_grid() -> None:
    """2,000 tenths: 199.9 is no multiple of 0.1 in any binary format."""
    t = (np.array([0.1, 0.7, 73.3, 199.9]) * np.float32(1)).astype(np.float32)
    course = course_of(pad([series(t)]), None, 0.1)
    assert course.jumps.row.tolist() == [1, 7, 733, 1999]
    assert course.dt.shape[1] == 1
