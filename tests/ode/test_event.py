"""A solve that ends at an event: its time, its state and their gradients, against closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from acenode import NODE, Solver, UserError, solve

State = tuple[Tensor, ...]
G = 9.81
TIGHT = Solver(rtol=1e-9, atol=1e-9)


def fall(t: Tensor, state: State) -> State:
    return state[1], torch.full_like(state[1], -G)


def ground(t: Tensor, state: State) -> Tensor:
    return state[0].min()


@pytest.mark.parametrize("solver", [TIGHT, Solver("rk4", step_size=0.1), Solver("bosh3", rtol=1e-9, atol=1e-9)])
def test_a_ball_that_falls_and_the_gradients_of_its_landing(solver: Solver) -> None:
    height = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    found = solve(fall, (height, torch.zeros_like(height)), [0.0, 0.25, 0.5, 1.0, 3.0], solver, event=ground)
    t = math.sqrt(2 * 2.0 / G)
    assert found.t.tolist() == pytest.approx([0.0, 0.25, 0.5, t], abs=1e-7)
    assert found.states[0][:, 0].tolist() == pytest.approx([2.0, 2 - G / 32, 2 - G / 8, 0.0], abs=1e-6)
    assert float(found.states[1][-1].detach()) == pytest.approx(-G * t, abs=1e-5)
    assert found.event_t is not None
    (slope,) = torch.autograd.grad(found.event_t, height, retain_graph=True)
    assert float(slope) == pytest.approx(1 / (G * t), rel=1e-5)  # d√(2h/G)/dh
    (slope,) = torch.autograd.grad(found.states[1][-1].sum(), height)
    assert float(slope) == pytest.approx(-1 / t, rel=1e-5)  # v = -√(2 G h)


def test_an_event_that_does_not_happen_changes_nothing() -> None:
    height = torch.tensor([2.0], dtype=torch.float64)
    times = [0.0, 0.2, 0.4]
    found = solve(fall, (height, 0 * height), times, TIGHT, event=ground)
    plain = solve(fall, (height, 0 * height), times, TIGHT)
    assert found.event_t is None
    assert torch.allclose(found.states[0], plain.states[0], atol=1e-12)
    assert plain.t.tolist() == times


def test_backward_in_time_and_an_event_of_time() -> None:
    y = torch.ones(2, 3, dtype=torch.float64)
    found = solve(lambda t, s: (-s[0],), (y,), [1.0, 0.0], TIGHT, event=lambda t, s: t - 0.25)
    assert float(found.event_t) == pytest.approx(0.25)  # type: ignore[arg-type]
    assert torch.allclose(found.states[0][-1], y * math.exp(0.75), atol=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_a_layer_ends_at_an_event(training: bool) -> None:
    class Grow(nn.Module):
        def forward(self, h: Tensor, t: Tensor) -> Tensor:
            return h

    layer = NODE(Grow(), TIGHT).train(training)
    path = layer(torch.tensor([[1.0, 2.0]], dtype=torch.float64), [0.0, 0.5, 3.0], event=lambda t, h, a: h.max() - 6)
    assert float(path.event_t) == pytest.approx(math.log(3), abs=1e-6)
    assert path.t.tolist() == pytest.approx([0.0, 0.5, math.log(3)], abs=1e-6)
    assert path.h[-1].flatten().tolist() == pytest.approx([3.0, 6.0], abs=1e-5)


def test_wrong_events_are_refused() -> None:
    y = torch.ones(3, dtype=torch.float64)
    with pytest.raises(UserError, match=r"one number, not \(3,\): reduce it over the batch, such as by min"):
        solve(lambda t, s: (-s[0],), (y,), [0.0, 1.0], event=lambda t, s: s[0])
    for settings in ({"gradient": "adjoint"}, {"gradient": "checkpointed"}, {"engine": "reference"}):
        with pytest.raises(UserError, match='an event needs our own Runge–Kutta steps and gradient "backprop"'):
            solve(lambda t, s: (-s[0],), (y,), [0.0, 1.0], Solver(**settings), event=ground)  # type: ignore[arg-type]


def jump(t: Tensor, state: State) -> Tensor:
    return (state[0].max() > 2).double() - 0.5  # has no graph


def sign(t: Tensor, state: State) -> Tensor:
    return torch.sign(state[0].max() - 2)  # has a graph whose gradient is 0


def cube(t: Tensor, state: State) -> Tensor:
    return (state[0].max() - 2) ** 3  # has no slope where it crosses zero


@pytest.mark.parametrize("event", [jump, sign, cube])
def test_an_event_without_a_slope_ends_the_solve_and_has_no_gradient(event: Callable) -> None:
    """dy/dt = 1 from y(0) = 1; a gradient that would be NaN is refused, and earlier times keep theirs."""
    solver, y = Solver("rk4", step_size=0.25), torch.ones(1, dtype=torch.float64)
    for needed in (False, True):
        y.requires_grad_(needed)
        found = solve(lambda t, s: (torch.ones_like(s[0]),), (y,), [0.0, 0.5, 3.0], solver, event=event)
        assert found.event_t is not None
        assert float(found.event_t.detach()) == pytest.approx(1.0, abs=1e-9)
        assert found.states[0][:, 0].tolist() == pytest.approx([1.0, 1.5, 2.0], abs=1e-9)
    assert float(torch.autograd.grad(found.states[0][1].sum(), y, retain_graph=True)[0]) == pytest.approx(1.0)
    for value in (found.event_t, found.states[0].sum()):
        with pytest.raises(UserError, match="^the time of the event has no gradient, .*: use a smooth function, or "):
            torch.autograd.grad(value, y, retain_graph=True)  # type: ignore[arg-type]


def landing(height: Tensor) -> Tensor:
    found = solve(fall, (height, torch.zeros_like(height)), [0.0, 3.0], TIGHT, event=ground)
    assert found.event_t is not None
    return found.event_t


def test_transforms_of_torch_func_pass_through_an_event_or_are_refused() -> None:
    height, slope = torch.full((1,), 2.0, dtype=torch.float64), 1 / math.sqrt(2 * G * 2.0)
    one = torch.ones(1, dtype=torch.float64)
    assert float(torch.func.grad(landing)(height)) == pytest.approx(slope, rel=1e-5)
    assert float(torch.func.jacrev(landing)(height)) == pytest.approx(slope, rel=1e-5)
    assert float(torch.func.jvp(landing, (height,), (one,))[1]) == pytest.approx(slope, rel=1e-5)
    with pytest.raises(UserError, match="^vmap cannot pass through a solve with an event, .*: call solve for each"):
        torch.func.vmap(landing)(height[None])
    for transform in (torch.func.grad, torch.func.jacrev):
        with pytest.raises(UserError, match="^the time of the event has no gradient"):
            transform(lambda y: solve(lambda t, s: (s[0],), (y,), [0.0, 3.0], TIGHT, event=sign).event_t)(height / 2)


@pytest.mark.parametrize("what", ["time", "state"])
def test_second_derivatives_of_an_event_are_refused(what: str) -> None:
    height = torch.full((1,), 2.0, dtype=torch.float64, requires_grad=True)
    found = solve(fall, (height, torch.zeros_like(height)), [0.0, 0.3, 3.0], TIGHT, event=ground)
    assert found.event_t is not None
    value = found.event_t if what == "time" else found.states[1][-1].sum()
    (first,) = torch.autograd.grad(value, height, create_graph=True)
    assert first.isfinite().all()
    with pytest.raises(UserError, match="have no second derivatives: differentiate them once"):
        torch.autograd.grad(first.sum(), height)
