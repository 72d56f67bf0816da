"""Gradient "checkpointed" of fields with random numbers and running averages: everything equals backprop."""

from __future__ import annotations

import pytest
import torch
from problems import relative
from torch import Tensor, nn

from acenode import ACENODE, NODE, Correlation, Solver, solve

METHODS = ["dopri5", "adaptive_heun", "fehlberg2", "rk4", "euler"]


def solver(method: str, gradient: str) -> Solver:
    steps = {"step_size": 0.3} if method in ("rk4", "euler") else {"rtol": 1e-2, "atol": 1e-2}
    return Solver(method, gradient=gradient, **steps)  # type: ignore[arg-type]


class Random(nn.Module):
    """A field with dropout and batch normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, t: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        drawn = nn.functional.dropout(torch.tanh(self.norm(self.first(state[0]))), 0.3)
        return (self.last(drawn) * torch.cos(t),)


@pytest.mark.parametrize("method", METHODS)
def test_masks_and_running_averages_are_those_of_backprop(method: str) -> None:
    """With rejected steps, times within a step, and further draws before the backward pass."""
    found = {}
    for gradient in ("backprop", "checkpointed"):
        torch.manual_seed(0)
        field, h0 = Random().double(), torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
        h = solve(field, (h0,), [0.0, 0.4, 1.0], solver(method, gradient)).states[0]
        torch.rand(5)
        (h.sin().sum() * 3).backward()
        found[gradient] = [h.detach(), h0.grad, *(p.grad for p in field.parameters()), *field.buffers(), torch.rand(3)]
    for a, b in zip(*found.values(), strict=True):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-13)  # type: ignore[arg-type]


@pytest.mark.cuda
def test_masks_are_those_of_backprop_on_a_gpu() -> None:
    found = {}
    for gradient in ("backprop", "checkpointed"):
        torch.manual_seed(0)
        field, h0 = Random().double().cuda(), torch.ones(6, 3, dtype=torch.float64, device="cuda", requires_grad=True)
        solve(field, (h0,), [0.0, 0.4, 1.0], solver("dopri5", gradient)).states[0].sin().sum().backward()
        found[gradient] = [h0.grad, *field.buffers()]
    for a, b in zip(*found.values(), strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-12)  # type: ignore[arg-type]


def test_a_field_that_draws_nothing_leaves_the_generator_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads may use the global generator meanwhile."""
    monkeypatch.setattr(torch, "set_rng_state", lambda state: pytest.fail("the generator was set"))
    y = torch.ones(2, 3, requires_grad=True)
    solve(lambda t, s: (-s[0],), (y,), [0.0, 1.0], Solver(gradient="checkpointed")).states[0].sum().backward()
    assert y.grad is not None


def test_the_running_correlation_of_fixed_attention_is_that_of_backprop() -> None:
    averages = []
    for gradient in ("backprop", "checkpointed"):
        torch.manual_seed(0)
        q = Correlation((3,), bins=5)

        class Rate(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear = nn.Linear(3, 3)

            def forward(self, h: Tensor, t: Tensor) -> Tensor:
                return torch.tanh(self.linear(h))

        layer = ACENODE(Rate(), q=q, attention="fixed", solver=solver("dopri5", gradient))
        layer(torch.randn(8, 3)).h[-1].sum().backward()
        averages.append((q.running.clone(), q.seen.clone()))
    assert float(averages[0][1].sum()) > 0
    for a, b in zip(*averages, strict=True):
        assert torch.equal(a, b)


def test_dropout_in_a_layer_agrees_with_a_central_difference() -> None:
    class Drop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.k = nn.Parameter(torch.tensor(0.7, dtype=torch.float64))

        def forward(self, h: Tensor, t: Tensor) -> Tensor:
            return nn.functional.dropout(self.k * h, 0.5)

    layer = NODE(Drop(), Solver("rk4", step_size=0.25, gradient="checkpointed"))

    def loss() -> Tensor:
        torch.manual_seed(3)
        return layer(torch.ones(4, 5, dtype=torch.float64)).h[-1].sum()

    loss().backward()
    with torch.no_grad():
        layer.f.k += 1e-5  # type: ignore[operator]
        up = loss()
        layer.f.k -= 2e-5  # type: ignore[operator]
        down = loss()
    assert layer.f.k.grad.item() == pytest.approx(float(up - down) / 2e-5, rel=1e-6)  # type: ignore[union-attr, operator]
    assert relative(up, down) < 1
