"""torch.func and forward-mode differentiation pass through our own steps, or are refused in one line."""

from __future__ import annotations

import pytest
import torch
import torch.autograd.forward_ad as fwd
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, jvp, vmap

from acenode import NODE, Solver, UserError, solve

RK4, DOPRI5 = Solver("rk4", step_size=0.05), Solver(rtol=1e-9, atol=1e-9)
Y = torch.tensor([0.3, -1.2], dtype=torch.float64)


def end(y: Tensor, solver: Solver, k: Tensor | float = 1.0) -> Tensor:
    """y' = -k y³, whose solution is y / √(1 + 2 k y² t)."""
    return solve(lambda t, s: (-k * s[0] ** 3,), (y,), [0.0, 1.0], solver).states[0][-1]


def exact(y: Tensor) -> Tensor:
    return y / (1 + 2 * y**2).sqrt()


def slope(y: Tensor) -> Tensor:
    return (1 + 2 * y**2) ** -1.5


@pytest.mark.parametrize("solver", [RK4, DOPRI5], ids=["rk4", "dopri5"])
def test_grad_jacrev_and_jvp(solver: Solver) -> None:
    assert torch.allclose(grad(lambda y: end(y, solver).sum())(Y), slope(Y), atol=1e-6)
    assert torch.allclose(jacrev(lambda y: end(y, solver))(Y), torch.diag(slope(Y)), atol=1e-6)
    value, tangent = jvp(lambda y: end(y, solver), (Y,), (torch.tensor([1.0, 2.0], dtype=torch.float64),))
    assert torch.allclose(value, exact(Y), atol=1e-6)
    assert torch.allclose(tangent, slope(Y) * torch.tensor([1.0, 2.0]), atol=1e-6)


@pytest.mark.parametrize("solver", [RK4, DOPRI5], ids=["rk4", "dopri5"])
def test_forward_mode(solver: Solver) -> None:
    with fwd.dual_level():
        tangent = fwd.unpack_dual(end(fwd.make_dual(Y, torch.ones_like(Y)), solver)).tangent
    assert torch.allclose(tangent, slope(Y), atol=1e-6)


def test_vmap_over_states_and_over_parameters() -> None:
    ks = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    states = torch.stack((Y, Y / 2))
    assert torch.allclose(vmap(lambda y: end(y, RK4))(states), exact(states), atol=1e-6)
    found = vmap(lambda k: end(Y, RK4, k))(ks)
    assert torch.allclose(found, torch.stack([end(Y, RK4, float(k)) for k in ks]))
    per_sample = vmap(grad(lambda y: end(y, RK4).sum()))(states)
    assert torch.allclose(per_sample, slope(states), atol=1e-6)


def test_an_ensemble_of_layers_by_functional_call() -> None:
    class Rate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, h: Tensor, t: Tensor) -> Tensor:
            return torch.tanh(self.linear(h))

    layer = NODE(Rate(), RK4).double()
    stacked = {name: torch.stack((p.detach(), -p.detach())) for name, p in layer.named_parameters()}
    both = vmap(lambda p: functional_call(layer, p, (Y[None],)).h[-1])(stacked)
    assert torch.allclose(both[0], layer(Y[None]).h[-1])
    assert not torch.allclose(both[0], both[1])


@pytest.mark.parametrize("training", [True, False])
def test_vmap_over_adaptive_steps_is_refused(training: bool) -> None:
    with pytest.raises(UserError, match="vmap cannot pass through dopri5.* fixed-step method such as rk4"):
        vmap(lambda y: end(y, DOPRI5))(torch.stack((Y, Y)))

    class Cube(nn.Module):
        def forward(self, h: Tensor, t: Tensor) -> Tensor:
            return -(h**3)

    layer = NODE(Cube(), DOPRI5).train(training)
    with pytest.raises(UserError, match="vmap cannot pass"):
        vmap(lambda y: layer(y).h)(torch.ones(3, 2, 2))
    assert layer(torch.ones(2, 2)).h.shape == (2, 2, 2)


@pytest.mark.parametrize("gradient", ["checkpointed", "adjoint"])
def test_other_gradients_are_refused(gradient: str) -> None:
    solver = Solver(gradient=gradient)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=f'need .* gradient "backprop", not dopri5 with gradient "{gradient}"'):
        grad(lambda y: end(y, solver).sum())(Y)
    with fwd.dual_level(), pytest.raises(UserError, match='gradient "backprop", not dopri5'):
        end(fwd.make_dual(Y, torch.ones_like(Y)), solver)
