"""GRU-ODE-Bayes and ACE on it, against the equations written out and against invariances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from irregular_batches import filled
from sporadic_batches import END, STEP, D, H, batch, evolving, model_of, objective, series, several
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from acenode import experiments
from acenode.attention import correlation
from acenode.backend import ACCELERATED, PLAIN
from acenode.data.points import TimeSeries, pad
from acenode.data.schedule import SporadicBatch
from acenode.models.forecast.gaussian import gaussian_nll
from acenode.models.forecast.gru_ode import GRUODE, AttentionState, MatrixGRU, RowGRU
from acenode.models.forecast.gru_ode_bayes import GRUBayes, GRUODEBayes, kl_to_observation

GENERATOR = torch.Generator().manual_seed(0)


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=GENERATOR)


def by_hand(model: GRUODEBayes, of: TimeSeries) -> Tensor:
    """Return the loss of one series, step by step on a shared time grid."""
    p, h, total = model.p, model.initial_state(1, None), torch.zeros((), dtype=torch.float64)
    a = torch.eye(model.latent, dtype=torch.float64)[None]
    attention, rows, kept, weights = model.attention, 0, [], torch.softmax(a, -1)
    for step in range(round(END / STEP) + 1):
        if step > 0:
            if attention is None:
                h = h + STEP * model.f(h)
            else:
                attended = torch.einsum("bij,bj->bi", weights, h)
                h = h + STEP * model.f(attended, own=h if attention.own_feedback else None)
                kept.append(attended)
                rows += 1
                if rows == attention.every:
                    g, mean = attention.g, torch.stack(kept).mean(0)
                    if isinstance(g, MatrixGRU):
                        a = a + rows * STEP / END * (g.out.weight @ g.cell(mean)[0] + g.out.bias).view_as(a)
                    else:
                        assert isinstance(g, RowGRU)
                        rate, u = g.relax(mean, a)
                        a = u + torch.exp(-rows * STEP * rate) * (a - u)
                    weights, rows, kept = torch.softmax(a, -1), 0, []
        for t, x, m in zip(of.t, of.x, of.m, strict=True):
            if round(float(t) / STEP) == step:
                x, m = (torch.from_numpy(v).double()[None] for v in (x, m))
                mean, logvar = p(h)
                total = total + (m * gaussian_nll(x, mean, logvar)).sum()
                h = model.jump(h, mean, logvar, x, m)
                total = total + model.mixing * (m * kl_to_observation(*p(h), x)).sum()
    return total


KINDS: dict[str, Any] = {"plain": lambda: None, "ace": lambda: evolving(every=3),
                         "own": lambda: evolving(every=1, own_feedback=True),
                         "matrix": lambda: evolving(every=3, g="matrix")}


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_of_a_batch_is_the_sum_over_its_series(kind: str) -> None:
    """Stepping through each series' own times agrees with one time grid for all, to rounding."""
    model, of = model_of(KINDS[kind]()), several()
    assert torch.allclose(objective(model, batch(of)), sum(by_hand(model, r) for r in of), rtol=1e-12)  # type: ignore[arg-type]


@pytest.mark.parametrize("own", [True, False])
def test_h_is_bounded_by_one_with_its_own_feedback(own: bool) -> None:
    """For steps of h up to 1, steps of a of any length and gates of any size; not so with feedback from h'."""
    model = model_of(evolving(every=4, own_feedback=own), seed=5, step=1.0)
    with torch.no_grad():
        for p in (*model.f.parameters(), *model.attention.g.parameters()):  # type: ignore[union-attr]
            p.mul_(20)
        model.start.out.weight.mul_(20)
    frames = list(np.arange(0.0, 40.5, 1.0))
    with torch.no_grad():
        h, a = model.trajectory(batch(several()), frames)
    assert a is not None
    assert float(a.abs().max()) <= 1 + 1e-12
    assert (float(h.abs().max()) <= 1 + 1e-12) == own


