"""What if: held variables and held attention in the ODE of named variables."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from named_models import batch_of, build

from acenode.data.named_batches import references_at
from acenode.errors import UserError
from acenode.models.named.what_if import HeldAttention, HeldField, HeldVariable, solve_with

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


def test_a_held_variable_keeps_its_value_and_acts_on_those_that_attend_to_it():
    model, batch = build("ace", attention="fixed", initial="learned"), wanted()
    model.ode.q.B.data.copy_(2000 * torch.eye(V))
    model.ode.q.B.data[0, 1] = 2000  # u attends to v, nobody else to anybody
    plain = solve_with(model, batch, T, breaks=[0.65, 0.85])
    held = solve_with(model, batch, T, [HeldVariable(1, 3.0, 0.65, 0.85)])
    assert held[:, 1:3, 1] == pytest.approx(3.0)
    assert (held[:, 0] == plain[:, 0]).all()  # before
    assert (held[..., 2] == plain[..., 2]).all()  # w does not attend to v
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


def test_a_held_variable_acts_with_its_value_while_its_reference_moves():
    """The block of a held variable reads the held value beside the interpolation of its observations at every time."""
    model, batch = build("ace", "fill", relative_to="last", attention="fixed", initial="learned"), wanted("fill")
    model.ode.q.B.data.copy_(2000 * torch.eye(V))
    model.ode.q.B.data[0, 1] = 2000  # u attends to v
    times, value = np.linspace(0, 1, 97)[1:], 0.5
    reference = references_at(batch.seen, np.linspace(0, 1, 97 * 2 - 1), "fill").double()
    assert (reference[:, :, 1].amax(1) - reference[:, :, 1].amin(1)).min() > 0.3
    with torch.no_grad():
        h, control = model.start(batch)
        field, _ = model.ode.system(h, control)
        w, first, expected = model.read_out.weight[0], h[:, 1].clone(), []

        def rate(h, i):  # at the i-th half of a step, with v's block where it reads the value
            missing = value - reference[:, i, 1] - model.read_out(first).squeeze(-1)
            h = h.clone()
            h[:, 1] = first + missing[:, None] * w / w.square().sum()
            return field(torch.tensor(i / 192, dtype=torch.float64), (h,))[0]

        for n in range(96):
            middle = h + rate(h, 2 * n) / 192
            h = h + rate(middle, 2 * n + 1) / 96
            expected.append(model.read_out(h).squeeze(-1)[:, 0] + reference[:, 2 * n + 2, 0])
    batch = replace(batch, reference=reference[:, 2::2])
    held = solve_with(model, batch, times.tolist(), [HeldVariable(1, value, 0.0, 1.0)])
    assert (held[..., 0] - torch.stack(expected, 1)).abs().max() < 1e-4
    plain = solve_with(model, batch, times.tolist())
    assert (held[..., 0] - plain[..., 0]).abs().max() > 1e-2


def test_held_weights_of_one_row_do_not_change_each_other():
    model = build("ace", attention="fixed", initial="learned")
    field, _ = model.ode.system(model.start(wanted())[0], None)
    holds = [HeldAttention(0, 1, 0.5, 0.0, 1.0), HeldAttention(0, 2, 0.3, 0.0, 1.0)]
    S, plain = HeldField(field, holds, torch.zeros(())).weights(field.a0), field.weights(field.a0)
    assert S[0].tolist() == pytest.approx([0.2, 0.5, 0.3])
    assert torch.equal(S[1:], plain[1:])
    one = HeldField(field, holds[:1], torch.zeros(())).weights(field.a0)[0]
    assert one.sum().item() == pytest.approx(1)
    assert (one[0] / one[2]).item() == pytest.approx((plain[0, 0] / plain[0, 2]).item())
    with pytest.raises(UserError, match="sum to 1.1: a row sums to 1"):
        solve_with(model, wanted(), T, [holds[0], HeldAttention(0, 2, 0.6, 0.5, 1.0)])
    one_after_another = [replace(holds[0], end=0.8), HeldAttention(0, 2, 0.6, 0.8, 1.0)]
    assert solve_with(model, wanted(), T, one_after_another).isfinite().all()


def test_holding_costs_no_more_evaluations_of_f():
    """What is held adds the steps at its edges alone."""
    model, batch, calls = build(step_size=0.02), wanted(), []
    model.ode.f.register_forward_hook(lambda *_: calls.append(1))
    times = np.linspace(0.6, 1, 41).tolist()
    solve_with(model, batch, times, breaks=[0.655, 0.8])
    plain = len(calls)
    solve_with(model, batch, times, [HeldVariable(0, 0.0, 0.655, 0.8)])
    assert len(calls) == 2 * plain
    assert plain == 2 * (12 + 40 + 1)  # two for every step: from 0.375 to the first time, between times, for one edge


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
