"""The step schedule: which step leads to which point, and how long the steps are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sporadic_batches import STEP, batch, series, several

from acenode.data.points import pad
from acenode.data.schedule import ScheduledPoints, StepSchedule, make_schedule


def arrivals(schedule: StepSchedule, points: ScheduledPoints) -> list[tuple[int, int, float]]:
    """Return (series, point, time) of every point; the time is the sum of the steps up to its row."""
    dt = schedule.dt.double().cumsum(0)
    return sorted((int(b), int(p), float(dt[r].expand(batch_size(schedule), 1)[b, 0])) for r, b, p in zip(
        points.row, points.series, points.point, strict=True))


def batch_size(schedule: StepSchedule) -> int:
    return max(schedule.dt.shape[1], int(schedule.observations.series.max()) + 1)


@pytest.mark.parametrize("step", [STEP, 0.3, 1.7])
def test_every_point_is_reached_at_its_own_time(step: float) -> None:
    of = several()
    schedule = make_schedule(pad(of), None, step)
    expected = sorted((b, i, float(t)) for b, r in enumerate(of) for i, t in enumerate(r.t))
    found = arrivals(schedule, schedule.observations)
    assert [f[:2] for f in found] == [e[:2] for e in expected]
    assert np.allclose([f[2] for f in found], [e[2] for e in expected], atol=1e-5)


def test_a_series_has_at_most_one_observation_per_row_however_close_they_are() -> None:
    of = [series(np.array([1.0, 1.00005, 2.0]), 0), series(np.array([0.0, 1.0]), 1)]
    schedule = make_schedule(pad(of), pad([series(np.array([1.00002]), 2), series(np.array([0.0]), 3)]), 0.1)
    rows = [schedule.observations.row[schedule.observations.series == b].tolist() for b in (0, 1)]
    assert [len(set(r)) for r in rows] == [3, 2]
    assert rows[1][0] == int(schedule.reads.row[schedule.reads.series == 1]) == 0
    assert float(schedule.dt[:, 0].sum()) == pytest.approx(2.0, abs=1e-4)


def test_no_step_exceeds_the_step_size_and_none_follows_the_last_point() -> None:
    of = several()
    schedule = make_schedule(pad(of), None, 0.3)
    assert schedule.dt.shape[1] == len(of)
    assert float(schedule.dt.max()) <= 0.3 * (1 + 1e-3)
    ends = torch.tensor([float(r.t[-1]) for r in of])
    assert torch.allclose(schedule.dt.sum((0, 2)), ends, atol=1e-5)


def test_on_a_grid_a_row_is_one_time_for_all_series() -> None:
    schedule = make_schedule(pad(several()), None, STEP)
    assert schedule.dt.shape[1:] == (1, 1)
    assert schedule.dt[0] == 0
    assert (schedule.dt[1:] == STEP).all()
    t = pad(several()).t[schedule.observations.series, schedule.observations.point]
    assert torch.allclose(schedule.observations.row * STEP, t)


def test_points_are_sorted_by_row() -> None:
    schedule = make_schedule(pad(several()), None, STEP)
    assert schedule.observations.offsets[-1] == len(schedule.observations.row) == 12
    for i in range(schedule.rows):
        of_row = slice(*schedule.observations.offsets[i:i + 2])
        assert (schedule.observations.row[of_row] == i).all()


def test_targets_are_read_points_and_no_observations() -> None:
    of = batch([series(np.array([0.0, 1.0]))], [series(np.array([1.5, 3.0]))])
    schedule = make_schedule(of.seen, of.target, STEP)
    assert schedule.observations.row.tolist() == [0, 4]
    assert schedule.reads.row.tolist() == [6, 12]
    assert schedule.reads.point.tolist() == [0, 1]


def test_padding_changes_no_row() -> None:
    of = several()
    alone, in_batch = make_schedule(pad(of[2:]), None, STEP), make_schedule(pad(of), None, STEP)
    same = in_batch.observations.series == 2
    assert in_batch.observations.row[same].tolist() == alone.observations.row.tolist()


def test_small_deviations_from_the_grid_do_not_accumulate() -> None:
    t = 0.0986 * np.arange(1, 151)
    schedule = make_schedule(pad([series(t)]), None, 0.1)
    assert float(schedule.dt.sum()) == pytest.approx(14.79, abs=1e-3)


def test_a_time_in_single_precision_is_still_on_the_grid() -> None:
    """2,000 tenths: 199.9 is no multiple of 0.1 in any binary format."""
    t = (np.array([0.1, 0.7, 73.3, 199.9]) * np.float32(1)).astype(np.float32)
    schedule = make_schedule(pad([series(t)]), None, 0.1)
    assert schedule.observations.row.tolist() == [1, 7, 733, 1999]
    assert schedule.dt.shape[1] == 1
