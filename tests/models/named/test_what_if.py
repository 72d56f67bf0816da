"""What if: held variables and held attention in the ODE of named variables."""

import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from named_models import batch_of, build

from acenode.errors import UserError
from acenode.models.named.what_if import HeldAttention, HeldVariable, solve_with

V = 3
T = [0.6, 0.7, 0.8, 0.9, 1.0]


def wanted(task="forecast"):
    batch = batch_of(task, gaps=False)
    return replace(batch, reference=batch.reference[:, :1].expand(-1, len(T), -1))


def test_nothing_held_is_the_forecast():
    model, batch = build(step_size=0.02), wanted()
    target = replace(batch.target, t=torch.tensor(T, dtype=torch.float64).expand(3, -1))
    torch.testing.assert_close(solve_with(model, batch, T), model(replace(batch, target=target, times=None)).x,
                               rtol=1e-5, atol=1e-6)


def test_a_held_variable_keeps_its_value_and_acts_on_those_that_hear_it():
    model, batch = build("ace", attention="fixed", initial="learned"), wanted()
    model.ode.q.B.data.copy_(2000 * torch.eye(V))
    model.ode.q.B.data[0, 1] = 2000  # u hears v, nobody else hears anybody
    plain = solve_with(model, batch, T, breaks=[0.65, 0.85])
    held = solve_with(model, batch, T, [HeldVariable(1, 3.0, 0.65, 0.85)])
    assert held[:, 1:3, 1] == pytest.approx(3.0)
    assert (held[:, 0] == plain[:, 0]).all()  # before
    assert (held[..., 2] == plain[..., 2]).all()  # w does not hear v
    assert (held[:, 1:, 0] != plain[:, 1:, 0]).all()
    assert (held[:, 3:, 1] != plain[:, 3:, 1]).all()  # released from another state


def test_held_attention_silences_a_variable():
    model, batch = build("ace", attention="fixed", initial="learned"), wanted()
    model.ode.q.B.data.copy_(2000 * torch.eye(V))
    silent = solve_with(model, batch, T)
    model.ode.q.B.data[0, 1] = 2000
    heard = solve_with(model, batch, T)
    assert (heard[..., 0] != silent[..., 0]).all()
    held = solve_with(model, batch, T, [HeldAttention(0, 1, 0.0, 0.0, 1.0)])
    torch.testing.assert_close(held, silent)
    assert (held[..., 1:] == heard[..., 1:]).all()


@pytest.mark.parametrize("method", ["ace", "mixed"])
def test_evolving_attention_can_be_held(method):
    model, batch = build(method), wanted()
    plain, held = solve_with(model, batch, T), solve_with(model, batch, T, [HeldAttention(2, 0, 1.0, 0.7, 0.9)])
    assert torch.equal(plain[:, :2], held[:, :2])
    assert (plain[:, 2:, 2] != held[:, 2:, 2]).all()


def test_observations_that_continue_can_be_held():
    model, batch = build("ace", "fill", relative_to="last"), wanted("fill")
    held = solve_with(model, batch, T, [HeldVariable(0, -1.0, 0.0, 0.75)])
    assert held[:, :2, 0] == pytest.approx(-1.0)


def test_it_takes_less_than_a_second():
    model, batch = build(dtype=torch.float32, step_size=0.02), wanted()
    batch = replace(batch, seen=replace(batch.seen, t=batch.seen.t.float(), x=batch.seen.x.float(),
                                        m=batch.seen.m.float()), reference=batch.reference.float())
    start = time.process_time()
    solve_with(model, batch, np.linspace(0.6, 1, 41).tolist(), [HeldVariable(0, 0.0, 0.6, 0.8)])
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(("held", "words"), [
    (HeldVariable(3, 0.0, 0.0, 1.0), "numbered from 0 to 2"), (HeldVariable(0, 0.0, 1.0, 1.0), "to a later one"),
    (HeldAttention(0, 1, 1.5, 0.0, 1.0), "between 0 and 1")])
def test_a_hold_without_meaning_is_refused(held, words):
    with pytest.raises(UserError, match=words):
        solve_with(build(), wanted(), T, [held])


def test_without_attention_there_is_none_to_hold():
    with pytest.raises(UserError, match="no attention to hold"):
        solve_with(build("no-attention"), wanted(), T, [HeldAttention(0, 1, 0.5, 0.0, 1.0)])
    with pytest.raises(UserError, match="classes"):
        solve_with(build("ace", "classify"), batch_of("classify"), T)
