"""How records are walked through: the protocol's Euler steps, both directions, and the union grid."""

from __future__ import annotations

import numpy as np
import pytest

from acenode.data.points import Record
from acenode.data.rows import BEFORE, rows_of, substeps, together, union_rows


def test_a_gap_is_crossed_in_the_protocols_steps() -> None:
    """Below Δ one step; else max(2, ⌊gap/Δ⌋) points, which is one step fewer."""
    gaps = np.array([0.5, 0.99, 1.0, 2.0, 2.5, 3.0, 7.9])
    assert substeps(gaps, 1.0).tolist() == [1, 1, 1, 1, 1, 2, 6]
    assert substeps(-gaps, 1.0).tolist() == substeps(gaps, 1.0).tolist()
    assert substeps(gaps, 0.0).tolist() == [1] * 7  # a record of one time


def test_rows_backwards_visit_every_point_and_end_at_the_first() -> None:
    t = np.array([0.0, 0.01, 0.5, 1.0])
    rows = rows_of(t, backwards=True)
    assert rows.point[rows.point >= 0].tolist() == [3, 2, 1, 0]
    assert rows.dt[0] == pytest.approx(-BEFORE)
    assert rows.dt.sum() == pytest.approx(-1 - BEFORE, abs=1e-6)
    assert (rows.dt < 0).all()
    assert len(rows.dt) == 1 + 24 + 23 + 1  # gaps of 25 and 24.5 times Δ = 0.02, then half of it


def test_rows_forwards_run_with_time() -> None:
    rows = rows_of(np.array([0.1, 0.2, 0.4]), backwards=False)
    assert rows.point[rows.point >= 0].tolist() == [0, 1, 2]
    assert rows.dt.sum() == pytest.approx(0.3 + BEFORE, abs=1e-6)


def test_shorter_records_begin_later() -> None:
    rows = together([rows_of(np.array([0.0, 0.5]), backwards=True), rows_of(np.array([0.0]), backwards=True),
                     rows_of(np.zeros(0), backwards=True)])
    assert rows.point[-1].tolist() == [0, 0, -1]
    assert (rows.dt[:-1, 1] == 0).all()
    assert (rows.dt[:, 2] == 0).all()
    assert (rows.point[:, 2] == -1).all()


def test_on_the_union_grid_all_halt_at_all_times_and_read_their_own() -> None:
    a, b = union_rows([np.array([0.0, 0.5]), np.array([0.25, 0.5, 1.0])], backwards=True)
    assert np.allclose(a.dt, b.dt)
    assert a.point[a.point >= 0].tolist() == [1, 0]
    assert b.point[b.point >= 0].tolist() == [2, 1, 0]


def test_records_with_the_same_times_have_the_same_rows_on_either_grid() -> None:
    t = np.array([0.0, 0.1, 0.35, 0.9])
    own, (of_union, _) = rows_of(t, backwards=True), union_rows([t, t], backwards=True)
    assert np.array_equal(own.dt, of_union.dt)
    assert np.array_equal(own.point, of_union.point)


def test_a_records_own_rows_are_made_once_for_each_direction() -> None:
    t = np.array([0.0, 0.1, 0.35, 0.9])
    record = Record(t, np.zeros((4, 1)), np.ones((4, 1)))
    for backwards in (True, False):
        rows = record.rows(backwards)
        assert np.array_equal(rows.dt, rows_of(t, backwards=backwards).dt)
        assert record.rows(backwards) is rows
