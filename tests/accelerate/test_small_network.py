"""The passes in numpy against the library's layers and autograd."""

from __future__ import annotations

import pytest
import torch

from acenode import SolveError
from acenode.accelerate.small_network import SmallNetwork
from acenode.playground.learner import SideBySide, build
from acenode.playground.problems import PROBLEMS
from acenode.playground.settings import PlaygroundSettings

TIMES = [k / 24 for k in range(25)]


@pytest.mark.parametrize("attention", ["elementwise", "pairwise"])
@pytest.mark.parametrize("problem", ["swap", "circles", "drawn"])
def test_training_in_numpy_is_training_in_torch(problem: str, attention: str) -> None:
    settings = PlaygroundSettings(problem=problem, attention=attention, penalty_weight=0.05, tolerance=1e-3)
    plain, fast = SideBySide(settings), SideBySide(settings)
    for learner in plain.learners:
        learner.trainer.engine = None
    for _ in range(2):
        plain.step()
        fast.step()
    for a, b in zip(plain.learners, fast.learners, strict=True):
        assert a.evaluations == b.evaluations
        assert a.losses.last == pytest.approx(b.losses.last, rel=1e-5)
        for p, q in zip(a.network.layer.parameters(), b.network.layer.parameters(), strict=True):
            assert p.grad is not None
            assert q.grad is not None
            assert torch.allclose(p.grad, q.grad, rtol=1e-3, atol=1e-5)
            assert torch.allclose(p, q, atol=1e-5)


@pytest.mark.parametrize("attention", ["elementwise", "pairwise"])
def test_trajectories_in_numpy_are_those_of_the_layers(attention: str) -> None:
    problem = PROBLEMS["circles"]()
    for network in build(2, 8, 1e-3, attention, 2):
        with torch.no_grad():
            expected = network.layer(problem.h0, TIMES)
        found = SmallNetwork(network.layer, network.d).trajectory(problem.h0, TIMES)
        assert torch.allclose(found.h, expected.h, atol=1e-5)
        assert found.evaluations.step_sizes == pytest.approx(expected.evaluations.step_sizes, rel=1e-3)
        assert (found.a is None) == (expected.a is None)
        if found.a is not None and expected.a is not None:
            assert torch.allclose(found.a, expected.a, atol=1e-5)


def test_a_field_that_is_not_finite_is_an_error() -> None:
    network = build(1, 4, 0.01, "elementwise", 0)[0]
    with torch.no_grad():
        network.layer.f.write.bias.fill_(float("inf"))
    with pytest.raises(SolveError, match="NaN or infinity"):
        SmallNetwork(network.layer, network.d).trajectory(torch.ones(2, 1), TIMES)
