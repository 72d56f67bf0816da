"""Steps per sample: equal to solving every sample alone with a scalar t, for any f, g and q."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from problems import Linear, check_gradients, co_evolving
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

    inputs = [("h(0)", h0), *layer.named_parameters()]
    assert check_gradients(loss, inputs, rel=1e-6) == len(inputs)


def test_evaluations_of_the_whole_batch_are_counted() -> None:
    field, y = problem()
    cost = solve(field, y, [0.0, 1.0], Solver(rtol=1e-3, atol=1e-3), per_sample=True).evaluations
    assert cost.forward == 2 + 6 * (cost.accepted + cost.rejected)


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


SOLVER = Solver(rtol=1e-4, atol=1e-4)
FACTORS: dict[str, Callable[[Tensor], Tensor | float]] = {  # what a field multiplies its output by
    "output": lambda t: torch.cos(3 * t), "input": lambda t: 1.0, "number": float,
    "condition": lambda t: 1.0 if t < 0.5 else -1.0, "first": lambda t: t.flatten()[0]}


class Rate(nn.Module):
    """A linear layer of h, and of t if `use` is "input", whose output has the given shape."""

    def __init__(self, d: int, shape: tuple[int, ...], use: str) -> None:
        super().__init__()
        self.shape, self.use = shape, use
        self.linear = nn.Linear(d + (use == "input"), torch.Size(shape).numel())

    def forward(self, h: Tensor, t: Tensor) -> Tensor:
        y = torch.cat((h, t * torch.ones_like(h[..., :1])), -1) if self.use == "input" else h
        return self.linear(y).unflatten(-1, self.shape) * FACTORS[self.use](t)


def states(d: int, B: int) -> Tensor:
    scale = torch.linspace(0.2, 4.0, B, dtype=torch.float64)[:, None]  # so that the samples take different steps
    return scale * torch.randn(B, d, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.filterwarnings("ignore:f, g or q")
@pytest.mark.parametrize("B", [3, 5])
@pytest.mark.parametrize("kind", ["pairwise", "elementwise"])
@pytest.mark.parametrize(("use_f", "use_g"), [
    ("output", "output"), ("output", "input"), ("input", "output"), ("input", "input"), ("number", "input"),
    ("output", "condition"), ("first", "output")])
def test_evaluation_equals_every_sample_alone(use_f: str, use_g: str, kind: str, B: int) -> None:
    """For B other than d and for B = d, where a wrong broadcast raises no error."""
    torch.manual_seed(0)
    shape, attend = ((3, 3), Pairwise()) if kind == "pairwise" else ((3,), Elementwise())
    f, g, h0 = Rate(3, (3,), use_f), Rate(3, shape, use_g), states(3, B)
    layer = ACENODE(f, g, Dense((3,), kind), attend=attend, solver=SOLVER).double()
    own = torch.rand(B, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    alone = [layer.train()(h0[b:b + 1], [0.0, 0.4, 1.0]) for b in range(B)]
    at_alone = [layer.at(h0[b:b + 1], own[b:b + 1]).h for b in range(B)]
    together, at = layer.eval()(h0, [0.0, 0.4, 1.0]), layer.at(h0, own).h
    assert torch.allclose(together.h, torch.cat([x.h for x in alone], 1), atol=1e-9)
    assert torch.allclose(together.a, torch.cat([x.a for x in alone], 1), atol=1e-9)  # type: ignore[arg-type, misc]
    assert torch.allclose(at, torch.cat(at_alone), atol=1e-9)


def test_a_field_that_needs_a_number_is_reported_once() -> None:
    layer = NODE(Rate(2, (2,), "number"), SOLVER).double().eval()
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
    layer = ACENODE(Rate(3, (3,), "output"), q=Turning(), attention="fixed", solver=SOLVER).double()
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
