"""The latent models: encoders and terms of the loss against their equations, the decoder against direct solves."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from irregular_batches import batch, filled, padded_more, records
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from acenode import Solver, experiments
from acenode.backend import ACCELERATED
from acenode.data.points import EulerSteps, SeriesBatch, schedule_from_steps
from acenode.models import latent as elbo
from acenode.models.latent import (
    ODERNN,
    AttentiveDrift,
    Autoregressive,
    Drift,
    LatentODE,
    ODEEncoder,
    PoissonODE,
    RecurrentVAE,
    RNNEncoder,
    SeriesShape,
)
from acenode.models.layers import MLP, LinearLayer, MissingDataGRU, MLPField, time_to_next
from acenode.node import NODE

R = 4


def encoder(attentive: bool = False, D: int = 3) -> ODEEncoder:
    f = MLPField(R, R, 6, 3)
    drift = AttentiveDrift(f, MLPField(R, R * R, 6, 3, square=True)) if attentive else Drift(f)
    made = ODEEncoder(3, ODERNN(2 * D, R, 5, drift), hidden=7)
    filled(made)
    return made


def encode_directly(made: ODEEncoder, b: SeriesBatch) -> tuple[Tensor, Tensor]:
    """Encode record by record and step by step, as the equations are written."""
    cell, f = made.recurrence.cell, made.recurrence.drift.f
    assert b.schedule is not None
    out = []
    for i in range(len(b.seen.t)):
        mu, s = torch.zeros(R), torch.zeros(R)
        a = torch.eye(R)
        for k in range(len(b.schedule.dt)):
            dt = b.schedule.dt[k, i]
            if isinstance(made.recurrence.drift, AttentiveDrift):
                attended = torch.softmax(a, -1) @ mu
                mu, a = mu + dt * f(attended), a + dt * made.recurrence.drift.g(attended)
            else:
                mu = mu + dt * f(mu)
            if not b.schedule.read[k, i]:
                continue
            p = b.schedule.point[k, i]
            x = torch.cat((b.seen.x[i, p], b.seen.m[i, p]))
            c = torch.cat((mu, s, x))
            u, r = torch.sigmoid(cell.update(c)), torch.sigmoid(cell.reset(c))
            new = cell.state(torch.cat((mu * r, s * r, x)))
            mu, s = (1 - u) * new[:R] + u * mu, ((1 - u) * new[R:].abs() + u * s).abs()
        out.append(made.out(torch.cat((mu, s))))
    y = torch.stack(out)
    return y[:, :3], y[:, 3:].abs()


@pytest.mark.parametrize("attentive", [False, True])
def test_the_ode_encoder_follows_its_equations(attentive: bool) -> None:
    made, b = encoder(attentive), batch(records())
    found, exact = made(b.seen, b.schedule), encode_directly(made, b)
    assert torch.allclose(found[0], exact[0], atol=1e-5)
    assert torch.allclose(found[1], exact[1], atol=1e-5)


def test_the_rnn_encoder_reads_backwards_from_the_last_point() -> None:
    made = RNNEncoder(3, 2, 4, 5)
    filled(made)
    b = batch(records((5, 3)))
    x = torch.cat((time_to_next(b.seen).unsqueeze(-1), b.seen.x, b.seen.m), -1)
    for i, n in enumerate((5, 3)):
        h = made.gru(x[i:i + 1, :n].flip(1), torch.ones(1, n, dtype=torch.bool))[:, -1]
        assert torch.allclose(made(b.seen, None)[0][i], made.out(h)[0, :2], atol=1e-6)


def test_a_schedule_has_the_row_of_every_point() -> None:
    b = batch(records((3,)))
    rows = EulerSteps(np.array([[0.1], [0.2], [0.3], [0.4]], np.float32), np.array([[2], [-1], [1], [0]]))
    assert schedule_from_steps(rows, b.seen).row.tolist() == [[3, 2, 0]]


def test_detached_attention_gives_g_of_the_encoder_no_gradient() -> None:
    """g affects the loss only through a(t), so it gets no gradient if a(t) is detached."""
    made, b = encoder(attentive=True), batch(records())
    drift: AttentiveDrift = made.recurrence.drift  # type: ignore[assignment]
    made(b.seen, b.schedule)[0].sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in drift.g.parameters())
    made.zero_grad()
    made(b.seen, b.schedule, True)[0].sum().backward()
    assert all(p.grad is None for p in drift.g.parameters())


MAPS_4, MAPS_5 = ({"f_maps": n, "encoder_maps": n} for n in (4, 5))


@pytest.mark.parametrize(("experiment", "method", "given", "expected"), [
    ("physionet", "latent-ode", MAPS_4, 158_872), ("physionet", "latent-ode", MAPS_5, 163_972),
    ("physionet", "latent-rnn", {}, 124_022), ("physionet", "ace", MAPS_4, 185_422),
    ("physionet", "ace", MAPS_5, 193_072),
    ("physionet", "ace", {**MAPS_4, "attention": "none"}, 158_872),
    ("physionet", "ace", {**MAPS_5, "attention": "none"}, 163_972),
    ("physionet-vitals", "latent-ode", MAPS_4, 61_971), ("physionet-vitals", "latent-ode", MAPS_5, 67_071),
    ("activity", "latent-ode", {}, 1_696_763 - 4 * 16),  # without the four outputs that are never used
    ("activity", "ace", {}, 1_696_763 - 4 * 16 + 621_725)])
def test_parameter_counts(experiment: str, method: str, given: dict[str, Any], expected: int) -> None:
    entry = experiments.get(experiment)
    assert entry.count(entry.configure(method, "full", **given)) == expected


def test_the_likelihood_is_averaged_as_in_the_protocol() -> None:
    b = batch(records())
    x = torch.randn(2, *b.target.x.shape, generator=torch.Generator().manual_seed(1))
    found = elbo.log_likelihood(x, b.target, 0.3)
    for k in range(2):
        per = []
        for i in range(3):
            for j in range(3):
                here = b.target.m[i, :, j] > 0
                own = Normal(x[k, i, :, j], 0.3).log_prob(b.target.x[i, :, j])[here]
                per.append(own.mean() if here.any() else torch.zeros(()))  # an unobserved variable counts as zero
        assert found[k] == pytest.approx(float(torch.stack(per).mean()), rel=1e-5)


def test_the_kl_divergence_agrees_with_torch() -> None:
    mean, deviation = torch.randn(4, 3), torch.rand(4, 3) + 0.1
    exact = kl_divergence(Normal(mean, deviation), Normal(0.0, 1.0)).mean()
    assert elbo.kl_to_standard_normal(mean, deviation) == pytest.approx(float(exact), rel=1e-5)


def test_the_elbo_is_a_log_sum_over_trajectories() -> None:
    value = elbo.negative_elbo(torch.tensor([-1.0, -2.0]), torch.tensor(3.0), 0.5)
    assert value == pytest.approx(-math.log(math.exp(-2.5) + math.exp(-3.5)))


def test_the_kl_weight_is_zero_for_ten_epochs() -> None:
    assert [elbo.kl_weight(e) for e in (0, 9, 10)] == [0.0, 0.0, 0.0]
    assert elbo.kl_weight(30) == pytest.approx(0.182, abs=1e-3)
    assert elbo.kl_weight(70) == pytest.approx(0.453, abs=1e-3)


D, LATENT = 3, 3
TIGHT = Solver("dopri5", rtol=1e-6, atol=1e-7)


def latent_ode(classify: str = "start") -> LatentODE:
    encoder = ODEEncoder(LATENT, ODERNN(2 * D, 4, 5, Drift(MLPField(4, 4, 6, 3))), hidden=7)
    classifier = LinearLayer(LATENT, 3) if classify == "points" else MLP(LATENT, 1, 5, 3)
    ode = NODE(MLPField(LATENT, LATENT, 6, 3), TIGHT)
    model = LatentODE(encoder, ode, LinearLayer(LATENT, D), classifier, LATENT, classify)
    filled(model)
    return model


@pytest.mark.parametrize("training", [True, False])
def test_predictions_equal_separate_solves_to_each_target(training: bool) -> None:
    model, b = latent_ode().train(training), batch(records())
    predicted = model(b)
    assert predicted.x is not None
    mean, deviation = model.encode(b)
    for k in range(2):
        for i in range(3):
            z0 = (mean + deviation * b.noise[k])[i]  # type: ignore[index]
            for n in range(int(b.seen.valid[i].sum())):
                t = float(b.target.t[i, n])
                z = z0 if t == 0 else model.ode(z0[None], [0.0, t]).h[-1, 0]
                assert torch.allclose(predicted.x[k, i, n], model.emission(z), atol=1e-4)


def test_classes_are_predicted_from_the_start_the_end_or_every_point() -> None:
    b = batch(records())
    for classify in ("start", "end", "points"):
        model = latent_ode(classify).eval()
        predicted = model(b)
        mean, deviation = model.encode(b)
        z0 = mean + deviation * b.noise
        if classify == "start":
            assert torch.allclose(predicted.logits, model.classifier(z0).squeeze(-1), atol=1e-5)
        elif classify == "end":
            end = model.ode(z0.flatten(0, 1), [0.0, 1.0]).h[-1].unflatten(0, (2, 3))
            assert torch.allclose(predicted.logits, model.classifier(end).squeeze(-1), atol=1e-4)
        else:
            assert predicted.logits.shape == (2, 3, 9, 3)
            assert torch.allclose(predicted.logits[:, :, 0], model.classifier(z0), atol=1e-5)  # all start at t = 0


@pytest.mark.parametrize(("kind", "given"), [
    ("latent-ode", {}), ("ace", {}), ("ace", {"attention_in": "both"}), ("rnn-vae", {}), ("gru-d", {}), ("ode-rnn", {}),
    ("latent-poisson", {}), ("rnn-impute", {})], ids=str)
def test_a_prediction_does_not_depend_on_its_batch_or_padding(kind: str, given: dict[str, Any]) -> None:
    entry = experiments.get("physionet")
    config = entry.configure(kind, "sample", **given)
    model: Any = entry.methods[kind].build(SeriesShape(D, "record"), config, ACCELERATED)
    filled(model, size=0.2)
    model.eval()
    of = records((5, 9, 3))
    K, latent = config.settings.get("trajectories", 1), model.latent
    b = batch(of, backwards=model.backwards, K=K, latent=latent)
    together = model(replace(b, seen=padded_more(b.seen, 4, rubbish=9.0)))
    for i in range(3):
        alone = batch(of[i:i + 1], backwards=model.backwards, K=K, latent=latent)
        predicted = model(replace(alone, noise=b.noise[:, i:i + 1]))  # type: ignore[index]
        n = int(b.seen.valid[i].sum())
        assert torch.allclose(predicted.logits[:, 0], together.logits[:, i], atol=1e-5)
        assert torch.allclose(predicted.x[:, 0, :n], together.x[:, i, :n], atol=1e-5)


def test_the_poisson_integral_agrees_with_quadrature() -> None:
    rate = MLP(2, D, 6, 3)
    ode = PoissonODE(MLPField(4, 4, 6, 3), rate, 2, D, Solver("dopri5", rtol=1e-8, atol=1e-9)).double()
    filled(ode)
    z0 = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = ode.at(z0, torch.full((3, 1), 0.5, dtype=torch.float64)).end[1] * 100
    t = torch.linspace(0, 1, 401, dtype=torch.float64)
    values = ode.rate(ode(z0, t.tolist()).h[..., 2:]).exp()  # (401, 3, D)
    assert torch.allclose(found, torch.trapezoid(values, t, dim=0), rtol=1e-4)


def test_the_poisson_likelihood_is_over_observed_variables() -> None:
    m = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]])
    log_rate = torch.tensor([[[[0.1, 5.0], [0.2, 5.0], [0.3, 5.0]]]])
    found = elbo.poisson_likelihood(log_rate, torch.tensor([[[0.7, 9.0]]]), m)
    assert found.tolist() == pytest.approx([(0.1 + 0.2 - 0.7) / 2])


def test_an_autoregressive_model_predicts_the_next_point() -> None:
    recurrence = MissingDataGRU(D, 4, gap=True, impute=False, decay=False)
    model = Autoregressive(recurrence, D, 4, 6, MLP(4, 1, 5, 3), "start")
    filled(model)
    b = batch(records((5, 3)), backwards=None)
    predicted = model(b)
    h = model.states(b)
    assert torch.equal(predicted.x[0, :, 0], b.seen.x[:, 0])
    assert torch.allclose(predicted.x[0, :, 1:], model.output(h[:, :-1]))
    assert torch.allclose(predicted.logits[0], model.classifier(torch.stack((h[0, 4], h[1, 2]))).squeeze(-1), atol=1e-6)


def test_later_points_do_not_change_earlier_states() -> None:
    """The ODE-RNN runs forwards: its states at the first points are equal if the record ends after them."""
    model = Autoregressive(ODERNN(2 * D, 4, 5, Drift(MLPField(4, 4, 6, 3))), D, 4, 6, None, "start")
    filled(model)
    (whole,) = records((8,))
    recurrence: Any = model.recurrence
    # The Euler step depends on the length of the record: without drift, it has no effect.
    torch.nn.init.zeros_(recurrence.drift.f.layers[-1].weight)
    torch.nn.init.zeros_(recurrence.drift.f.layers[-1].bias)
    long, short = batch([whole], backwards=False), batch([whole.part(whole.t <= whole.t[4])], backwards=False)
    assert torch.allclose(model.states(long)[:, :5], model.states(short), atol=1e-6)


def test_a_recurrent_vae_decodes_from_its_own_predictions() -> None:
    model = RecurrentVAE(RNNEncoder(D, LATENT, 4, 5), D, LATENT, 6, MLP(LATENT, 1, 5, 3))
    filled(model)
    h = torch.randn(2, LATENT)
    states, predicted = model.decode(h, torch.tensor([[0.1, 0.4], [0.2, 0.3]]))
    x: Tensor = torch.zeros(2, D)
    for k, dt in enumerate((torch.tensor([[0.1], [0.2]]), torch.tensor([[0.3], [0.1]]))):
        h = model.cell(model.cell.input(torch.cat((x, torch.ones(2, D), dt), 1)), h)
        x = model.emission(h)
        assert torch.allclose(states[:, k], h, atol=1e-6)
        assert torch.allclose(predicted[:, k], x, atol=1e-6)
