"""Steps per sample: equal to solving every sample alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from problems import Linear, central_difference, co_evolving, relative
from torch import Tensor

from acenode import NODE, Solver
from acenode.errors import SolveError
from acenode.models.image.layers import TimeConv
from acenode.ode.solve import solve
from acenode.ode.tableaus import TABLEAUS

ADAPTIVE = [name for name, tableau in TABLEAUS.items() if tableau.adaptive]
State = tuple[Tensor, ...]


def problem() -> tuple[Linear, State]:
    generator = torch.Generator().manual_seed(1)
    field = Linear(3, generator)
    with torch.no_grad():
        field.M *= 4
    scale = torch.tensor([1e-3, 1.0, 50.0, 0.0], dtype=torch.float64)[:, None]  # samples that need different steps
    return field, tuple(scale * torch.randn(4, 3, generator=generator, dtype=torch.float64) for _ in range(2))


@pytest.mark.parametrize("method", ADAPTIVE)
@pytest.mark.parametrize("times", [[0.0, 1.0], [0.0, 0.3, 0.31, 0.9, 2.0], [1.0, 0.4, -0.5]])
def test_equals_every_sample_solved_alone(method: str, times: list[float]) -> None:
    field, y = problem()
    solver = Solver(method, rtol=1e-3, atol=1e-3)
    with torch.no_grad():
        together = solve(field, y, times, solver, per_sample=True).states
        alone = [solve(field, tuple(b[i:i + 1] for b in y), times, solver).states for i in range(4)]
    for block, blocks in zip(together, zip(*alone, strict=True), strict=True):
        assert torch.allclose(block, torch.cat(blocks, dim=1), rtol=1e-6, atol=1e-13)  # cancellation in dopri8


@pytest.mark.parametrize("method", ADAPTIVE)
def test_matches_the_matrix_exponential(method: str) -> None:
    field, y = problem()
    tolerance = 1e-6 if method == "adaptive_heun" else 1e-7  # of second order: thousands of steps
    with torch.no_grad():
        h, a = solve(field, y, [0.0, 0.7], Solver(method, rtol=tolerance, atol=tolerance / 100, max_steps=100_000),
                     per_sample=True).states
        exact_h, exact_a = field.exact(*y, 0.7)
    assert relative(h[-1], exact_h) < 1e-4
    assert relative(a[-1], exact_a) < 1e-4


@pytest.mark.parametrize("kind", ["pairwise", "elementwise"])
def test_gradient_equals_central_differences(kind: str) -> None:
    layer = co_evolving(kind, Solver(rtol=1e-9, atol=1e-9)).eval()
    h0 = torch.tensor([[0.3, -0.2], [2.0, 1.0]], dtype=torch.float64, requires_grad=True)

    def loss() -> Tensor:
        return layer(h0).h[-1].square().sum()

    loss().backward()
    for x in (h0, *layer.parameters()):
        assert x.grad is not None
        assert torch.allclose(x.grad, central_difference(loss, x), rtol=1e-6, atol=1e-7)


def test_evaluations_of_the_whole_batch_are_counted() -> None:
    field, y = problem()
    cost = solve(field, y, [0.0, 1.0], Solver(rtol=1e-3, atol=1e-3), per_sample=True).evaluations
    assert cost.forward == 2 + 6 * (cost.accepted + cost.rejected)


def test_failure_of_one_sample_is_a_solve_error() -> None:
    def blow_up(t: Tensor, y: State) -> State:
        return (y[0] ** 2,)  # y(t) = 1 / (1/y0 - t)

    y = (torch.tensor([[0.1], [4.0]], dtype=torch.float64),)
    with pytest.raises(SolveError, match="t=0.25"):
        solve(blow_up, y, [0.0, 1.0], Solver(), per_sample=True)
    with pytest.raises(SolveError, match="step limit of 3"):
        solve(blow_up, y, [0.0, 0.2], Solver(rtol=1e-9, atol=1e-9, max_steps=3), per_sample=True)
    with pytest.raises(SolveError, match="NaN"):
        solve(lambda t, y: (torch.log(-y[0]),), y, [0.0, 1.0], Solver(), per_sample=True)
    with pytest.raises(SolveError, match="initial state"):
        solve(blow_up, (y[0] * torch.nan,), [0.0, 1.0], Solver(), per_sample=True)


def test_the_step_limit_names_a_step_of_an_unfinished_sample() -> None:
    """The constant sample finishes with its first step; the step size reported is the other one's."""
    def turn(t: Tensor, y: State) -> State:
        return (40 * torch.stack((-y[0][:, 1], y[0][:, 0]), 1),)

    y = (torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64),)
    with pytest.raises(SolveError, match="step limit of 30") as caught:
        solve(turn, y, [0.0, 2.0], Solver(max_steps=30), per_sample=True)
    with pytest.raises(SolveError) as alone:
        solve(turn, (y[0][1:],), [0.0, 2.0], Solver(max_steps=30), per_sample=True)
    assert caught.value.dt == pytest.approx(alone.value.dt)
    assert caught.value.dt > 0
    with pytest.raises(SolveError) as backward:
        solve(turn, y, [0.0, -2.0], Solver(max_steps=30), per_sample=True)
    assert backward.value.dt < 0


@pytest.mark.parametrize("times", [[0.0, 1.0], [0.0, 0.2, 0.21, 0.5, 0.9, 1.0]])
def test_a_step_waits_for_the_device_once(times: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    field, y = problem()
    reads: list[str] = []

    def counted(name: str) -> Any:
        whole = getattr(Tensor, name)
        return lambda self: (reads.append(name), whole(self))[1]

    for name in ("tolist", "item", "__bool__", "__float__", "__int__"):
        monkeypatch.setattr(Tensor, name, counted(name))
    with torch.no_grad():
        cost = solve(field, y, times, Solver(rtol=1e-3, atol=1e-3), per_sample=True).evaluations
    assert len(reads) == len(y) + cost.accepted + cost.rejected  # and once per block of the initial state


def test_shared_steps_keep_a_scalar_time() -> None:
    """For an f that cannot take one time per sample."""
    class Rate(torch.nn.Module):
        def forward(self, h: Tensor, t: Tensor) -> Tensor:
            return h * float(t)

    layer = NODE(Rate(), Solver(per_sample=False)).eval()
    assert relative(layer(torch.ones(5, 2)).h[-1], torch.full((5, 2), 0.5).exp()) < 1e-4


def test_a_convolution_takes_one_time_per_sample() -> None:
    torch.manual_seed(0)
    conv = TimeConv(3, 4).double()
    conv.initialise(torch.Generator().manual_seed(0))
    x = torch.randn(5, 3, 4, 4, dtype=torch.float64)
    t, weight = torch.rand(5, dtype=torch.float64), torch.randn(5, 4, 4, 4, dtype=torch.float64)
    together = conv(x, t.view(-1, 1, 1, 1))
    (together * weight).sum().backward()
    gradients = [p.grad.clone() for p in conv.parameters() if p.grad is not None]
    conv.zero_grad()
    alone = torch.cat([conv(x[i:i + 1], t[i]) for i in range(5)])
    (alone * weight).sum().backward()
    assert torch.allclose(together, alone)
    assert len(gradients) == 3
    assert all(torch.allclose(g, p.grad) for g, p in zip(gradients, conv.parameters(), strict=True))  # type: ignore[arg-type]