@pytest.mark.parametrize("kind", [*KINDS, "dense", "long"])
@pytest.mark.parametrize("own_steps", [False, True])
def test_trajectories_of_the_fused_pass_are_those_of_the_plain_loop(kind: str, own_steps: bool) -> None:
    """h and a at common times, and the predictions around jumps."""
    attention = {"dense": lambda: evolving(every=3, initial="dense"), "long": lambda: evolving(every=100)}.get(
        kind, KINDS.get(kind))()  # type: ignore[misc]
    model, frames = model_of(attention).eval().float(), [0.0, 0.25, 1.0, 1.75, 2.5, 5.0]
    seen = pad([series(np.array([0.0, 0.75, 1.0, 2.5]) + 0.01 * own_steps), series(np.array([1.75, 5.0]), 1)])
    of = SporadicBatch(seen, seen, END)
    found = []
    for model.backend in (ACCELERATED, PLAIN):
        with torch.no_grad():
            around = model.predict_around_jumps(of, frames)[:3]
            found.append([*(v for v in model.trajectory(of, frames) if v is not None),
                          *(v for forecast in around for v in (forecast.mean, forecast.logvar))])
    assert len(found[0]) == len(found[1]) == 7 + (attention is not None)
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("at_jump", ["recompute", "observed"])
def test_recomputed_attention_starts_a_new_window(at_jump: str) -> None:
    """Recomputed after three steps of four, a is the correlation, and only later steps move it."""
    attention, f = evolving(every=4, at_jump=at_jump), filled(GRUODE(H)).double()
    g = filled(attention, 2).double().train().g
    start, dt = torch.zeros(3, H, H, dtype=torch.float64), torch.full((1, 1), STEP, dtype=torch.float64)
    state, h, attended = AttentionState(attention, start, END, False), randn(3, H), []
    for _ in range(3):
        attended.append(h.mean(1, keepdim=True).expand(3, H))  # σ(0) is the mean
        h = state.step(f, h, None, dt)
    who = torch.tensor([0, 1])
    h = randn(3, H)
    state.observe(h, who)
    new = correlation(h)
    assert torch.allclose(state.a[:2], new.expand(2, H, H))  # type: ignore[index]
    assert torch.allclose(state.a[2], new if at_jump == "recompute" else start[2])  # type: ignore[index]
    last = (torch.softmax(state.a, -1) * h.unsqueeze(1)).sum(-1)  # type: ignore[arg-type]
    state.step(f, h, None, dt)
    if at_jump == "recompute":
        assert torch.allclose(state.a, new.expand(3, H, H))  # type: ignore[arg-type]
        assert state.rows == 1
        return
    mean, tau = torch.stack([*attended, last]).mean(0), torch.tensor([1.0, 1.0, 4.0], dtype=torch.float64) * STEP
    mean[:2] = last[:2]
    before = torch.stack((new, new, start[2]))
    assert torch.allclose(state.a, g.step(mean, before, tau.view(3, 1, 1)))  # type: ignore[arg-type]


def test_augmented_zeros_are_part_of_the_state() -> None:
    model = model_of(extra=2)
    h, _ = model.trajectory(batch(several()), [0.0, 2.0])
    assert h.shape[-1] == H + 2
    assert not h[0, :, H:].any()
    assert h[1, :, H:].any()


def test_predictions_around_a_jump() -> None:
    model = model_of(evolving()).eval()
    of = batch([series(np.array([1.0, 2.0]))])
    with torch.no_grad():
        before, after, between, points = model.predict_around_jumps(of, [0.0, 1.0, 1.5])
        forecast = model(of)
    assert torch.allclose(before.mean, forecast.mean)
    assert torch.allclose(between.mean[0, 1], before.mean[0, 0])  # read points come before the jump
    assert not torch.allclose(after.mean, before.mean)
    assert points.t[0].tolist() == [0.0, 1.0, 1.5]


@pytest.mark.parametrize(("method", "size"), [
    ("gru-ode-bayes", 27_235), ("augmented", 31_290), ("ace", 27_235 + 6 * 50**2), ("matrix", 27_235 + 135_000)])
