"""Steps per sample: equal to solving every sample alone with a scalar t, for any f, g and q."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from problems import Linear, central_difference, co_evolving
from torch import Tensor, nn

from acenode import ACENODE, NODE, Dense, Elementwise, Pairwise, Solver
from acenode.errors import SolveError
from acenode.node import time_use
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


SOLVER = Solver(rtol=1e-4, atol=1e-4)


class Rate(nn.Module):
    """A network of h whose output has the given shape, combined with t by `use`."""

    def __init__(self, d: int, shape: tuple[int, ...], use: Callable[[nn.Module, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.shape, self.use = shape, use
        self.net = nn.Linear(d, torch.Size(shape).numel())
        self.timed = nn.Linear(d + 1, torch.Size(shape).numel())

    def forward(self, h: Tensor, t: Tensor) -> Tensor:
        return self.use(self, h, t)


def times_output(rate: nn.Module, h: Tensor, t: Tensor) -> Tensor:
    return rate.net(h).unflatten(-1, rate.shape) * torch.cos(3 * t)  # type: ignore[operator, arg-type]


def with_input(rate: nn.Module, h: Tensor, t: Tensor) -> Tensor:
    return rate.timed(torch.cat((h, t * torch.ones_like(h[..., :1])), -1)).unflatten(-1, rate.shape)  # type: ignore[operator, arg-type]


def as_number(rate: nn.Module, h: Tensor, t: Tensor) -> Tensor:
    return rate.net(h).unflatten(-1, rate.shape) * float(t)  # type: ignore[operator, arg-type]


def as_condition(rate: nn.Module, h: Tensor, t: Tensor) -> Tensor:
    return rate.net(h).unflatten(-1, rate.shape) * (1.0 if t < 0.5 else -1.0)  # type: ignore[operator, arg-type]


def first_time(rate: nn.Module, h: Tensor, t: Tensor) -> Tensor:
    return rate.net(h).unflatten(-1, rate.shape) * t.flatten()[0]  # type: ignore[operator, arg-type]


def layer_of(d: int, use_f: Callable, use_g: Callable, kind: str = "pairwise", **options: object) -> ACENODE:
    torch.manual_seed(0)
    pairwise = kind == "pairwise"
    g = Rate(d, (d, d) if pairwise else (d,), use_g)
    attend = Pairwise() if pairwise else Elementwise()
    return ACENODE(Rate(d, (d,), use_f), g, Dense((d,), kind), attend=attend, solver=SOLVER, **options).double()  # type: ignore[arg-type]


def states(d: int, B: int) -> Tensor:
    scale = torch.linspace(0.2, 4.0, B, dtype=torch.float64)[:, None]  # so that the samples take different steps
    return scale * torch.randn(B, d, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.filterwarnings("ignore:f, g or q")
@pytest.mark.parametrize("B", [3, 5])
@pytest.mark.parametrize("kind", ["pairwise", "elementwise"])
@pytest.mark.parametrize(("use_f", "use_g"), [
    (times_output, times_output), (times_output, with_input), (with_input, times_output), (with_input, with_input),
    (as_number, with_input), (times_output, as_condition), (first_time, times_output)])
def test_evaluation_equals_every_sample_alone(use_f: Callable, use_g: Callable, kind: str, B: int) -> None:
    """For B other than d and for B = d, where a wrong broadcast raises no error."""
    layer, h0 = layer_of(3, use_f, use_g, kind), states(3, B)
    own = torch.rand(B, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    alone = [layer.train()(h0[b:b + 1], [0.0, 0.4, 1.0]) for b in range(B)]
    at_alone = [layer.at(h0[b:b + 1], own[b:b + 1]).h for b in range(B)]
    together, at = layer.eval()(h0, [0.0, 0.4, 1.0]), layer.at(h0, own).h
    assert torch.allclose(together.h, torch.cat([x.h for x in alone], 1), atol=1e-9)
    assert torch.allclose(together.a, torch.cat([x.a for x in alone], 1), atol=1e-9)  # type: ignore[arg-type, misc]
    assert torch.allclose(at, torch.cat(at_alone), atol=1e-9)


def test_a_field_that_needs_a_number_is_reported_once() -> None:
    layer = NODE(Rate(2, (2,), as_number), SOLVER).double().eval()
    with pytest.warns(UserWarning, match="every sample is solved alone, which is slow: let it broadcast t"):
        layer(states(2, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(states(2, 4))


def test_fixed_attention_passes_q_a_time_that_broadcasts() -> None:
    class Turning(nn.Module):
        def forward(self, h: Tensor, t: Tensor | float) -> Tensor:
            return h.unsqueeze(-1) * h.unsqueeze(-2) * torch.cos(torch.as_tensor(t) * 3)

    torch.manual_seed(0)
    layer = ACENODE(Rate(3, (3,), times_output), q=Turning(), attention="fixed", solver=SOLVER).double()
    h0 = states(3, 3)
    alone = torch.cat([layer(h0[b:b + 1]).h for b in range(3)], 1)
    assert torch.allclose(layer.eval()(h0).h, alone, atol=1e-9)


def test_a_field_whose_samples_interact_keeps_shared_steps() -> None:
    """Nodes of a graph on the first axis: they are no samples of a batch."""
    A = torch.rand(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    class Graph(nn.Module):
        def forward(self, h: Tensor, t: Tensor) -> Tensor:
            return A @ h * torch.cos(t)

    layer, h0 = NODE(Graph(), SOLVER), states(3, 4)
    assert torch.equal(layer.train()(h0).h, layer.eval()(h0).h)
    assert time_use(lambda t, y: (y[0].mean(0) * torch.cos(t) + 0 * y[0],), (h0,), (0.0, 1.0)) == "shared"
