"""Gated recurrent units against their equations."""

from __future__ import annotations

import torch
from irregular_batches import filled

from acenode.models.recurrent import GRUCell, MaskedGRU


def test_a_masked_gru_updates_at_observed_points_only() -> None:
    gru = MaskedGRU(2, 3)
    filled(gru)
    x = torch.randn(2, 5, 2, generator=torch.Generator().manual_seed(1))
    observed = torch.tensor([[1, 0, 1, 1, 0], [0, 0, 1, 0, 0]], dtype=torch.bool)
    found = gru(x, observed)
    W, U, b, c = (gru.layer.weight_ih_l0, gru.layer.weight_hh_l0, gru.layer.bias_ih_l0, gru.layer.bias_hh_l0)
    for i in range(2):
        h = torch.zeros(3)
        for k in range(5):
            if observed[i, k]:
                gi, gh = W @ x[i, k] + b, U @ h + c
                r, z = torch.sigmoid(gi[:3] + gh[:3]), torch.sigmoid(gi[3:6] + gh[3:6])
                h = (1 - z) * torch.tanh(gi[6:] + r * gh[6:]) + z * h
            assert torch.allclose(found[i, k], h, atol=1e-6)


def test_a_gru_cell_follows_its_equations() -> None:
    cell = GRUCell(2, 3)
    filled(cell)
    x, h = torch.randn(4, 2), torch.randn(4, 3)
    gi, gh = cell.input(x), cell.hidden(h)
    r, z = torch.sigmoid(gi[:, :3] + gh[:, :3]), torch.sigmoid(gi[:, 3:6] + gh[:, 3:6])
    exact = (1 - z) * torch.tanh(gi[:, 6:] + r * gh[:, 6:]) + z * h
    assert torch.allclose(cell(gi, h), exact, atol=1e-6)
