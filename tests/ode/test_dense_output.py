"""`solve_at`: states at different times per sample, against closed forms and ordinary solves, and their gradients."""

from __future__ import annotations

import pytest
import torch
from problems import TIGHT, check_gradients, co_evolving
from torch import Tensor

from acenode import Solver, solve
from acenode.errors import UserError
from acenode.ode.dense_output import interpolate_between, solve_at

LOOSER = {"rtol": 1e-8, "atol": 1e-9}  # for methods of low order


def rotation(t: Tensor, y: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    (h,) = y
    return (torch.stack((-h[:, 1], h[:, 0]), dim=1) * 3,)


def own_times(B: int = 3, T: int = 7) -> Tensor:
    return torch.rand(B, T, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("per_sample", [False, True])
@pytest.mark.parametrize("method", ["dopri5", "tsit5", "bosh3", "dopri8", "rk4"])
def test_a_rotation_at_different_times_per_sample(method: str, per_sample: bool) -> None:
    tolerance = LOOSER if method == "bosh3" else TIGHT
    solver = Solver(method, step_size=0.01) if method == "rk4" else Solver(method, **tolerance, max_steps=100_000)
    h0 = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.5, -1.0]], dtype=torch.float64)
    t = own_times()
    t[0, 0], t[1, 1] = 0.0, 1.0  # both ends
    found = solve_at(rotation, (h0,), (0.0, 1.0), t, solver, per_sample=per_sample)
    c, s = torch.cos(3 * t), torch.sin(3 * t)
    exact = torch.stack((c * h0[:, :1] - s * h0[:, 1:], s * h0[:, :1] + c * h0[:, 1:]), dim=-1)
    assert torch.allclose(found.h, exact, atol=2e-5 if method == "dopri8" else 1e-7)
    assert found.end[0].shape == (3, 2)


@pytest.mark.parametrize("per_sample", [False, True])
def test_equals_an_ordinary_solve_at_those_times(per_sample: bool) -> None:
    """Both evaluate the same interpolating polynomial."""
    layer = co_evolving("pairwise", Solver("dopri5", rtol=1e-4, atol=1e-5), d=3)
    layer.train(not per_sample)
    h0, t = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), own_times(4, 5)
    solution = layer.at(h0, t)
    for b in range(4):
        times = [0.0, *sorted(t[b].tolist()), 1.0]
        direct = layer(h0, times).h[1:-1, b]
        assert torch.allclose(solution.h[b][t[b].argsort()], direct, atol=1e-12)
    assert solution.evaluations.forward == layer(h0, [0.0, 1.0]).evaluations.forward


@pytest.mark.parametrize("per_sample", [False, True])
def test_times_that_are_the_ends_of_steps(per_sample: bool) -> None:
    """The end of every step belongs to exactly one step, in spite of rounding."""
    h0 = torch.tensor([[1.0, 0.5]], dtype=torch.float64)
    sizes = solve(rotation, (h0,), [0.0, 1.0], Solver(**TIGHT), per_sample=per_sample).evaluations.step_sizes
    ends, t = [], 0.0
    for dt in sizes:
        t = t + dt
        ends.append(min(t, 1.0))
    times = torch.tensor([ends], dtype=torch.float64)
    found = solve_at(rotation, (h0,), (0.0, 1.0), times, Solver(**TIGHT), per_sample=per_sample).h
    c, s = torch.cos(3 * times), torch.sin(3 * times)
    assert len(ends) > 5
    assert torch.allclose(found[..., 0], c * 1.0 - s * 0.5, atol=1e-7)


@pytest.mark.parametrize("gradient", ["backprop", "checkpointed", "adjoint"])
def test_gradients_against_central_differences(gradient: str) -> None:
    layer = co_evolving("pairwise", Solver("dopri5", gradient=gradient, rtol=1e-9, atol=1e-11))  # type: ignore[arg-type]
    h0, t = torch.tensor([[0.3, -0.7], [1.1, 0.2]], dtype=torch.float64), own_times(2, 3)

    def loss() -> Tensor:
        return (layer.at(h0, t).h * torch.arange(1, 7, dtype=torch.float64).view(2, 3, 1)).square().sum()

    inputs = list(layer.named_parameters())
    assert check_gradients(loss, inputs, rel=1e-4) == len(inputs)


@pytest.mark.parametrize("gradient", ["backprop", "checkpointed", "adjoint"])
@pytest.mark.parametrize("training", [True, False])
def test_times_outside_the_span_are_refused(gradient: str, training: bool) -> None:
    """An extrapolated step would be wrong without a word."""
    layer = co_evolving("pairwise", Solver(gradient=gradient)).train(training)  # type: ignore[arg-type]
    h0 = torch.ones(2, 2, dtype=torch.float64)
    for outside in (3.0, -0.5, 1.001, float("nan")):
        times = torch.tensor([[0.5, outside], [0.2, 0.4]], dtype=torch.float64)
        with pytest.raises(UserError, match="leave the span from 0 to 1: pass span="):
            layer.at(h0, times)
    assert layer.at(h0, torch.tensor([[3.0], [-0.5]]), span=(-0.5, 3.0)).h.shape == (2, 1, 2)
    rounded = torch.tensor([[1.0 + 1e-7], [1.0]])  # of single-precision division
    assert torch.allclose(layer.at(h0, rounded).h[0], layer.at(h0, rounded).h[1], atol=1e-5)


def test_cubics_between_ends_of_steps_are_exact_for_cubics() -> None:
    grid, times = [0.0, 0.25, 1.0], torch.tensor([[0.0, 0.1, 0.25], [1.0, 0.6, 0.3]], dtype=torch.float64)
    t = torch.tensor(grid, dtype=torch.float64)
    scale = torch.tensor([[1.0, -2.0], [3.0, 0.5]], dtype=torch.float64)  # (B, d)
    h = (t**3 - t)[:, None, None] * scale
    slopes = (3 * t**2 - 1)[:, None, None] * scale
    found = interpolate_between(grid, h, slopes, times)
    torch.testing.assert_close(found, (times**3 - times)[..., None] * scale[:, None])
