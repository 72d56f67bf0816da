"""GRU-ODE, g on the rows of a, the GRU-Bayes update and the terms of the loss, against the equations."""

from __future__ import annotations

import pytest
import torch
from irregular_batches import filled
from sporadic_batches import (
    D,
    H,
)
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from acenode.models.forecast.gaussian import gaussian_nll
from acenode.models.forecast.gru_ode import GRUODE, MatrixGRU, RowGRU
from acenode.models.forecast.gru_ode_bayes import GRUBayes, kl_to_observation

GENERATOR = torch.Generator().manual_seed(0)


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=GENERATOR)


@pytest.mark.parametrize("inputs", [0, 3])
@pytest.mark.parametrize("minimal", [False, True])
def test_both_gru_ode_cells(minimal: bool, inputs: int) -> None:
    cell = filled(GRUODE(H, inputs, minimal)).double()
    h, x = randn(4, H), randn(4, inputs)
    gates = [cell.update] if minimal else [cell.reset, cell.update]
    shares = [0.0] * 3
    if cell.given is not None:
        shares = list((x @ cell.given.weight.T + cell.given.bias).split(H, 1))
    opened = [1 / (1 + torch.exp(-(h @ gate.weight.T + share)))  # type: ignore[union-attr]
              for gate, share in zip(gates, shares, strict=False)]
    u = torch.tanh((opened[0] * h) @ cell.new.weight.T + shares[len(gates)])
    assert torch.allclose(cell(h, x if inputs else None), (1 - opened[-1]) * (u - h))


def test_feedback_from_another_state() -> None:
    cell = filled(GRUODE(H)).double()
    h, own = randn(2, H), randn(2, H)
    z = torch.sigmoid(h @ cell.update.weight.T)
    assert torch.allclose(cell(h, own=own), cell(h) + (1 - z) * (h - own))


def test_g_is_a_gru_ode_on_every_row() -> None:
    g = filled(RowGRU(H)).double()
    attended, a = randn(2, H), randn(2, H, H)
    for b in range(2):
        for i in range(H):
            r, z = torch.sigmoid(g.gates.weight @ a[b, i] + g.gates_in.weight @ attended[b]).chunk(2)
            u = torch.tanh(g.new.weight @ (r * a[b, i]) + g.new_in.weight @ attended[b])
            assert torch.allclose(g(attended, a)[b, i], (1 - z) * (u - a[b, i]))


def test_an_exponential_step_of_a() -> None:
    """The linear part is solved exactly, a short step follows g, and no step leaves [−1, 1]."""
    g = filled(RowGRU(H)).double()
    attended, a, tau = randn(2, H), randn(2, H, H).tanh(), torch.tensor([0.7, 3.0], dtype=torch.float64).view(2, 1, 1)
    for b in range(2):
        for i in range(H):
            r, z = torch.sigmoid(g.gates.weight @ a[b, i] + g.gates_in.weight @ attended[b]).chunk(2)
            u = torch.tanh(g.new.weight @ (r * a[b, i]) + g.new_in.weight @ attended[b])
            exact = torch.matrix_exp(-tau[b] * torch.diag(1 - z)) @ (a[b, i] - u) + u
            assert torch.allclose(g.step(attended, a, tau)[b, i], exact)
    assert torch.allclose((g.step(attended, a, tau * 1e-7) - a) / (tau * 1e-7), g(attended, a), atol=1e-6)
    assert torch.equal(g.step(attended, a, tau * 0), a)
    assert (g.step(attended, a, tau * 1e6).abs() <= 1).all()


def test_g_maps_h_to_the_whole_matrix() -> None:
    """Entry ij of da/dt is a row of the linear layer on the GRU-ODE of h'; it does not depend on a."""
    g, T = filled(MatrixGRU(H)).double(), 3.0
    attended, a = randn(2, H), randn(2, H, H)
    cell = g.cell
    for b in range(2):
        r = torch.sigmoid(cell.reset.weight @ attended[b])  # type: ignore[union-attr]
        z = torch.sigmoid(cell.update.weight @ attended[b])
        v = (1 - z) * (torch.tanh(cell.new.weight @ (r * attended[b])) - attended[b])
        for i in range(H):
            for j in range(H):
                rate = (g.out.weight[H * i + j] @ v + g.out.bias[H * i + j]) / T
                assert torch.allclose(g(attended, T)[b, i, j], rate)
    tau = torch.tensor([0.7, 3.0], dtype=torch.float64).view(2, 1, 1)
    assert torch.allclose(g.step(attended, a, tau, T), a + tau * g(attended, T))
    halves = g.step(attended, g.step(attended, a, tau / 2, T), tau / 2, T)
    assert torch.allclose(halves, g.step(attended, a, tau, T))  # exact for a constant h'


def test_equal_rows_become_different_only_if_g_gives_the_matrix() -> None:
    attended, a, tau = randn(2, H), randn(2, 1, H).expand(2, H, H), torch.ones(2, 1, 1, dtype=torch.float64)
    shared, own = filled(RowGRU(H)).double(), filled(MatrixGRU(H)).double()
    assert torch.allclose(shared.step(attended, a, tau).diff(dim=1), torch.zeros(2, H - 1, H, dtype=torch.float64))
    assert float(own.step(attended, a, tau).diff(dim=1).detach().abs().min()) > 1e-3


def test_the_gru_bayes_update() -> None:
    jump = filled(GRUBayes(H, D, 2)).double()
    h, mean, logvar, x = randn(3, H), randn(3, D), randn(3, D), randn(3, D)
    m = torch.tensor([[1.0, 0, 1], [0, 1, 0], [1, 1, 1]], dtype=torch.float64)
    cell = nn.GRUCell(2 * D, H).double()
    own = jump.cell
    cell.load_state_dict({"weight_ih": own.input.weight, "bias_ih": own.input.bias,
                          "weight_hh": own.hidden.weight, "bias_hh": own.hidden.bias})
    features = torch.zeros(3, D, 2, dtype=torch.float64)
    for n in range(3):
        for d in range(D):
            error = (x[n, d] - mean[n, d]) / torch.exp(logvar[n, d] / 2)
            inputs = torch.stack((x[n, d], mean[n, d], logvar[n, d], error))
            features[n, d] = m[n, d] * torch.relu(inputs @ jump.weight[d] + jump.bias[d])
    assert torch.allclose(jump(h, mean, logvar, x, m), cell(features.flatten(1), h))


def test_likelihood_and_divergence_agree_with_torch() -> None:
    mean, logvar, x = randn(5), randn(5), randn(5)
    predicted = Normal(mean, torch.exp(logvar / 2))
    assert torch.allclose(gaussian_nll(x, mean, logvar), -predicted.log_prob(x))
    observed = Normal(x, torch.full_like(x, 0.01))
    assert torch.allclose(kl_to_observation(mean, logvar, x), kl_divergence(predicted, observed))
