"""Gated recurrent units and networks for missing values, against their equations."""

from __future__ import annotations

import math

import pytest
import torch
from irregular_batches import batch, filled, records

from acenode.data.points import Points
from acenode.models.layers import Decay, MaskedGRU, MatrixDecay, MissingDataGRU, last_observed


def gru(gi: torch.Tensor, gh: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    n = h.shape[-1]
    r, z = torch.sigmoid(gi[..., :n] + gh[..., :n]), torch.sigmoid(gi[..., n:2 * n] + gh[..., n:2 * n])
    return (1 - z) * torch.tanh(gi[..., 2 * n:] + r * gh[..., 2 * n:]) + z * h


def test_a_masked_gru_updates_at_observed_points_only() -> None:
    made = MaskedGRU(2, 3)
    filled(made)
    x = torch.randn(2, 5, 2, generator=torch.Generator().manual_seed(1))
    observed = torch.tensor([[1, 0, 1, 1, 0], [0, 0, 1, 0, 0]], dtype=torch.bool)
    found, layer = made(x, observed), made.layer
    for i in range(2):
        h = torch.zeros(3)
        for k in range(5):
            if observed[i, k]:
                h = gru(layer.weight_ih_l0 @ x[i, k] + layer.bias_ih_l0, layer.weight_hh_l0 @ h + layer.bias_hh_l0, h)
            assert torch.allclose(found[i, k], h, atol=1e-6)


def test_time_since_the_last_observation_of_a_variable() -> None:
    t = torch.tensor([[0.0, 0.1, 0.3, 0.7]])
    m = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]])
    x = torch.tensor([[[5.0, 0.0], [0.0, 6.0], [7.0, 0.0], [0.0, 0.0]]])
    delta, last = last_observed(Points(t, x, m, torch.ones(1, 4, dtype=torch.bool)))
    assert torch.allclose(delta, torch.tensor([[[0.0, 0.0], [0.1, 0.1], [0.3, 0.2], [0.4, 0.6]]]), atol=1e-6)
    assert last.tolist() == [[[0.0, 0.0], [5.0, 0.0], [5.0, 6.0], [7.0, 6.0]]]


def test_a_decay_is_initialised_as_none_and_never_grows() -> None:
    decay, matrix, delta = Decay(2, each=True), MatrixDecay(2, 3), torch.tensor([[0.5, 2.0]])
    assert decay(delta).tolist() == [[1.0, 1.0]]
    assert matrix(delta).tolist() == [[1.0, 1.0, 1.0]]
    decay.weight.data = torch.tensor([2.0, -3.0])
    assert decay(delta)[0].tolist() == pytest.approx([math.exp(-1.0), 1.0])
    matrix.weight.data = torch.tensor([[1.0, 0.0], [0.0, -1.0], [2.0, 1.0]])
    assert matrix(delta)[0].tolist() == pytest.approx([math.exp(-0.5), 1.0, math.exp(-3.0)])
    assert Decay(2, each=False)(torch.zeros(4, 2)).shape == (4, 1)


@pytest.mark.parametrize(("gap", "impute", "decay"), [(True, False, False), (True, True, False), (False, False, True),
                                                      (False, True, True)])
def test_the_recurrences_follow_their_equations(gap: bool, impute: bool, decay: bool) -> None:
    recurrence = MissingDataGRU(3, 4, gap=gap, impute=impute, decay=decay)
    filled(recurrence)
    recurrence.mean.copy_(torch.tensor([0.3, -0.2, 0.1]))
    points = batch(records((5, 3))).seen
    found, (delta, last) = recurrence(points), last_observed(points)
    for i, n in enumerate((5, 3)):
        h = torch.zeros(4)
        for k in range(n):
            x, m = points.x[i, k], points.m[i, k]
            if recurrence.impute is not None:
                share = recurrence.impute(delta[i, k])
                x = m * x + (1 - m) * (share * last[i, k] + (1 - share) * recurrence.mean)
            step = points.t[i, k + 1] - points.t[i, k] if k + 1 < n else torch.zeros(())
            given = torch.cat((x, m, step[None])) if gap else torch.cat((x, m))
            if recurrence.cell is not None and recurrence.decay is not None:
                exponent = (recurrence.decay.weight * delta[i, k]).sum() + recurrence.decay.bias
                h = recurrence.cell(recurrence.cell.input(given), h * torch.exp(-torch.clamp(exponent, 0, 1000)))
            elif recurrence.gru is not None:
                h = recurrence.gru(given.view(1, 1, -1), torch.ones(1, 1, dtype=torch.bool), h[None])[0, 0]
            assert torch.allclose(found[i, k], h, atol=1e-5)
