"""The encoders against their equations; invariance to padding, unobserved values and the rest of the batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from irregular_batches import batch, filled, padded_more, records
from torch import Tensor

from acenode.data.points import FIRST_GAP, STEPS_PER_SPAN, EulerSteps, SeriesBatch, schedule_from_steps
from acenode.models.latent.ode_rnn import ODERNN, AttentiveDrift, Drift, ODEEncoder, RNNEncoder
from acenode.models.layers import MLPField
from acenode.models.recurrent import time_to_next

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


@pytest.mark.parametrize("attentive", [False, True])
def test_an_encoding_does_not_depend_on_padding_unobserved_values_or_the_batch(attentive: bool) -> None:
    made, of = encoder(attentive), records((5, 9, 3))
    b = batch(of)
    mean, deviation = made(b.seen, b.schedule)
    alone = batch(of[:1])
    assert torch.allclose(made(alone.seen, alone.schedule)[0][0], mean[0], atol=1e-6)
    rubbish = replace(b.seen, x=torch.where(b.seen.m > 0, b.seen.x, 77.0))
    assert not torch.equal(rubbish.x, b.seen.x)
    masked = replace(rubbish, x=rubbish.x * b.seen.m)  # as the data loader does
    assert torch.equal(made(masked, b.schedule)[0], mean)
    longer = padded_more(b.seen, 4, rubbish=9.0)
    assert torch.allclose(made(longer, b.schedule)[1], deviation, atol=1e-6)


def test_rows_without_observation_and_duration_change_nothing() -> None:
    made, b = encoder(), batch(records((5, 5)))
    assert b.schedule is not None
    none = torch.zeros(3, 2)
    longer_schedule = replace(b.schedule, dt=torch.cat((none, b.schedule.dt)),
                              point=torch.cat((none.long(), b.schedule.point)),
                              read=torch.cat((none.bool(), b.schedule.read)))
    assert torch.allclose(made(b.seen, longer_schedule)[0], made(b.seen, b.schedule)[0], atol=1e-6)


def test_without_drift_own_times_and_union_grid_agree() -> None:
    """If μ is constant between points, extra steps at other records' times change nothing."""
    made, of = encoder(), records()
    for p in made.recurrence.drift.f.parameters():
        torch.nn.init.zeros_(p)
    own, on_union = batch(of), batch(of, union=True)
    assert own.schedule is not None
    assert on_union.schedule is not None
    assert on_union.schedule.dt.shape != own.schedule.dt.shape
    assert torch.allclose(made(own.seen, own.schedule)[0], made(on_union.seen, on_union.schedule)[0], atol=1e-6)


def test_the_grids_are_equal_for_one_record_or_equal_times() -> None:
    made = encoder()
    for of in (records((6,)), [r.part(slice(None)) for r in records((6,))] * 2):  # type: ignore[arg-type]
        own, on_union = batch(of), batch(of, union=True)
        assert torch.equal(made(own.seen, own.schedule)[0], made(on_union.seen, on_union.schedule)[0])


def test_the_union_grid_steps_all_records_through_all_times() -> None:
    made, of = encoder(), records()
    on_union = batch(of, union=True)
    times = np.unique(np.concatenate([r.t for r in of])).astype(np.float64)
    cell, f = made.recurrence.cell, made.recurrence.drift.f
    mu = s = torch.zeros(len(of), R)
    smallest, before = (times[-1] - times[0]) / STEPS_PER_SPAN, times[-1] + FIRST_GAP
    for i in reversed(range(len(times))):
        gap = times[i] - before
        count = 1 if i == len(times) - 1 or abs(gap) < smallest else max(2, int(abs(gap) / smallest + 1e-6)) - 1
        for _ in range(count):
            mu = mu + gap / count * f(mu)
        before = times[i]
        for b, r in enumerate(of):
            for k in np.flatnonzero(r.t == np.float32(times[i])):
                given = torch.cat((mu[b], s[b], torch.from_numpy(r.x[k]), torch.from_numpy(r.m[k])))
                u, reset = torch.sigmoid(cell.update(given)), torch.sigmoid(cell.reset(given))
                new = cell.state(torch.cat((mu[b] * reset, s[b] * reset, given[2 * R:])))
                mu, s = mu.clone(), s.clone()
                mu[b], s[b] = (1 - u) * new[:R] + u * mu[b], ((1 - u) * new[R:].abs() + u * s[b]).abs()
    mean, deviation = made.out(torch.cat((mu, s), 1)).chunk(2, 1)
    exact = mean, deviation.abs()
    found = made(on_union.seen, on_union.schedule)
    assert torch.allclose(found[0], exact[0], atol=1e-5)
    assert torch.allclose(found[1], exact[1], atol=1e-5)


def test_the_grids_converge_for_shorter_steps() -> None:
    """Own times and the union grid are two Euler discretisations of one ODE."""
    made, of = encoder(), records((5, 9, 3))

    @torch.no_grad()
    def distance(scale: float) -> float:
        near = [replace(r, t=r.t * scale) for r in of]
        own, on_union = batch(near), batch(near, union=True)
        return float((made(own.seen, own.schedule)[0] - made(on_union.seen, on_union.schedule)[0]).abs().max())

    assert distance(0.1) < 0.2 * distance(1.0)


def test_the_rnn_encoder_reads_backwards_from_the_last_point() -> None:
    made = RNNEncoder(3, 2, 4, 5)
    filled(made)
    b = batch(records((5, 3)))
    x = torch.cat((time_to_next(b.seen).unsqueeze(-1), b.seen.x, b.seen.m), -1)
    for i, n in enumerate((5, 3)):
        h = made.gru(x[i:i + 1, :n].flip(1), torch.ones(1, n, dtype=torch.bool))[:, -1]
        assert torch.allclose(made(b.seen, None)[0][i], made.out(h)[0, :2], atol=1e-6)


def test_a_schedule_has_the_row_of_every_point() -> None:
    import numpy as np

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