def test_sizes_of_the_methods(method: str, size: int) -> None:
    experiment = experiments.get("ushcn")
    config = (experiment.configure("ace", "full", g="matrix") if method == "matrix" else
              experiment.configure(method, "full"))
    assert experiment.count(config) == size


@pytest.mark.parametrize("inputs", [0, 3])
@pytest.mark.parametrize("minimal", [False, True])
def test_both_gru_ode_cells(minimal: bool, inputs: int) -> None:
    cell = filled(GRUODE(H, inputs, minimal)).double()
    h, x = randn(4, H), randn(4, inputs)
    gates = [cell.update] if minimal else [cell.reset, cell.update]
    shares = [0.0] * 3
    if cell.given is not None:
        shares = list((x @ cell.given.weight.T + cell.given.bias).split(H, 1))
    opened = [1 / (1 + torch.exp(-(h @ gate.weight.T + share)))  # type: ignore[union-attr]
              for gate, share in zip(gates, shares, strict=False)]
    u = torch.tanh((opened[0] * h) @ cell.new.weight.T + shares[len(gates)])
    assert torch.allclose(cell(h, x if inputs else None), (1 - opened[-1]) * (u - h))


def test_an_exponential_step_of_a() -> None:
    """The linear part is solved exactly, a short step follows g, and no step leaves [−1, 1]."""
    g = filled(RowGRU(H)).double()
    attended, a, tau = randn(2, H), randn(2, H, H).tanh(), torch.tensor([0.7, 3.0], dtype=torch.float64).view(2, 1, 1)
    for b in range(2):
        for i in range(H):
            r, z = torch.sigmoid(g.gates.weight @ a[b, i] + g.gates_in.weight @ attended[b]).chunk(2)
            u = torch.tanh(g.new.weight @ (r * a[b, i]) + g.new_in.weight @ attended[b])
            exact = torch.matrix_exp(-tau[b] * torch.diag(1 - z)) @ (a[b, i] - u) + u
            assert torch.allclose(g.step(attended, a, tau)[b, i], exact)
    assert torch.allclose((g.step(attended, a, tau * 1e-7) - a) / (tau * 1e-7), g(attended, a), atol=1e-6)
    assert torch.equal(g.step(attended, a, tau * 0), a)
    assert (g.step(attended, a, tau * 1e6).abs() <= 1).all()


def test_the_gru_bayes_update() -> None:
    jump = filled(GRUBayes(H, D, 2)).double()
    h, mean, logvar, x = randn(3, H), randn(3, D), randn(3, D), randn(3, D)
    m = torch.tensor([[1.0, 0, 1], [0, 1, 0], [1, 1, 1]], dtype=torch.float64)
    cell = nn.GRUCell(2 * D, H).double()
    own = jump.cell
    cell.load_state_dict({"weight_ih": own.input.weight, "bias_ih": own.input.bias,
                          "weight_hh": own.hidden.weight, "bias_hh": own.hidden.bias})
    features = torch.zeros(3, D, 2, dtype=torch.float64)
    for n in range(3):
        for d in range(D):
            error = (x[n, d] - mean[n, d]) / torch.exp(logvar[n, d] / 2)
            inputs = torch.stack((x[n, d], mean[n, d], logvar[n, d], error))
            features[n, d] = m[n, d] * torch.relu(inputs @ jump.weight[d] + jump.bias[d])
    assert torch.allclose(jump(h, mean, logvar, x, m), cell(features.flatten(1), h))


def test_likelihood_and_divergence_agree_with_torch() -> None:
    mean, logvar, x = randn(5), randn(5), randn(5)
    predicted = Normal(mean, torch.exp(logvar / 2))
    assert torch.allclose(gaussian_nll(x, mean, logvar), -predicted.log_prob(x))
    observed = Normal(x, torch.full_like(x, 0.01))
    assert torch.allclose(kl_to_observation(mean, logvar, x), kl_divergence(predicted, observed))
