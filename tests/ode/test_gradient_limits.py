"""What "checkpointed" and "adjoint" cannot differentiate is refused in words."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from acenode import Solver, UserError, solve

State = tuple[Tensor, ...]


class Decay(nn.Module):
    """y' = -k y."""

    def __init__(self, k: Tensor | None = None) -> None:
        super().__init__()
        self.k = nn.Parameter(torch.tensor(1.5, dtype=torch.float64)) if k is None else k

    def forward(self, t: Tensor, state: State) -> State:
        return (-self.k * state[0],)


def ones() -> Tensor:
    return torch.ones(3, 2, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("gradient", ["checkpointed", "adjoint"])
@pytest.mark.parametrize("variable", ["state", "parameter"])
def test_a_second_derivative_is_refused(gradient: str, variable: str) -> None:
    """Also as a part of a loss whose other parts have one."""
    field, y = Decay(), ones()
    x = y if variable == "state" else field.k
    end = solve(field, (y,), [0.0, 1.0], Solver(gradient=gradient)).states[0][-1]  # type: ignore[arg-type]
    (first,) = torch.autograd.grad(end.square().sum(), x, create_graph=True)
    with pytest.raises(UserError, match=f'gradient "{gradient}" has no second derivatives: use gradient "backprop"'):
        (first.square().sum() + x.square().sum()).backward()


def test_backprop_has_second_derivatives() -> None:
    y = ones()
    end = solve(Decay(), (y,), [0.0, 1.0], Solver(rtol=1e-9, atol=1e-9)).states[0][-1]
    (first,) = torch.autograd.grad(end.square().sum(), y, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), y)
    assert torch.allclose(second, torch.full_like(y, 2 * torch.exp(torch.tensor(-3.0))), atol=1e-6)


@pytest.mark.parametrize("gradient", ["checkpointed", "adjoint"])
def test_a_tensor_from_outside_the_field_is_refused(gradient: str) -> None:
    weight = torch.ones(1, dtype=torch.float64, requires_grad=True)
    computed, solver = weight * 2, Solver(gradient=gradient)  # type: ignore[arg-type]
    for outside in (weight, computed):
        end = solve(Decay(outside), (ones(),), [0.0, 1.0], solver).states[0][-1]
        with pytest.raises(UserError, match="computed outside of it.* part of the state or a parameter"):
            end.sum().backward()
        with pytest.raises(UserError, match="computed outside of it"):  # nothing else needs a gradient
            solve(Decay(outside), (ones().detach(),), [0.0, 1.0], solver)
        with torch.no_grad():
            solve(Decay(outside), (ones().detach(),), [0.0, 1.0], solver)


@pytest.mark.parametrize("gradient", ["checkpointed", "adjoint"])
def test_a_loss_that_needs_first_derivatives_only_keeps_its_graph(gradient: str) -> None:
    """create_graph alone refuses nothing."""
    y = ones()
    end = solve(Decay(), (y,), [0.0, 1.0], Solver(gradient=gradient, rtol=1e-8, atol=1e-8)).states[0][-1]  # type: ignore[arg-type]
    (grad,) = torch.autograd.grad(end.sum(), y, create_graph=True)
    assert torch.allclose(grad, torch.exp(torch.full_like(y, -1.5)), atol=1e-6)
