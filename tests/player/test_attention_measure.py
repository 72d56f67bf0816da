"""The curve of attention over time: how many coordinates are mixed, or how much of the state passes."""

from __future__ import annotations

import numpy as np
import pytest

from acenode.player import attention_measure as measure
from acenode.player.attention_maps import COORDINATES, ELEMENTWISE, PAIRWISE


def test_effective_number_of_uniform_and_selective_rows() -> None:
    assert measure.effective_number(np.full(8, 1 / 8)) == pytest.approx(8)
    assert measure.effective_number(np.eye(8)[3]) == pytest.approx(1)
    assert measure.effective_number(np.array([0.5, 0.5, 0, 0])) == pytest.approx(2)


def test_pairwise_curves_do_not_follow_what_softmax_ignores() -> None:
    """A row whose entries all grow by the same has other logits, the same weights, and the same curve."""
    a = np.zeros((3, 2, 4, 4))
    a += 10 * np.arange(3)[:, None, None, None]
    np.testing.assert_allclose(measure.curves(a, PAIRWISE), 4.0, rtol=1e-5)
    a[2, :, 0, 0] += 50  # one row selects one coordinate
    np.testing.assert_allclose(measure.curves(a, PAIRWISE)[2, :, 0], (1 + 3 * 4) / 4, rtol=1e-5)


@pytest.mark.parametrize(("kind", "shape"), [(ELEMENTWISE, (2, 3, 4, 5, 5)), (COORDINATES, (2, 3, 7))])
def test_share_that_passes(kind: measure.MapKind, shape: tuple[int, ...]) -> None:
    found = measure.curves(np.zeros(shape), kind)
    assert found.shape == (2, 3, 3)
    np.testing.assert_allclose(found, 0.5)
    assert measure.reference(np.zeros(shape), kind) == 0.5
    assert measure.curves(np.full(shape, 50.0), kind).min() == pytest.approx(1.0)


def test_band_is_around_the_mean() -> None:
    a = np.random.default_rng(0).normal(size=(3, 2, 6, 6)) * 2
    mean, low, high = np.moveaxis(measure.curves(a, PAIRWISE), -1, 0)
    assert (low < mean).all()
    assert (mean < high).all()


def test_attention_without_a_map_has_its_distance() -> None:
    a = np.stack([np.ones((2, 7)), 3 * np.ones((2, 7))])
    np.testing.assert_allclose(measure.curves(a, None)[1], 2.0)
    assert measure.reference(a, None) is None
