"""The latent models: parameter counts, terms of the loss, the decoder against direct solves, and the baselines."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from irregular_batches import batch, filled, records
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from acenode import Solver, experiments
from acenode.attention import Correlation, correlation
from acenode.backend import ACCELERATED
from acenode.data.points import Points
from acenode.experiments.latent_methods import SeriesShape
from acenode.models.latent import latent_ode as elbo
from acenode.models.latent.baselines import Autoregressive, RecurrentVAE
from acenode.models.latent.latent_ode import LatentODE, LatentPoisson, PerTrajectory, PoissonODE
from acenode.models.latent.ode_rnn import ODERNN, Drift, ODEEncoder, RNNEncoder
from acenode.models.layers import MLP, LinearLayer, MLPField
from acenode.models.recurrent import Decay, MissingDataGRU, last_observed
from acenode.node import ACENODE, NODE

# Parameter counts ---------------------------------------------------------------------------------------------------


def count(experiment: str, method: str, classes: int | None = None, **given: Any) -> int:
    entry = experiments.get(experiment)
    config = entry.configure(method, "full", **given)
    if classes is None:
        return entry.count(config)
    model = entry.methods[method].build(SeriesShape(12, "points", classes), config, ACCELERATED)
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(("maps", "plain", "ace", "regression"), [(4, 158_872, 185_422, 61_971),
                                                                  (5, 163_972, 193_072, 67_071)])
def test_parameter_counts_for_physionet(maps: int, plain: int, ace: int, regression: int) -> None:
    given = {"f_maps": maps, "encoder_maps": maps}
    assert count("physionet", "latent-ode", **given) == plain
    assert count("physionet", "ace", **given) == ace
    assert count("physionet", "ace", attention="none", **given) == plain
    assert count("physionet-vitals", "latent-ode", **given) == regression


def test_parameter_counts_of_the_parts() -> None:
    entry = experiments.get("physionet")
    shape = SeriesShape(41, "record")
    model: Any = entry.methods["latent-ode"].build(shape, entry.configure("latent-ode", "full"), ACCELERATED)
    parts = [sum(p.numel() for p in part.parameters())
             for part in (model.encoder, model.ode, model.emission, model.classifier)]
    assert parts == [53_940, 7_170, 861, 96_901]
    rnn: Any = entry.methods["latent-rnn"].build(shape, entry.configure("latent-rnn", "full"), ACCELERATED)
    assert sum(p.numel() for p in rnn.encoder.parameters()) == 19_090
    ace: Any = entry.methods["ace"].build(shape, entry.configure("ace", "full"), ACCELERATED)
    assert sum(p.numel() for p in ace.ode.g.parameters()) == 26_550


def test_parameter_counts_for_human_activity() -> None:
    """With the eleven outputs as published, of which four are never used, and with seven."""
    assert count("activity", "latent-ode", classes=11) == 1_696_763
    assert count("activity", "latent-ode") == 1_696_763 - 4 * 16
    assert count("activity", "ace") == 1_696_763 - 4 * 16 + 621_725


# The loss -----------------------------------------------------------------------------------------------------------


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


def test_unobserved_variables_count_as_zero_in_the_error() -> None:
    m = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
    points = Points(torch.zeros(1, 2), torch.zeros(1, 2, 2), m, torch.ones(1, 2, dtype=torch.bool))
    x = torch.tensor([[[[1.0, 9.0], [3.0, 9.0]]]])
    assert elbo.squared_error(x, points) == pytest.approx((1 + 9) / 2 / 2)  # two variables, one never observed


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


# The decoder --------------------------------------------------------------------------------------------------------

D, LATENT = 3, 3
TIGHT = Solver("dopri5", rtol=1e-6, atol=1e-7)


def latent_ode(ode: Any = None, classify: str = "start") -> LatentODE:
    encoder = ODEEncoder(LATENT, ODERNN(2 * D, 4, 5, Drift(MLPField(4, 4, 6, 3))), hidden=7)
    classifier = LinearLayer(LATENT, 3) if classify == "points" else MLP(LATENT, 1, 5, 3)
    ode = ode or NODE(MLPField(LATENT, LATENT, 6, 3), TIGHT)
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
        model = latent_ode(classify=classify).eval()
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


@pytest.mark.parametrize("kind", ["latent-ode", "ace", "rnn-vae", "gru-d", "ode-rnn", "latent-poisson", "rnn-impute"])
def test_a_prediction_does_not_depend_on_its_batch(kind: str) -> None:
    entry = experiments.get("physionet")
    config = entry.configure(kind, "sample")
    model: Any = entry.methods[kind].build(SeriesShape(D, "record"), config, ACCELERATED)
    filled(model, size=0.2)
    model.eval()
    of = records((5, 9, 3))
    K, latent = config.settings.get("trajectories", 1), model.latent
    b = batch(of, backwards=model.backwards, K=K, latent=latent)
    together = model(b)
    for i in range(3):
        alone = batch(of[i:i + 1], backwards=model.backwards, K=K, latent=latent)
        predicted = model(replace(alone, noise=b.noise[:, i:i + 1]))  # type: ignore[index]
        n = int(b.seen.valid[i].sum())
        assert torch.allclose(predicted.logits[:, 0], together.logits[:, i], atol=1e-5)
        assert torch.allclose(predicted.x[:, 0, :n], together.x[:, i, :n], atol=1e-5)


def test_each_trajectory_has_its_own_correlation() -> None:
    q = PerTrajectory(Correlation((LATENT,)), 2).train()
    h = torch.randn(2 * 5, LATENT, generator=torch.Generator().manual_seed(3))
    a = q(h)
    assert a.shape == (10, LATENT, LATENT)
    assert torch.allclose(a[0], correlation(h[:5]))
    assert torch.allclose(a[7], correlation(h[5:]))


def test_attention_evolves_in_the_generative_ode() -> None:
    g = MLPField(LATENT, LATENT**2, 6, 3, square=True)
    ode = ACENODE(MLPField(LATENT, LATENT, 6, 3), g, PerTrajectory(Correlation((LATENT,)), 2), solver=TIGHT)
    model, b = latent_ode(ode), batch(records())
    model(b).x.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in g.parameters())
    h, a = model.eval().trajectory(b, [0.0, 0.5, 1.0])
    assert h.shape == (3, 3, LATENT)
    assert a is not None
    assert a.shape == (3, 3, LATENT, LATENT)


# Poisson ------------------------------------------------------------------------------------------------------------


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


def test_shapes_of_the_poisson_models_output() -> None:
    ode = PoissonODE(MLPField(4, 4, 6, 3), MLP(2, D, 6, 3), 2, D, TIGHT)
    encoder = ODEEncoder(4, ODERNN(2 * D, 4, 5, Drift(MLPField(4, 4, 6, 3))), hidden=7)
    model = LatentPoisson(encoder, ode, LinearLayer(2, D), MLP(4, 1, 5, 3), 4)
    filled(model, size=0.2)
    b = batch(records(), latent=4)
    predicted = model(b)
    assert predicted.times is not None
    assert predicted.times.shape == (2,)
    assert predicted.x is not None
    assert predicted.x.shape == (2, 3, 9, D)


# Recurrent baselines ------------------------------------------------------------------------------------------------


def test_time_since_the_last_observation_of_a_variable() -> None:
    t = torch.tensor([[0.0, 0.1, 0.3, 0.7]])
    m = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]])
    x = torch.tensor([[[5.0, 0.0], [0.0, 6.0], [7.0, 0.0], [0.0, 0.0]]])
    delta, last = last_observed(Points(t, x, m, torch.ones(1, 4, dtype=torch.bool)))
    assert torch.allclose(delta, torch.tensor([[[0.0, 0.0], [0.1, 0.1], [0.3, 0.2], [0.4, 0.6]]]), atol=1e-6)
    assert last.tolist() == [[[0.0, 0.0], [5.0, 0.0], [5.0, 6.0], [7.0, 6.0]]]


def test_a_decay_never_exceeds_one() -> None:
    decay = Decay(2, each=True)
    decay.weight.data = torch.tensor([2.0, -3.0])
    found = decay(torch.tensor([[0.5, 0.5]]))
    assert found[0].tolist() == pytest.approx([math.exp(-1.0), 1.0])
    assert Decay(2, each=False)(torch.zeros(4, 2)).shape == (4, 1)


@pytest.mark.parametrize(("gap", "impute", "decay"), [(True, False, False), (True, True, False), (False, False, True),
                                                      (False, True, True)])
def test_the_recurrences_follow_their_equations(gap: bool, impute: bool, decay: bool) -> None:
    recurrence = MissingDataGRU(D, 4, gap=gap, impute=impute, decay=decay)
    filled(recurrence)
    recurrence.mean.copy_(torch.tensor([0.3, -0.2, 0.1]))
    points = batch(records((5, 3))).seen
    found = recurrence(points)
    delta, last = last_observed(points)
    for i, n in enumerate((5, 3)):
        h = torch.zeros(4)
        for k in range(n):
            x, m = points.x[i, k], points.m[i, k]
            if impute:
                w = recurrence.impute
                share = torch.exp(-torch.clamp(w.weight * delta[i, k] + w.bias, 0, 1000))
                x = m * x + (1 - m) * (share * last[i, k] + (1 - share) * recurrence.mean)
            step = points.t[i, k + 1] - points.t[i, k] if k + 1 < n else torch.zeros(())
            given = torch.cat((x, m, step[None])) if gap else torch.cat((x, m))
            if decay:
                w = recurrence.decay
                h = h * torch.exp(-torch.clamp((w.weight * delta[i, k]).sum() + w.bias, 0, 1000))
                h = recurrence.cell(recurrence.cell.input(given), h)
            else:
                h = recurrence.gru(given.view(1, 1, -1), torch.ones(1, 1, dtype=torch.bool), h[None])[0, 0]
            assert torch.allclose(found[i, k], h, atol=1e-5)


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
