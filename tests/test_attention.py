"""Attention (Eqs. 4 and 5), the initial attention q, and the ODE layers, against the formulas written out."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from problems import Smooth, relative

from acenode import ACENODE, NODE, AugmentedNODE, Correlation, Dense, Elementwise, Pairwise, Solver, UserError
from acenode.attention import correlation, mean_correlation


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_pairwise_attention_is_the_softmax_weighted_sum() -> None:
    h, a = noise(5, 3), noise(5, 3, 3, seed=1)
    attended = Pairwise()(h, a)
    for b in range(5):
        for i in range(3):
            e = [math.exp(a[b, i, j]) for j in range(3)]
            assert attended[b, i].item() == pytest.approx(sum(e[j] * h[b, j].item() for j in range(3)) / sum(e))
    assert torch.allclose(Pairwise.weights(a).sum(-1), torch.ones(5, 3, dtype=torch.float64))


def test_elementwise_attention_multiplies_by_a_sigmoid() -> None:
    h, a = noise(2, 3, 4, 4), noise(2, 3, 4, 4, seed=1)
    assert torch.allclose(Elementwise()(h, a), h / (1 + torch.exp(-a)))


def test_correlation_equals_numpy() -> None:
    h = noise(50, 4) @ noise(4, 4, seed=1)
    assert np.allclose(correlation(h).numpy(), np.corrcoef(h.numpy(), rowvar=False))
    assert np.allclose(mean_correlation(h).numpy(), np.corrcoef(h.numpy(), rowvar=False).mean(1))
    assert torch.allclose(correlation(torch.stack((2 - h, h)))[1], correlation(h))


def test_a_constant_coordinate_has_the_row_of_the_identity() -> None:
    h = noise(10, 3)
    h[:, 1] = 7.0
    c = correlation(h)
    assert torch.equal(c[1], torch.eye(3, dtype=torch.float64)[1])
    assert torch.equal(c[:, 1], torch.eye(3, dtype=torch.float64)[1])
    assert c[0, 0].item() == pytest.approx(1)
    assert torch.equal(correlation(h[:1]), torch.eye(3, dtype=torch.float64))  # a batch of one
    assert torch.isfinite(correlation(torch.zeros(4, 3))).all()


def test_correlation_is_detached_and_equal_for_all_samples() -> None:
    q, h = Correlation((3,)).double(), noise(6, 3).requires_grad_()
    a = q(h)
    assert a.shape == (6, 3, 3)
    assert not a.requires_grad
    assert torch.equal(a[0], a[5])


def test_running_average_is_the_mean_of_the_first_batches() -> None:
    q = Correlation((3,)).double()
    batches = [noise(8, 3, seed=s) for s in range(4)]
    for h in batches:
        q(h)
    q.eval()
    mean = torch.stack([correlation(h) for h in batches]).mean(0)
    assert torch.allclose(q(noise(2, 3, seed=9))[0], mean)


def test_running_average_is_interpolated_in_time() -> None:
    q = Correlation((2,), bins=3).double()
    early, late = noise(8, 2), noise(8, 2, seed=1)
    q(early, 0.0)
    q(late, 1.0)
    q.eval()
    assert torch.allclose(q(early, 0.05)[0], correlation(early))  # the middle bin is empty
    q.train()
    q(late, 0.5)
    q.eval()
    assert torch.allclose(q(early, 0.25)[0], (correlation(early) + correlation(late)) / 2)


def ace(attention: str, q: torch.nn.Module, d: int = 3, solver: Solver | None = None) -> ACENODE:
    f, g = Smooth(d, d), Smooth(d, d * d, square=True)
    return ACENODE(f, g, q, attention=attention, solver=solver).double()  # type: ignore[arg-type]


@pytest.mark.parametrize("solver", [Solver("rk4", step_size=0.1), Solver(), Solver("dopri8", rtol=1e-2, atol=1e-2)])
@pytest.mark.parametrize("attention", ["evolving", "fixed"])
def test_a_prediction_does_not_depend_on_its_batch(attention: str, solver: Solver) -> None:
    torch.manual_seed(0)
    q = Correlation((3,), bins=1 if attention == "evolving" else 8)
    layer = ace(attention, q, solver=solver)
    for seed in range(3):
        layer(noise(16, 3, seed=seed))
    sample, some, others = noise(1, 3, seed=7), noise(9, 3, seed=8), noise(4, 3, seed=9) * 5

    def beside(layer: ACENODE, rest: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return layer(torch.cat((sample, rest))).h[-1, 0]

    layer.eval()
    assert relative(beside(layer, some), beside(layer, others)) < 1e-12
    layer.train()  # not trivial: it fails with the batch's own correlation
    assert relative(beside(layer, some), beside(layer, others)) > 1e-4


def test_fixed_attention_reads_the_correlation_at_every_evaluation() -> None:
    """Equals Euler steps written out."""
    torch.manual_seed(0)
    layer = ace("fixed", Correlation((3,), bins=4), solver=Solver("euler", step_size=0.25))
    h = noise(6, 3)
    trajectory = layer(h, [0.0, 0.25, 0.5, 0.75, 1.0])
    for t in range(4):
        h = h + 0.25 * layer.f(Pairwise()(h, correlation(h).expand(6, 3, 3)), torch.tensor(t / 4))
        assert torch.allclose(trajectory.h[t + 1], h)
        assert torch.allclose(trajectory.a[t + 1, 0], correlation(h))  # type: ignore[index]
    assert layer.g is None


def test_no_attention_is_a_plain_node() -> None:
    torch.manual_seed(0)
    layer = ace("none", Correlation((3,)))
    h = noise(6, 3)
    assert torch.equal(layer(h).h, NODE(layer.f)(h).h)
    assert layer(h).a is None
    assert {name.split(".")[0] for name, _ in layer.named_parameters()} == {"f"}


def test_augmented_appends_zeros() -> None:
    class Constant(torch.nn.Module):
        def forward(self, h: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            return torch.ones_like(h)

    out = AugmentedNODE(Constant(), extra=5, dim=1)(torch.ones(2, 3, 4, 4)).h
    assert out.shape == (2, 2, 8, 4, 4)
    assert torch.allclose(out[-1, :, 3:], torch.ones(2, 5, 4, 4))
    assert AugmentedNODE(Constant(), extra=2, dim=-1)(torch.ones(2, 3)).h.shape == (2, 2, 5)


def test_detached_attention_keeps_the_values_and_stops_the_gradient() -> None:
    torch.manual_seed(0)
    layer, h = ace("evolving", Dense((3,))), noise(6, 3)
    whole, detached = layer(h), layer(h, detach_attention=True)
    assert torch.equal(whole.h, detached.h)
    detached.h[-1].sum().backward()
    assert layer.f.inner.weight.grad is not None
    assert all(p.grad is None or not p.grad.any() for p in [*layer.g.parameters(), *layer.q.parameters()])


def test_g_can_read_attention() -> None:
    class Decay(torch.nn.Module):
        def forward(self, h: torch.Tensor, t: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
            return -a

    class Constant(torch.nn.Module):
        def forward(self, h: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            return torch.zeros_like(h)

    layer = ACENODE(Constant(), Decay(), Dense((3,)), g_reads_attention=True,
                    solver=Solver(rtol=1e-9, atol=1e-9)).double()
    trajectory = layer(noise(2, 3))
    assert relative(trajectory.a[-1], trajectory.a[0] * math.exp(-1)) < 1e-8  # type: ignore[index]


class One(torch.nn.Module):
    """Returns the first entry only."""

    def forward(self, h: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return h[..., :1]


@pytest.mark.parametrize(("make", "message"), [
    (lambda: NODE(One())(torch.ones(8, 4)), r"f gave \(8, 1\) where h is \(8, 4\)"),
    (lambda: ace("evolving", Dense((3,), "elementwise"))(noise(6, 3)),
     r"needs a\(0\) of \(6, 3, 3\), and q gave \(6, 3\).*Elementwise"),
    (lambda: NODE(One(), solver="dopri5"), "must be a Solver"),
    (lambda: AugmentedNODE(One(), extra=0), "at least one"),
    (lambda: ACENODE(One()), "needs g"),
    (lambda: ACENODE(One(), attention="fixed"), "needs q"),
    (lambda: ACENODE(One(), attention="frozen"), "choose evolving, fixed or none")])
def test_wrong_layers_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()
