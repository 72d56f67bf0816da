"""Attention as it is drawn: maps of its weights, curves over time, and rows that have become equal."""

from __future__ import annotations

import numpy as np
import pytest

from acenode.player import attention


def test_kind_by_shapes() -> None:
    h, maps = np.zeros((2, 3, 4)), np.zeros((2, 3, 4, 4, 4))
    assert attention.kind_of({"h": h, "a": np.zeros((2, 3, 4, 4))}) is attention.PAIRWISE
    assert attention.kind_of({"h": h, "a": h}) is attention.COORDINATES
    assert attention.kind_of({"h": maps, "a": maps}) is attention.ELEMENTWISE
    assert attention.kind_of({"h": h, "a": np.zeros((2, 3, 7))}) is attention.kind_of({"h": h}) is None


def test_pairwise_curves_do_not_follow_what_softmax_ignores() -> None:
    """A row whose entries all grow by the same has other logits, the same weights, and the same curve."""
    a = np.zeros((3, 2, 4, 4))
    a += 10 * np.arange(3)[:, None, None, None]
    np.testing.assert_allclose(attention.curves(a, attention.PAIRWISE), 4.0, rtol=1e-5)
    a[2, :, 0, 0] += 500  # one row selects one coordinate
    a[2, :, 1] = np.log([1 / 2, 1 / 4, 1 / 8, 1 / 8])  # with an entropy of 1¾ bits
    np.testing.assert_allclose(attention.curves(a, attention.PAIRWISE)[2, :, 0], (1 + 2**1.75 + 2 * 4) / 4, rtol=1e-5)


def test_curves_of_coordinates_and_of_attention_without_a_map() -> None:
    a = np.zeros((2, 3, 7))
    np.testing.assert_array_equal(attention.curves(a, attention.COORDINATES), np.full((2, 3, 3), 0.5))
    assert attention.curves(a + 50.0, attention.COORDINATES).min() == pytest.approx(1.0)
    tripled = np.stack([np.ones((2, 7)), 3 * np.ones((2, 7))])
    np.testing.assert_allclose(attention.curves(tripled, None)[1], 2.0)
    assert (attention.reference(a, attention.COORDINATES), attention.reference(a, None)) == (0.5, None)


def test_distance_between_rows_is_the_mean_over_pairs() -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(5), size=(2, 3, 5))  # (2, 3, 5, 5)
    pairs = [0.5 * np.abs(weights[..., i, :] - weights[..., j, :]).sum(-1) for i in range(5) for j in range(i)]
    np.testing.assert_allclose(attention.row_distance(weights), np.mean(pairs, axis=0))


def test_rows_of_unknown_or_large_distance_get_no_note() -> None:
    assert {attention.equal_rows_note(distance) for distance in (0.3, None, float("nan"))} == {""}
