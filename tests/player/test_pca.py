"""Principal components."""

from __future__ import annotations

import numpy as np
import pytest

from acenode.player.pca import principal


@pytest.mark.parametrize("shape", [(60, 5), (20, 200)])
def test_principal_components_of_a_plane(shape: tuple[int, int]) -> None:
    """Points of a plane keep their distances, and the plane has all of the variance."""
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(shape[0], 2)) * [5.0, 1.0]
    basis, _ = np.linalg.qr(rng.normal(size=(shape[1], 2)))
    found = principal(flat @ basis.T + 7.0)
    apart = np.linalg.norm(flat[:, None] - flat[None], axis=-1)
    np.testing.assert_allclose(np.linalg.norm(found.points[:, None] - found.points[None], axis=-1), apart, atol=1e-6)
    assert found.shares.sum() == pytest.approx(1.0)
    assert found.shares[0] > found.shares[1]


def test_principal_components_of_constant_points() -> None:
    assert principal(np.ones((4, 1))).points.shape == (4, 2)
    assert principal(np.ones((4, 3))).shares.tolist() == [0.0, 0.0]
