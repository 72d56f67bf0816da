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


def test_effective_number_of_uniform_and_selective_rows() -> None:
    assert attention.effective_number(np.full(8, 1 / 8)) == pytest.approx(8)
    assert attention.effective_number(np.eye(8)[3]) == pytest.approx(1)
    assert attention.effective_number(np.array([0.5, 0.5, 0, 0])) == pytest.approx(2)


def test_pairwise_curves_do_not_follow_what_softmax_ignores() -> None:
    """A row whose entries all grow by the same has other logits, the same weights, and the same curve."""
    a = np.zeros((3, 2, 4, 4))
    a += 10 * np.arange(3)[:, None, None, None]
    np.testing.assert_allclose(attention.curves(a, attention.PAIRWISE), 4.0, rtol=1e-5)
    a[2, :, 0, 0] += 50  # one row selects one coordinate
    np.testing.assert_allclose(attention.curves(a, attention.PAIRWISE)[2, :, 0], (1 + 3 * 4) / 4, rtol=1e-5)


@pytest.mark.parametrize(("kind", "shape"), [
    (attention.ELEMENTWISE, (2, 3, 4, 5, 5)), (attention.COORDINATES, (2, 3, 7))])
def test_share_that_passes(kind: attention.MapKind, shape: tuple[int, ...]) -> None:
    found = attention.curves(np.zeros(shape), kind)
    assert found.shape == (2, 3, 3)
    np.testing.assert_allclose(found, 0.5)
    assert attention.reference(np.zeros(shape), kind) == 0.5
    assert attention.curves(np.full(shape, 50.0), kind).min() == pytest.approx(1.0)


def test_attention_without_a_map_has_its_distance() -> None:
    a = np.stack([np.ones((2, 7)), 3 * np.ones((2, 7))])
    np.testing.assert_allclose(attention.curves(a, None)[1], 2.0)
    assert attention.reference(a, None) is None


def test_distance_between_rows_is_the_mean_over_pairs() -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(5), size=(2, 3, 5))  # (2, 3, 5, 5)
    pairs = [0.5 * np.abs(weights[..., i, :] - weights[..., j, :]).sum(-1) for i in range(5) for j in range(i)]
    np.testing.assert_allclose(attention.row_distance(weights), np.mean(pairs, axis=0))


def test_the_note_says_what_equal_rows_mean() -> None:
    assert attention.equal_rows_note(0.01, "variable").count("variable") == 2
    assert "have become equal at the end (t = 1) (mean distance 0.01 of 1)" in attention.equal_rows_note(
        0.01, "variable", "at the end (t = 1)")
    assert "same weighted average" in attention.equal_rows_note(0.0)
    assert {attention.equal_rows_note(distance) for distance in (0.3, None, float("nan"))} == {""}
