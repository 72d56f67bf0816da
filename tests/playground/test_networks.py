"""The mathematics behind the playground: what each network can and cannot do with two points."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from acenode import Solver
from acenode.playground.networks import build
from acenode.playground.problems import PROBLEMS

EXACT = Solver("dopri5", rtol=1e-8, atol=1e-8, per_sample=False)


@pytest.mark.parametrize("seed", range(5))
def test_points_of_a_node_on_a_line_keep_their_order(seed: int) -> None:
    node = build(1, 16, 0.01, "elementwise", seed)[0].layer.double()
    with torch.no_grad():
        for p in node.parameters():
            p.mul_(3.0)  # a steep field
        node.solver = EXACT
        start = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
        h = node(start, torch.linspace(0, 1, 11)).h[..., 0]
    assert bool((h.diff(dim=1) > 0).all())


@pytest.mark.parametrize(("attention", "crosses"), [("elementwise", True), ("pairwise", False)])
def test_attention_of_one_coordinate(attention: str, crosses: bool) -> None:
    """Elementwise attention gives two points different fields at one place; the softmax of one score is always one."""
    ace = build(1, 16, 0.01, attention, 0)[2]
    place = torch.ones(2, 1)
    rates = ace.rates(place, torch.tensor(0.5), [place, torch.tensor([-3.0, 3.0]).reshape(2, *[1] * (2 - crosses))])
    assert (float((rates[0] - rates[1]).abs().max().detach()) > 0.01) == crosses


def test_elementwise_attention_has_no_effect_at_zero() -> None:
    ace = build(1, 16, 0.01, "elementwise", 0)[2]
    rates = ace.rates(torch.zeros(2, 1), torch.tensor(0.5), [torch.zeros(2, 1), torch.tensor([[-3.0], [3.0]])])
    assert torch.equal(rates[0], rates[1])


@pytest.mark.parametrize("attention", ["elementwise", "pairwise"])
@pytest.mark.parametrize("name", ["swap", "circles"])
def test_the_field_that_a_point_finds_where_it_is_moves_it(name: str, attention: str) -> None:
    problem = PROBLEMS[name]()
    step = 1e-3
    for network in build(problem.d, 8, 0.01, attention, 1):
        layer = network.layer.double()
        layer.solver = EXACT
        with torch.no_grad():
            trajectory = layer(problem.h0.double(), [0.0, 0.5 - step, 0.5, 0.5 + step])
            moved = (trajectory.h[3, 1] - trajectory.h[1, 1])[:problem.d] / (2 * step)
            found = network.field(trajectory.h[2, 1:2, :problem.d], trajectory, range(2, 3), 1)
        assert found.shape == (1, 1, problem.d)
        assert torch.allclose(found[0, 0], moved, atol=1e-5)


def test_networks_are_built_from_the_seed_alone() -> None:
    first, again, other = (build(2, 8, 0.01, "pairwise", seed) for seed in (3, 3, 4))
    for a, b, c in zip(first, again, other, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a.layer.parameters(), b.layer.parameters(), strict=True))
        assert not all(torch.equal(x, y) for x, y in zip(a.layer.parameters(), c.layer.parameters(), strict=True))
    assert replace(first[0], name="other").parameters == first[0].parameters == sum((16, 8, 8, 16, 2))
