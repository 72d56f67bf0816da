"""Attention weights as maps."""

from __future__ import annotations

import numpy as np
import pytest

from acenode.player import attention_maps


def test_elementwise_weights_are_the_mean_sigmoid() -> None:
    a = np.zeros((2, 1, 2, 3, 3), dtype=np.float16)
    a[1, 0, 0] = 60.0
    shown = attention_maps.weights(a, attention_maps.ELEMENTWISE)
    np.testing.assert_allclose(shown[0, 0], 0.5)
    np.testing.assert_allclose(shown[1, 0], 0.75)


def test_pairwise_weights_are_the_row_softmax() -> None:
    a = np.log(np.array([[1.0, 3.0], [2.0, 2.0]])).reshape(1, 1, 2, 2)
    shown = attention_maps.weights(a, attention_maps.PAIRWISE)[0, 0]
    np.testing.assert_allclose(shown, [[0.25, 0.75], [0.5, 0.5]], rtol=1e-6)


def test_kind_by_shapes() -> None:
    h = np.zeros((2, 3, 4))
    assert attention_maps.kind_of(h, np.zeros((2, 3, 4, 4))) is attention_maps.PAIRWISE
    assert attention_maps.kind_of(h, h) is attention_maps.COORDINATES
    assert attention_maps.kind_of(np.zeros((2, 3, 4, 4, 4)), np.zeros((2, 3, 4, 4, 4))) is attention_maps.ELEMENTWISE
    assert attention_maps.kind_of(h, np.zeros((2, 3, 7))) is None


def test_pooling_keeps_the_mean_of_a_wide_map() -> None:
    wide = np.random.default_rng(0).random((1, 1, 80, 120))
    small = attention_maps.pooled(wide)
    assert small.shape == (1, 1, 40, 40)
    assert small.mean() == pytest.approx(wide.mean())


def test_change_since_t_0() -> None:
    a = np.array([[[3.0, 4.0]], [[6.0, 8.0]]])  # ‖a(0)‖ = 5, ‖a(1) − a(0)‖ = 5
    assert attention_maps.change(a).tolist() == [[0.0], [1.0]]
