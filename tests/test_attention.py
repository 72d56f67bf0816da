"""Attention and its beginnings against direct mathematics."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from problems import relative

from acenode import ACENODE, NODE, AugmentedNODE, Correlation, Dense, Elementwise, Pairwise, Solver, UserError
from acenode.attention import correlation, mean_correlation


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_pairwise_is_the_sum_over_j() -> None:
    h, a = noise(5, 3), noise(5, 3, 3, seed=1)
    attended = Pairwise()(h, a)
    for b in range(5):
        for i in range(3):
            e = [math.exp(a[b, i, j]) for j in range(3)]
            assert attended[b, i].item() == pytest.approx(sum(e[j] * h[b, j].item() for j in range(3)) / sum(e))
    assert torch.allclose(Pairwise.weights(a).sum(-1), torch.ones(5, 3, dtype=torch.float64))


def test_elementwise_is_a_gate() -> None:
    h, a = noise(2, 3, 4, 4), noise(2, 3, 4, 4, seed=1)
    assert torch.allclose(Elementwise()(h, a), h / (1 + torch.exp(-a)))


def test_correlation_is_numpys() -> None:
    h = noise(50, 4) @ noise(4, 4, seed=1)
    assert np.allclose(correlation(h).numpy(), np.corrcoef(h.numpy(), rowvar=False))
    assert np.allclose(mean_correlation(h).numpy(), np.corrcoef(h.numpy(), rowvar=False).mean(1))


def test_correlation_over_leading_axes() -> None:
    h = noise(3, 20, 4)
    assert torch.allclose(correlation(h)[1], correlation(h[1]))


def test_zero_variance_gives_the_identitys_rows() -> None:
    h = noise(10, 3)
    h[:, 1] = 7.0
    c = correlation(h)
    assert torch.equal(c[1], torch.eye(3, dtype=torch.float64)[1])
    assert torch.equal(c[:, 1], torch.eye(3, dtype=torch.float64)[1])
    assert c[0, 0].item() == pytest.approx(1)
    assert torch.equal(correlation(h[:1]), torch.eye(3, dtype=torch.float64))  # a batch of one
    assert torch.isfinite(correlation(torch.zeros(4, 3))).all()


def test_correlation_is_detached_and_shared() -> None:
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


def test_running_average_follows_time_where_attention_is_fixed() -> None:
    q = Correlation((2,), bins=3).double()
    early, late = noise(8, 2), noise(8, 2, seed=1)
    q(early, 0.0)
    q(late, 1.0)
    q.eval()
    assert torch.allclose(q(early, 0.05)[0], correlation(early))  # the middle bin was never met
    q.train()
    q(late, 0.5)
    q.eval()
    assert torch.allclose(q(early, 0.25)[0], (correlation(early) + correlation(late)) / 2)


def ace(attention: str, q: torch.nn.Module, d: int = 3, solver: Solver | None = None) -> ACENODE:
    class Rate(torch.nn.Module):
        def __init__(self, out: tuple[int, ...]) -> None:
            super().__init__()
            self.line, self.out = torch.nn.Linear(d, math.prod(out)), out

        def forward(self, h: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.line(h)).unflatten(-1, self.out)

    return ACENODE(Rate((d,)), Rate((d, d)), q, attention=attention, solver=solver).double()  # type: ignore[arg-type]


@pytest.mark.parametrize("solver", [Solver("rk4", step_size=0.1), Solver(), Solver("dopri8", rtol=1e-2, atol=1e-2)])
@pytest.mark.parametrize("attention", ["evolving", "fixed"])
def test_a_prediction_does_not_depend_on_its_batch_mates(attention: str, solver: Solver) -> None:
    torch.manual_seed(0)
    q = Correlation((3,), bins=1 if attention == "evolving" else 8)
    layer = ace(attention, q, solver=solver)
    for seed in range(3):
        layer(noise(16, 3, seed=seed))
    mine, mates, others = noise(1, 3, seed=7), noise(9, 3, seed=8), noise(4, 3, seed=9) * 5

    def with_mates(layer: ACENODE, mates: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return layer(torch.cat((mine, mates))).h[-1, 0]

    layer.eval()
    assert relative(with_mates(layer, mates), with_mates(layer, others)) < 1e-12
    layer.train()  # the property is not trivial: with the batch's own correlation it fails
    assert relative(with_mates(layer, mates), with_mates(layer, others)) > 1e-4


def test_fixed_attention_reads_the_correlation_at_every_evaluation() -> None:
    """One Euler step at a time, by hand."""
    torch.manual_seed(0)
    layer = ace("fixed", Correlation((3,), bins=4), solver=Solver("euler", step_size=0.25))
    h = noise(6, 3)
    trajectory = layer(h, [0.0, 0.25, 0.5, 0.75, 1.0])
    for t in range(4):
        h = h + 0.25 * layer.f(Pairwise()(h, correlation(h).expand(6, 3, 3)), torch.tensor(0.0))
        assert torch.allclose(trajectory.h[t + 1], h)
        assert torch.allclose(trajectory.a[t + 1, 0], correlation(h))  # type: ignore[index]
    assert layer.g is None


def test_no_attention_is_a_plain_node() -> None:
    torch.manual_seed(0)
    layer = ace("none", Correlation((3,)))
    h = noise(6, 3)
    assert torch.equal(layer(h).h, NODE(layer.f)(h).h)
    assert layer(h).a is None
    assert [n for n, _ in layer.named_parameters()] == ["f.line.weight", "f.line.bias"]


def test_augmented_appends_zeros() -> None:
    seen = []

    class Still(torch.nn.Module):
        def forward(self, h: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            seen.append(h.shape)
            return torch.ones_like(h)

    out = AugmentedNODE(Still(), extra=5, dim=1)(torch.ones(2, 3, 4, 4)).h
    assert out.shape == (2, 2, 8, 4, 4)
    assert torch.allclose(out[-1, :, 3:], torch.ones(2, 5, 4, 4))
    assert AugmentedNODE(Still(), extra=2, dim=-1)(torch.ones(2, 3)).h.shape == (2, 2, 5)


def test_detached_attention_keeps_the_value_and_drops_the_path() -> None:
    torch.manual_seed(0)
    layer, h = ace("evolving", Dense((3,))), noise(6, 3)
    whole, cut = layer(h), layer(h, detach_attention=True)
    assert torch.equal(whole.h, cut.h)
    cut.h[-1].sum().backward()
    assert layer.f.line.weight.grad is not None
    assert all(p.grad is None or not p.grad.any() for p in [*layer.g.parameters(), *layer.q.parameters()])


def test_g_may_read_attention_itself() -> None:
    class Decay(torch.nn.Module):
        def forward(self, h: torch.Tensor, t: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
            return -a

    class Still(torch.nn.Module):
        def forward(self, h: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            return torch.zeros_like(h)

    layer = ACENODE(Still(), Decay(), Dense((3,)), g_reads_attention=True,
                    solver=Solver(rtol=1e-9, atol=1e-9)).double()
    trajectory = layer(noise(2, 3))
    assert relative(trajectory.a[-1], trajectory.a[0] * math.exp(-1)) < 1e-8  # type: ignore[index]


def test_wrong_shapes_are_named() -> None:
    class One(torch.nn.Module):
        def forward(self, h: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            return h[..., :1]

    with pytest.raises(UserError, match=r"f gave \(8, 1\) where h is \(8, 4\)"):
        NODE(One())(torch.ones(8, 4))
    layer = ace("evolving", Dense((3,), "elementwise"))
    with pytest.raises(UserError, match=r"needs a\(0\) of \(6, 3, 3\), and q gave \(6, 3\).*Elementwise"):
        layer(noise(6, 3))
    with pytest.raises(UserError, match=r"made for a batch of \(5,\), not for \(6, 3\)"):
        ace("evolving", Correlation((5,)))(noise(6, 3))
    with pytest.raises(UserError, match="must be a Solver"):
        NODE(One(), solver="dopri5")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="at least one"):
        AugmentedNODE(One(), extra=0)


def test_missing_pieces_are_named() -> None:
    f = torch.nn.Identity()
    with pytest.raises(UserError, match="needs g"):
        ACENODE(f)
    with pytest.raises(UserError, match="needs q"):
        ACENODE(f, attention="fixed")
    with pytest.raises(UserError, match="choose evolving, fixed or none"):
        ACENODE(f, attention="frozen")  # type: ignore[arg-type]
