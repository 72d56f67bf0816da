"""Steps through irregular series: the protocol's Euler steps, the step schedule of a forecast, and their precision."""

import numpy as np
import pytest
import torch
from sporadic_batches import STEP, batch, series, several

from acenode.data.points import (
    FIRST_GAP,
    TimeSeries,
    euler_steps,
    pad,
    recurrent_schedule,
    stack_steps,
    step_counts,
    union_euler_steps,
)
from acenode.data.schedule import make_schedule


def test_a_gap_is_divided_by_the_protocols_rule():
    """Below Δ one step; else max(2, ⌊gap/Δ⌋) points, which is one step fewer."""
    gaps = np.array([0.5, 0.99, 1.0, 2.0, 2.5, 3.0, 7.9])
    assert step_counts(gaps, 1.0).tolist() == step_counts(-gaps, 1.0).tolist() == [1, 1, 1, 1, 1, 2, 6]
    assert step_counts(gaps, 0.0).tolist() == [1] * 7  # a record of one time


def test_steps_read_every_point_in_either_direction():
    steps = euler_steps(np.array([0.0, 0.01, 0.5, 1.0]), backwards=True)
    assert steps.point[steps.point >= 0].tolist() == [3, 2, 1, 0]
    assert (steps.dt[0], steps.dt.sum()) == pytest.approx((-FIRST_GAP, -1 - FIRST_GAP), abs=1e-6)
    assert (steps.dt < 0).all()
    assert len(steps.dt) == 1 + 24 + 23 + 1  # gaps of 25 and 24.5 times Δ = 0.02, then half of it
    steps = euler_steps(np.array([0.1, 0.2, 0.4]), backwards=False)
    assert steps.point[steps.point >= 0].tolist() == [0, 1, 2]
    assert steps.dt.sum() == pytest.approx(0.3 + FIRST_GAP, abs=1e-6)


def test_shorter_records_start_with_empty_steps():
    times = [np.array([0.0, 0.5]), np.array([0.0]), np.zeros(0)]
    steps = stack_steps([euler_steps(t, backwards=True) for t in times])
    assert steps.point[-1].tolist() == [0, 0, -1]
    assert not steps.dt[:-1, 1].any()
    assert not steps.dt[:, 2].any()
    assert (steps.point[:, 2] == -1).all()


def test_on_the_union_grid_all_step_through_all_times_and_read_their_own_points():
    a, b = union_euler_steps([np.array([0.0, 0.5]), np.array([0.25, 0.5, 1.0])], backwards=True)
    assert np.allclose(a.dt, b.dt)
    assert a.point[a.point >= 0].tolist() == [1, 0]
    assert b.point[b.point >= 0].tolist() == [2, 1, 0]
    t = np.array([0.0, 0.1, 0.35, 0.9])  # of records with equal times, the steps are the same on either grid
    record = TimeSeries(t, np.zeros((4, 1)), np.ones((4, 1)))
    for backwards in (True, False):
        own, (on_union, _) = record.steps[backwards], union_euler_steps([t, t], backwards=backwards)
        assert np.array_equal(own.dt, on_union.dt)
        assert np.array_equal(own.point, on_union.point)


@pytest.mark.parametrize("step", [STEP, 0.3, 1.7])
def test_every_point_is_reached_at_its_own_time(step):
    of = several()
    schedule = make_schedule(pad(of), None, step)
    time = schedule.dt.double().cumsum(0).expand(-1, len(of), 1)[..., 0]  # the sum of the steps up to a row
    points = schedule.observations
    found = {(int(b), int(p)): float(time[r, b])
             for r, b, p in zip(points.row, points.series, points.point, strict=True)}
    assert found == pytest.approx({(b, i): float(t) for b, r in enumerate(of) for i, t in enumerate(r.t)}, abs=1e-5)
    assert points.offsets[-1] == len(points.row) == len(found)
    for i in range(schedule.rows):
        assert (points.row[slice(*points.offsets[i:i + 2])] == i).all()
    if step == 0.3:  # the times are no multiples of it
        assert float(schedule.dt.max()) <= 0.3 * (1 + 1e-3)
        assert torch.allclose(schedule.dt.sum((0, 2)), torch.tensor([float(r.t[-1]) for r in of]), atol=1e-5)
    if step == STEP:  # a row is one time for all series
        assert schedule.dt.flatten().tolist() == [0, *[pytest.approx(STEP)] * (schedule.rows - 1)]


def test_a_series_has_at_most_one_observation_per_row_however_close_they_are():
    of = [series(np.array([1.0, 1.00005, 2.0]), 0), series(np.array([0.0, 1.0]), 1)]
    schedule = make_schedule(pad(of), pad([series(np.array([1.00002]), 2), series(np.array([0.0]), 3)]), 0.1)
    rows = [schedule.observations.row[schedule.observations.series == b].tolist() for b in (0, 1)]
    assert [len(set(r)) for r in rows] == [3, 2]
    assert rows[1][0] == int(schedule.reads.row[schedule.reads.series == 1]) == 0
    assert float(schedule.dt[:, 0].sum()) == pytest.approx(2.0, abs=1e-4)


def test_targets_are_read_points_and_padding_changes_no_row():
    of = batch([series(np.array([0.0, 1.0]))], [series(np.array([1.5, 3.0]))])
    schedule = make_schedule(of.seen, of.target, STEP)
    assert schedule.observations.row.tolist() == [0, 4]
    assert (schedule.reads.row.tolist(), schedule.reads.point.tolist()) == ([6, 12], [0, 1])
    alone, in_batch = (make_schedule(pad(part), None, STEP).observations for part in (several()[2:], several()))
    assert in_batch.row[in_batch.series == 2].tolist() == alone.row.tolist()


def test_deviations_from_the_grid_in_single_precision_do_not_accumulate():
    schedule = make_schedule(pad([series(0.0986 * np.arange(1, 151))]), None, 0.1)
    assert float(schedule.dt.sum()) == pytest.approx(14.79, abs=1e-3)
    t = (np.array([0.1, 0.7, 73.3, 199.9]) * np.float32(1)).astype(np.float32)  # no multiples in any binary format
    schedule = make_schedule(pad([series(t)]), None, 0.1)
    assert schedule.observations.row.tolist() == [1, 7, 733, 1999]
    assert schedule.dt.shape[1] == 1


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_padding_and_steps_keep_the_precision(kind):
    T = 1.7e4 + np.array([0.0, 0.1, 0.25])  # in single precision, these times are rounded to 0.002
    x = np.array([[0.1], [0.2], [1 / 3]], kind)
    made = [TimeSeries(T[:n].astype(kind), x[:n], np.ones_like(x[:n])) for n in (3, 2)]
    padded, dtype = pad(made), torch.float64 if kind is np.float64 else torch.float32
    assert padded.t.dtype == padded.x.dtype == padded.m.dtype == dtype
    for union in (False, True):
        dt = recurrent_schedule(made, padded, backwards=False, union=union).dt
        assert dt.dtype == dtype
        assert kind is np.float32 or float(dt[:, 0].sum()) == pytest.approx(0.25 + 0.01, abs=1e-10)
    for step in (0.05, 0.03):
        dt = make_schedule(pad([TimeSeries((s.t - 1.7e4).astype(kind), s.x, s.m) for s in made]), None, step).dt
        assert dt.dtype == dtype
        assert kind is np.float32 or float(dt.expand(-1, 2, -1)[:, 0].sum()) == pytest.approx(0.25, abs=1e-12)
