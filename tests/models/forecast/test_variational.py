"""The variational baselines against their equations: the sequential VAE and the neural ODE VAE."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from small_baselines import (
    HORIZON,
    LENGTHS,
    MODES,
    UNITS,
    D,
    H,
    all_series,
    assert_predicts,
    build,
    forecasting,
    training,
)
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from acenode.data.points import Points
from acenode.data.schedule import NoiseSource
from acenode.models.forecast.baselines import MIN_VARIANCE, SequentialVAE, kl
from acenode.models.layers import initialise

# The sequential VAE ------------------------------------------------------------------------------------------------


def linear(layer: Any, x: Tensor) -> Tensor:
    return layer.weight @ x + layer.bias


def softplus(x: Tensor) -> Tensor:
    return torch.log1p(torch.exp(x)) + MIN_VARIANCE


def transition_directly(p: Any, z: Tensor, gap: Tensor) -> Normal:
    y = torch.cat((z, gap.view(1)))
    gate = torch.sigmoid(linear(p.gate[2], torch.relu(linear(p.gate[0], y))))
    new = linear(p.new[2], torch.relu(linear(p.new[0], y)))
    mean = (1 - gate) * linear(p.linear, z) + gate * new
    return Normal(mean, softplus(linear(p.spread, torch.relu(new))).sqrt())


def posterior_directly(q: Any, z: Tensor, b: Tensor) -> Normal:
    y = linear(q.out, (torch.tanh(linear(q.own, z)) + b) / 2)
    return Normal(y[:H], softplus(y[H:]).sqrt())


def ahead_directly(q: Any, seen: Points, i: int, n: int) -> list[Tensor]:
    """Return b_t of the n points of a series."""
    b, found = torch.zeros(1, q.gru.size, dtype=torch.float64), []
    for k in reversed(range(n)):
        gap = seen.t[i, k] - (seen.t[i, k - 1] if k else 0.0)
        x = torch.cat((seen.x[i, k], seen.m[i, k], gap.view(1)))
        _, last = q.gru.layer(x.view(1, 1, -1), b.unsqueeze(0))
        b = last[0]
        found.insert(0, b[0])
    return found


@pytest.mark.parametrize("sampled", [True, False])
def test_the_sequential_vae_follows_its_equations(sampled: bool) -> None:
    model, batch = build("seq-vae").train(sampled), training(all_series(), seed=4)
    forecast, seen = model(batch), batch.seen
    noise = NoiseSource(4, torch.device("cpu")).normal(*seen.t.shape, H).double()
    total = torch.zeros((), dtype=torch.float64)
    for i, n in enumerate(LENGTHS):
        z, t = torch.zeros(H, dtype=torch.float64), torch.zeros(())
        for k, b in enumerate(ahead_directly(model.posterior, seen, i, n)):
            q, p = posterior_directly(model.posterior, z, b), transition_directly(model.prior, z, seen.t[i, k] - t)
            total = total + kl_divergence(q, p).sum()
            z, t = q.mean + (q.stddev * noise[i, k] if sampled else 0.0), seen.t[i, k]
            assert_predicts(forecast, i, k, model.head(z))
    assert torch.allclose(forecast.extra, total)


def test_a_sequential_forecast_follows_the_prior() -> None:
    model, batch = build("seq-vae"), forecasting(all_series())
    forecast, seen, target = model(batch), batch.seen, batch.target
    for i, n in enumerate(LENGTHS):
        z = torch.zeros(H, dtype=torch.float64)
        for b in ahead_directly(model.posterior, seen, i, n - 2):
            z = posterior_directly(model.posterior, z, b).mean
        t = seen.t[i, n - 3]
        for k in range(2):
            z, t = transition_directly(model.prior, z, target.t[i, k] - t).mean, target.t[i, k]
            assert_predicts(forecast, i, k, model.head(z))


def test_the_divergence_of_two_normals_agrees_with_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    mean, prior_mean = torch.randn(2, 5, generator=generator)
    variance, prior_variance = torch.rand(2, 5, generator=generator) + 0.1
    exact = kl_divergence(Normal(mean, variance.sqrt()), Normal(prior_mean, prior_variance.sqrt()))
    assert torch.allclose(kl(mean, variance, prior_mean, prior_variance), exact, atol=1e-6)


def test_a_transition_is_initialised_near_the_identity() -> None:
    model = SequentialVAE(D, H, 6, 5, UNITS)
    initialise(model, 0)
    assert torch.equal(model.prior.linear(torch.eye(H)), torch.eye(H))


# The neural ODE VAE ------------------------------------------------------------------------------------------------


@MODES
@pytest.mark.parametrize("kind", ["node-vae", "node-vae-mask"])
def test_an_ode_vae_starts_from_a_backward_gru(kind: str, mode: Any) -> None:
    model, batch = build(kind), mode(all_series())
    forecast, seen, target = model(batch), batch.seen, batch.target
    total = torch.zeros((), dtype=torch.float64)
    for i in range(len(LENGTHS)):
        n = int(seen.valid[i].sum())
        h = torch.zeros(1, 1, 5, dtype=torch.float64)
        for k in reversed(range(n)):
            gap = (seen.t[i, k] - (seen.t[i, k - 1] if k else 0.0)).view(1)
            parts = (seen.x[i, k], seen.m[i, k], gap) if kind == "node-vae-mask" else (seen.x[i, k], gap)
            _, h = model.gru.layer(torch.cat(parts).view(1, 1, -1), h)
        y = linear(model.out, h.view(-1))
        total = total + kl_divergence(Normal(y[:H], (y[H:] / 2).exp()), Normal(0.0, 1.0)).sum()
        for k in range(int(target.valid[i].sum())):
            z = model.ode(y[None, :H], [0.0, float(target.t[i, k]) / HORIZON]).h[-1, 0]
            mean, logvar = model.head(z)
            assert torch.allclose(forecast.mean[i, k], mean, atol=1e-5)
            assert torch.allclose(forecast.logvar[i, k], logvar, atol=1e-5)
    assert torch.allclose(forecast.extra, total)


def test_f_of_an_ode_vae_is_two_linear_layers_and_a_tanh() -> None:
    f, z = build("node-vae").ode.f, torch.linspace(-1, 1, H, dtype=torch.float64)
    first, second = f.layers.linear_layers()
    assert torch.allclose(f(z), linear(second, torch.tanh(linear(first, z))))


def test_an_ode_vae_starts_from_a_sample_in_training() -> None:
    model, batch = build("node-vae").train(), training(all_series(), seed=3)
    mean, logvar = model.encode(batch.seen)
    z0 = mean + (logvar / 2).exp() * NoiseSource(3, torch.device("cpu")).normal(*mean.shape)
    exact, _ = model.head(model.ode.at(z0, batch.target.t / HORIZON).h)
    assert torch.allclose(model(batch).mean, exact, atol=1e-12)


def test_an_ode_vae_tells_zero_from_unobserved_only_with_its_mask() -> None:
    batch = forecasting(all_series())
    seen = replace(batch.seen, m=batch.seen.valid.unsqueeze(-1).expand_as(batch.seen.m).double())
    assert not torch.equal(seen.m, batch.seen.m)
    masked = replace(batch, seen=seen)
    assert torch.equal(build("node-vae")(masked).mean, build("node-vae")(batch).mean)
    assert (build("node-vae-mask")(masked).mean - build("node-vae-mask")(batch).mean).abs().max() > 1e-3
