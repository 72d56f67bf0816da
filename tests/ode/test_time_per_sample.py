"""Any f, g and q in evaluation: each sample equals the same sample solved alone with a scalar t."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from acenode import ACENODE, NODE, Dense, Elementwise, Pairwise, Solver
from acenode.node import time_use

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


@pytest.mark.parametrize("use", [times_output, with_input])
def test_a_field_that_broadcasts_t_is_solved_as_one_batch(use: Callable) -> None:
    layer, h0 = layer_of(3, use, use).eval(), states(3, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cost = layer(h0).evaluations
    assert cost.forward < sum(layer(h0[b:b + 1]).evaluations.forward for b in range(3))


def test_a_field_that_needs_a_number_is_reported_once() -> None:
    layer = NODE(Rate(2, (2,), as_number), SOLVER).double().eval()
    with pytest.warns(UserWarning, match="every sample is solved alone, which is slow: let it broadcast t"):
        layer(states(2, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(states(2, 4))


@pytest.mark.filterwarnings("ignore:f, g or q")
def test_how_t_is_read_is_decided_again_when_f_changes() -> None:
    """By a replaced module, by loaded parameters, and by a part that is put into another mode."""
    class Chosen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rate, self.kind = Rate(3, (3,), times_output), nn.Parameter(torch.zeros(()))

        def forward(self, h: Tensor, t: Tensor) -> Tensor:
            use = first_time if self.kind > 0 or self.rate.training else times_output
            return use(self.rate, h, t)

    torch.manual_seed(0)
    layer, h0 = NODE(Chosen(), SOLVER).double().eval(), states(3, 5)

    def check() -> None:
        alone = [layer(h0[b:b + 1]).h for b in range(5)]
        assert torch.allclose(layer(h0).h, torch.cat(alone, 1), atol=1e-9)

    check()
    layer.load_state_dict(layer.state_dict() | {"f.kind": torch.ones(())})
    check()
    layer.load_state_dict(layer.state_dict() | {"f.kind": torch.zeros(())})
    layer.f.rate.train()
    check()
    layer.f = Rate(3, (3,), as_condition).double().eval()
    check()


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
