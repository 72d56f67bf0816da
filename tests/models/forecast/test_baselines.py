"""The forecasting baselines against their equations, one point of one series at a time, and their invariances."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from irregular_batches import filled, padded_more
from sporadic_batches import double, evolving, fixed, model_of
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from acenode import Solver
from acenode.data.points import Points, TimeSeries, pad
from acenode.data.schedule import NoiseSource, SporadicBatch
from acenode.models.forecast.baselines import (
    MIN_VARIANCE,
    ODEVAE,
    GRUSimple,
    RecurrentForecaster,
    SequentialVAE,
    TimeLSTM,
    gru_d,
)
from acenode.models.forecast.gaussian import Forecast, gaussian_nll, seen_and_targets

D, H, UNITS = 3, 4, 5
HORIZON, CUT = 20.0, 12.0
TIGHT = Solver("dopri5", rtol=1e-7, atol=1e-8)
LENGTHS = (6, 11, 4)

MODELS: dict[str, Callable[[], Any]] = {
    "gru-simple": lambda: RecurrentForecaster(GRUSimple(D, H), D, UNITS),
    "gru-d": lambda: RecurrentForecaster(gru_d(D, H), D, UNITS),
    "t-lstm": lambda: RecurrentForecaster(TimeLSTM(D, H), D, UNITS),
    "seq-vae": lambda: SequentialVAE(D, H, 6, 5, UNITS),
    "node-vae": lambda: ODEVAE(D, H, 6, 5, UNITS, mask=False, solver=TIGHT),
    "node-vae-mask": lambda: ODEVAE(D, H, 6, 5, UNITS, mask=True, solver=TIGHT),
}
RECURRENT = ["gru-simple", "gru-d", "t-lstm"]
AVERAGING: dict[str, Callable[[], Any]] = {  # attention that is a running average in evaluation
    "fixed": fixed, **{how: partial(evolving, at_jump=how) for how in ("recompute", "observed")}}
ATTENTIONS: dict[str, Callable[[], Any]] = {
    "none": lambda: None, "ace": lambda: evolving(every=3), "own": lambda: evolving(every=1, own_feedback=True),
    "matrix": lambda: evolving(every=3, g="matrix"), **AVERAGING}
EVERY = [*MODELS, *ATTENTIONS]


def build(kind: str) -> Any:
    if kind in ATTENTIONS:
        model = model_of(ATTENTIONS[kind](), step=0.3).train()
        if kind in AVERAGING:
            objective(model(training(all_series())), training(all_series()).target)
        return model.eval()
    model = filled(MODELS[kind](), seed=1).double().eval()
    if kind in ("gru-simple", "gru-d"):
        model.recurrence.mean.copy_(torch.tensor([0.3, -0.2, 0.1]))
    return model


def series(n: int, seed: int) -> TimeSeries:
    """Draw n points after time 0, the last two of them after the cut."""
    rng = np.random.default_rng([seed, n])
    early = np.sort(rng.choice(np.arange(1, 120), n - 2, replace=False)) / 10
    t = np.concatenate([early, CUT + np.sort(rng.choice(np.arange(1, 80), 2, replace=False)) / 10])
    m = rng.random((n, D)) < 0.5
    m[np.arange(n), rng.integers(0, D, n)] = True
    return TimeSeries(t, (rng.normal(size=m.shape) * m).astype(np.float32), m)


def all_series() -> list[TimeSeries]:
    return [series(n, i) for i, n in enumerate(LENGTHS)]


def training(of: list[TimeSeries], seed: int = 0) -> SporadicBatch:
    seen = double(pad(of))
    return SporadicBatch(seen, seen, HORIZON, seed)


def forecasting(of: list[TimeSeries]) -> SporadicBatch:
    seen, target = pad([r.part(r.t <= CUT) for r in of]), pad([r.part(r.t > CUT) for r in of])
    return SporadicBatch(double(seen), double(target), HORIZON)


MODES = pytest.mark.parametrize("mode", [training, forecasting])


def objective(forecast: Forecast, target: Points) -> Tensor:
    total = (target.m * gaussian_nll(target.x, forecast.mean, forecast.logvar)).sum()
    return total if forecast.extra is None else total + forecast.extra


def assert_predicts(forecast: Forecast, i: int, k: int, exact: tuple[Tensor, Tensor]) -> None:
    assert torch.allclose(forecast.mean[i, k], exact[0], atol=1e-9)
    assert torch.allclose(forecast.logvar[i, k], exact[1], atol=1e-9)


def gru(cell: Any, x: Tensor, h: Tensor) -> Tensor:
    W, U, b, c = cell.input.weight, cell.hidden.weight, cell.input.bias, cell.hidden.bias
    gi, gh = W @ x + b, U @ h + c
    r, z = torch.sigmoid(gi[:H] + gh[:H]), torch.sigmoid(gi[H:2 * H] + gh[H:2 * H])
    return (1 - z) * torch.tanh(gi[2 * H:] + r * gh[2 * H:]) + z * h


def step_directly(kind: str, cell: Any, state: Tensor, x: Tensor, m: Tensor, delta: Tensor, last: Tensor,
                  gap: Tensor) -> Tensor:
    if kind == "gru-simple":
        return gru(cell.cell, torch.cat((m * x + (1 - m) * cell.mean, m, delta)), state)
    if kind == "gru-d":
        share = torch.exp(-torch.clamp(cell.impute.weight * delta + cell.impute.bias, min=0))
        decay = torch.exp(-torch.clamp(cell.decay.weight @ delta + cell.decay.bias, min=0))
        x = m * x + (1 - m) * (share * last + (1 - share) * cell.mean)
        return gru(cell.cell, torch.cat((x, m)), decay * state)
    h, C = state[:H], state[H:]
    short = torch.tanh(cell.short.weight @ C + cell.short.bias)
    C = (C - short) + short / torch.log(math.e + gap)
    y = cell.input.weight @ torch.cat((x, m)) + cell.input.bias + cell.hidden.weight @ h + cell.hidden.bias
    i, f, o, new = y[:H].sigmoid(), y[H:2 * H].sigmoid(), y[2 * H:3 * H].sigmoid(), y[3 * H:].tanh()
    C = f * C + i * new
    return torch.cat((o * torch.tanh(C), C))


NOTHING = torch.zeros(D, dtype=torch.float64)


class ByHand:
    """A recurrent model on one series, with δ by recursion: δ ← Δ + (1 − m) δ of the previous point."""

    def __init__(self, kind: str, model: RecurrentForecaster) -> None:
        self.kind, self.model, self.t = kind, model, torch.zeros(())
        self.state = torch.zeros(model.recurrence.width, dtype=torch.float64)
        self.delta = self.last = self.m = NOTHING

    def after(self, t: Tensor, x: Tensor, m: Tensor) -> Tensor:
        delta = (t - self.t) + (1 - self.m) * self.delta
        return step_directly(self.kind, self.model.recurrence, self.state, x, m, delta, self.last, t - self.t)

    def predict(self, t: Tensor) -> tuple[Tensor, Tensor]:
        return self.model.head(self.after(t, NOTHING, NOTHING)[:H])

    def read(self, t: Tensor, x: Tensor, m: Tensor) -> None:
        self.state = self.after(t, x, m)
        self.delta, self.t = (t - self.t) + (1 - self.m) * self.delta, t
        self.m, self.last = m, torch.where(m > 0, x, self.last)


@MODES
@pytest.mark.parametrize("kind", RECURRENT)
def test_a_recurrent_model_predicts_each_point_and_then_reads_it(kind: str, mode: Any) -> None:
    """A forecast reads what was seen first, and then steps from target to target without values."""
    model, batch = build(kind), mode(all_series())
    forecast, seen, target = model(batch), batch.seen, batch.target
    assert forecast.extra is None
    for i in range(len(LENGTHS)):
        hand = ByHand(kind, model)
        for k in range(0 if batch.training else int(seen.valid[i].sum())):
            hand.read(seen.t[i, k], seen.x[i, k], seen.m[i, k])
        for k in range(int(target.valid[i].sum())):
            assert_predicts(forecast, i, k, hand.predict(target.t[i, k]))
            known = (target.x[i, k], target.m[i, k]) if batch.training else (NOTHING, NOTHING)
            hand.read(target.t[i, k], *known)


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


def test_an_ode_vae_starts_from_a_sample_in_training() -> None:
    model, batch = build("node-vae").train(), training(all_series(), seed=3)
    mean, logvar = model.encode(batch.seen)
    z0 = mean + (logvar / 2).exp() * NoiseSource(3, torch.device("cpu")).normal(*mean.shape)
    exact, _ = model.head(model.ode.at(z0, batch.target.t / HORIZON).h)
    assert torch.allclose(model(batch).mean, exact, atol=1e-12)


@MODES
@pytest.mark.parametrize("kind", EVERY)
def test_predictions_do_not_depend_on_padding_or_the_rest_of_the_batch(kind: str, mode: Any) -> None:
    model, of = build(kind), all_series()
    batch = mode(of)
    seen = padded_more(batch.seen, 3, rubbish=9.0)
    target = seen if batch.training else padded_more(batch.target, 2, rubbish=9.0)
    together = model(SporadicBatch(seen, target, HORIZON))
    extra = torch.zeros((), dtype=torch.float64)
    for i, r in enumerate(of):
        alone = mode([r])
        forecast, n = model(alone), int(alone.target.valid.sum())
        assert torch.allclose(together.mean[i, :n], forecast.mean[0], atol=1e-7 if kind in ATTENTIONS else 1e-9)
        assert torch.allclose(together.logvar[i, :n], forecast.logvar[0], atol=1e-7 if kind in ATTENTIONS else 1e-9)
        extra = extra + (0 if forecast.extra is None else forecast.extra)
    assert (together.extra is None) == (kind in RECURRENT or (kind in ATTENTIONS and not batch.training))
    assert together.extra is None or torch.allclose(together.extra, extra, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", MODELS)
def test_series_without_points_or_targets_are_allowed(kind: str) -> None:
    model, of = build(kind), all_series()
    nothing_seen, no_targets = of[0].part(of[0].t > CUT), of[1].part(of[1].t <= CUT)
    batch = forecasting([nothing_seen, no_targets, of[2]])
    forecast = model(batch)
    objective(forecast, batch.target).backward()
    assert all(y.isfinite().all() for y in (forecast.mean, forecast.logvar, *(p.grad for p in model.parameters())))
    assert torch.allclose(forecast.mean[2], model(forecasting(of[2:])).mean[0], atol=1e-9)


@pytest.mark.parametrize("kind", EVERY)
def test_predictions_do_not_depend_on_target_values(kind: str) -> None:
    model, batch = build(kind), forecasting(all_series())
    forecast = model(batch)
    x, m = torch.full_like(batch.target.x, 3.0), 1 - batch.target.m
    other = model(replace(batch, target=replace(batch.target, x=x, m=m)))
    assert torch.equal(other.mean, forecast.mean)
    seen = replace(batch.seen, x=batch.seen.x + batch.seen.m)
    assert not torch.allclose(model(replace(batch, seen=seen)).mean, forecast.mean, atol=1e-6)


@pytest.mark.parametrize("kind", EVERY)
def test_random_draws_depend_on_the_seed_only(kind: str) -> None:
    model = build(kind).train()
    model.dropout = 0.5
    state = torch.get_rng_state()
    first, again, other = (model(training(all_series(), seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.mean, again.mean)
    assert not torch.allclose(first.mean, other.mean, atol=1e-3)
    model.eval()
    assert torch.equal(model(training(all_series(), 1)).mean, model(training(all_series(), 2)).mean)


@pytest.mark.parametrize("kind", [*RECURRENT, "seq-vae"])
def test_a_recurrent_state_is_constant_between_points_and_after_the_last(kind: str) -> None:
    model, batch = build(kind), forecasting(all_series())
    t = batch.seen.t
    h, a = model.trajectory(batch, [0.0, float(t[1, 2]), float(t[1, 3]) - 0.01, float(t.max()), HORIZON])
    assert a is None
    assert h.shape == (5, len(LENGTHS), model.latent)
    assert h[0].abs().max() == 0  # no series starts before 0.1
    read = seen_and_targets(batch)[0]
    states = (model.infer(model.posterior.ahead(read, batch.seen.valid), batch.seen.valid, None)
              if kind == "seq-vae" else model.states(batch, read)[..., :H])
    assert torch.equal(h[1, 1], states[1, 2])
    assert torch.equal(h[2, 1], states[1, 2])
    assert not torch.equal(h[3, 1], states[1, 2])
    for i, n in enumerate(LENGTHS):
        assert torch.equal(h[3, i], states[i, n - 3])
        assert torch.equal(h[4, i], states[i, n - 3])
