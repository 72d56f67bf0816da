"""Invariances of the forecasting baselines: padding, batches, targets and seeds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from irregular_batches import filled
from problems import central_difference, relative
from small_baselines import (
    CUT,
    HORIZON,
    LENGTHS,
    MODELS,
    MODES,
    RECURRENT,
    VARIATIONAL,
    D,
    H,
    all_series,
    build,
    forecasting,
    objective,
    series,
    training,
)
from torch import Tensor

from acenode.data.points import Points
from acenode.data.schedule import SporadicBatch
from acenode.models.forecast.baselines import SequentialVAE
from acenode.models.forecast.gaussian import seen_and_targets
from acenode.models.layers import initialise


def padded(p: Points, extra: int, rubbish: float) -> Points:
    """The same points with more padding, whose values may be anything."""
    def longer(y: Tensor, tail: Tensor) -> Tensor:
        return torch.cat((y, tail), 1)

    B = len(p.t)
    none = torch.zeros(B, extra, D, dtype=torch.float64)
    x = torch.where(p.valid.unsqueeze(-1), p.x, rubbish)
    return Points(longer(p.t, p.t[:, -1:].expand(B, extra)), longer(x, none + rubbish), longer(p.m, none),
                  longer(p.valid, torch.zeros(B, extra, dtype=torch.bool)))


@MODES
@pytest.mark.parametrize("kind", MODELS)
def test_predictions_do_not_depend_on_padding_or_the_rest_of_the_batch(kind: str, mode: Any) -> None:
    model, of = build(kind), all_series()
    batch = mode(of)
    seen = padded(batch.seen, 3, rubbish=9.0)
    target = seen if batch.training else padded(batch.target, 2, rubbish=9.0)
    together = model(SporadicBatch(seen, target, HORIZON))
    extra = torch.zeros((), dtype=torch.float64)
    for i, r in enumerate(of):
        alone = mode([r])
        forecast, n = model(alone), int(alone.target.valid.sum())
        assert torch.allclose(together.mean[i, :n], forecast.mean[0], atol=1e-9)
        assert torch.allclose(together.logvar[i, :n], forecast.logvar[0], atol=1e-9)
        extra = extra + (0 if forecast.extra is None else forecast.extra)
    assert (together.extra is None) == (kind in RECURRENT)
    assert together.extra is None or torch.allclose(together.extra, extra, atol=1e-9)


@pytest.mark.parametrize("kind", MODELS)
def test_gradients_do_not_depend_on_padding(kind: str) -> None:
    def gradients(batch: SporadicBatch) -> list[Tensor]:
        model.zero_grad()
        objective(model(batch), batch.target).backward()
        return [p.grad.clone() for p in model.parameters()]

    model, batch = build(kind), training(all_series())
    seen = padded(batch.seen, 3, rubbish=9.0)
    found, exact = gradients(SporadicBatch(seen, seen, HORIZON)), gradients(batch)
    for g, e in zip(found, exact, strict=True):
        assert g.abs().sum() > 0
        assert torch.allclose(g, e, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", MODELS)
def test_series_without_points_or_targets_are_allowed(kind: str) -> None:
    model, of = build(kind), all_series()
    nothing_seen, no_targets = of[0].part(of[0].t > CUT), of[1].part(of[1].t <= CUT)
    batch = forecasting([nothing_seen, no_targets, of[2]])
    forecast = model(batch)
    objective(forecast, batch.target).backward()
    assert all(y.isfinite().all() for y in (forecast.mean, forecast.logvar, *(p.grad for p in model.parameters())))
    assert torch.allclose(forecast.mean[2], model(forecasting(of[2:])).mean[0], atol=1e-9)


@pytest.mark.parametrize("kind", MODELS)
def test_predictions_do_not_depend_on_target_values(kind: str) -> None:
    model, batch = build(kind), forecasting(all_series())
    forecast = model(batch)
    x, m = torch.full_like(batch.target.x, 3.0), 1 - batch.target.m
    other = model(replace(batch, target=replace(batch.target, x=x, m=m)))
    assert torch.equal(other.mean, forecast.mean)
    seen = replace(batch.seen, x=batch.seen.x + batch.seen.m)
    assert not torch.allclose(model(replace(batch, seen=seen)).mean, forecast.mean, atol=1e-6)


@pytest.mark.parametrize("kind", MODELS)
def test_predictions_depend_on_target_times(kind: str) -> None:
    model, batch = build(kind), forecasting(all_series())
    later = replace(batch, target=replace(batch.target, t=batch.target.t + 1))
    assert ((model(later).mean - model(batch).mean).abs().amax((1, 2)) > 1e-6).all()


def test_a_gradient_against_central_differences() -> None:
    """In training mode, with samples of z and dropout in the head."""
    model: Any = filled(SequentialVAE(D, 2, 3, 2, 4, dropout=0.5), seed=1).double()
    batch = training([series(n, n) for n in (4, 3)], seed=1)

    def loss() -> Tensor:
        return objective(model(batch), batch.target)

    loss().backward()
    for name, p in model.named_parameters():
        assert relative(p.grad, central_difference(loss, p.data)) < 1e-5, name


@pytest.mark.parametrize("kind", MODELS)
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


@pytest.mark.parametrize("kind", VARIATIONAL)
def test_a_variational_model_samples_without_dropout_too(kind: str) -> None:
    model = build(kind).train()
    assert not torch.allclose(model(training(all_series(), 1)).mean, model(training(all_series(), 2)).mean, atol=1e-3)


@pytest.mark.parametrize("kind", MODELS)
def test_initialisation_depends_on_the_seed_only(kind: str) -> None:
    one, two = MODELS[kind](), MODELS[kind]()
    filled(one, 1), filled(two, 2)
    initialise(one, 5), initialise(two, 5)
    for p, q in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(p, q)


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


def test_an_ode_vae_predicts_from_its_trajectory() -> None:
    model, batch = build("node-vae"), forecasting(all_series())
    z, a = model.trajectory(batch, [float(batch.target.t[0, 0]), float(batch.target.t[0, 1])])
    assert a is None
    assert z.shape == (2, len(LENGTHS), H)
    assert torch.allclose(model.head(z[:, 0])[0], model(batch).mean[0], atol=1e-5)
