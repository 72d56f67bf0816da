"""Euler steps through a record: the protocol's rule, both directions, and the union grid."""

from __future__ import annotations

import numpy as np
import pytest

from acenode.data.points import FIRST_GAP, TimeSeries, euler_steps, stack_steps, step_counts, union_euler_steps


def test_a_gap_is_divided_by_the_protocols_rule() -> None:
    """Below Δ one step; else max(2, ⌊gap/Δ⌋) points, which is one step fewer."""
    gaps = np.array([0.5, 0.99, 1.0, 2.0, 2.5, 3.0, 7.9])
    assert step_counts(gaps, 1.0).tolist() == [1, 1, 1, 1, 1, 2, 6]
    assert step_counts(-gaps, 1.0).tolist() == step_counts(gaps, 1.0).tolist()
    assert step_counts(gaps, 0.0).tolist() == [1] * 7  # a record of one time


def test_backward_steps_read_every_point_and_end_at_the_first() -> None:
    t = np.array([0.0, 0.01, 0.5, 1.0])
    steps = euler_steps(t, backwards=True)
    assert steps.point[steps.point >= 0].tolist() == [3, 2, 1, 0]
    assert steps.dt[0] == pytest.approx(-FIRST_GAP)
    assert steps.dt.sum() == pytest.approx(-1 - FIRST_GAP, abs=1e-6)
    assert (steps.dt < 0).all()
    assert len(steps.dt) == 1 + 24 + 23 + 1  # gaps of 25 and 24.5 times Δ = 0.02, then half of it


def test_forward_steps_read_the_points_in_order() -> None:
    steps = euler_steps(np.array([0.1, 0.2, 0.4]), backwards=False)
    assert steps.point[steps.point >= 0].tolist() == [0, 1, 2]
    assert steps.dt.sum() == pytest.approx(0.3 + FIRST_GAP, abs=1e-6)


def test_shorter_records_start_with_empty_steps() -> None:
    times = [np.array([0.0, 0.5]), np.array([0.0]), np.zeros(0)]
    steps = stack_steps([euler_steps(t, backwards=True) for t in times])
    assert steps.point[-1].tolist() == [0, 0, -1]
    assert (steps.dt[:-1, 1] == 0).all()
    assert (steps.dt[:, 2] == 0).all()
    assert (steps.point[:, 2] == -1).all()


def test_on_the_union_grid_all_step_through_all_times_and_read_their_own_points() -> None:
    a, b = union_euler_steps([np.array([0.0, 0.5]), np.array([0.25, 0.5, 1.0])], backwards=True)
    assert np.allclose(a.dt, b.dt)
    assert a.point[a.point >= 0].tolist() == [1, 0]
    assert b.point[b.point >= 0].tolist() == [2, 1, 0]


def test_records_with_equal_times_have_equal_steps_on_either_grid() -> None:
    t = np.array([0.0, 0.1, 0.35, 0.9])
    own, (on_union, _) = euler_steps(t, backwards=True), union_euler_steps([t, t], backwards=True)
    assert np.array_equal(own.dt, on_union.dt)
    assert np.array_equal(own.point, on_union.point)


def test_the_steps_of_a_record_are_computed_once_per_direction() -> None:
    t = np.array([0.0, 0.1, 0.35, 0.9])
    record = TimeSeries(t, np.zeros((4, 1)), np.ones((4, 1)))
    for backwards in (True, False):
        steps = record.steps(backwards)
        assert np.array_equal(steps.dt, euler_steps(t, backwards=backwards).dt)
        assert record.steps(backwards) is steps
