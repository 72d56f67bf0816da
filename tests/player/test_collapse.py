"""Rows of softmax(a) that have become equal."""

from __future__ import annotations

import numpy as np
import pytest

from acenode.player import collapse


def test_distance_between_rows_is_the_mean_over_pairs() -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(5), size=(2, 3, 5))  # (2, 3, 5, 5)
    pairs = [0.5 * np.abs(weights[..., i, :] - weights[..., j, :]).sum(-1) for i in range(5) for j in range(i)]
    np.testing.assert_allclose(collapse.row_distance(weights), np.mean(pairs, axis=0))


def test_equal_and_disjoint_rows() -> None:
    assert collapse.row_distance(np.full((4, 4), 0.25)) == 0.0
    assert collapse.row_distance(np.eye(4)) == pytest.approx(1.0)


def test_the_note_says_what_equal_rows_mean() -> None:
    assert collapse.note(0.01, "variable").count("variable") == 2
    assert "have become equal at the end (t = 1) (mean distance 0.01 of 1)" in collapse.note(
        0.01, "variable", "at the end (t = 1)")
    assert "same weighted average" in collapse.note(0.0)
    assert collapse.note(0.3) == collapse.note(None) == collapse.note(float("nan")) == ""
