"""Named variables: the field against closed forms, its gradients, who can hear whom, and what if."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from named_models import K, V, batch_of, build
from problems import check_gradients
from torch import nn

from acenode.data.named_batches import references_at
from acenode.errors import UserError
from acenode.models.influence import HeldAttention, HeldField, HeldVariable, influence, solve_with
from acenode.models.named import Control, Embedding, InitialAttention, NamedField, NamedODE, step_ends
from acenode.ode import runge_kutta_solve
from acenode.ode.solve import Solver, solve

TIGHT = Solver("dopri5", rtol=1e-10, atol=1e-12)
OFF = ~torch.eye(V, dtype=torch.bool)


class Linear(nn.Module):
    """dh_i/dt = P h_i + Q m_i."""

    def __init__(self, P, Q):
        super().__init__()
        self.P, self.Q = P, Q

    def forward(self, h, m, c, t, embedding):
        return h @ self.P.T + m @ self.Q.T


def attend(model, *pairs):
    """Let nobody attend to anybody else, exactly, but for these pairs."""
    model.ode.q.B.data.copy_(2000 * torch.eye(V))
    for i, j in pairs:
        model.ode.q.B.data[i, j] = 2000
    return model


def loss_of(model, batch):
    predicted = model(batch)
    return predicted.logits.square().sum() if predicted.x is None else (predicted.x * batch.target.m).square().sum()


def test_linear_field_with_fixed_attention_is_a_matrix_exponential():
    generator = torch.Generator().manual_seed(0)
    P, Q = (torch.randn(K, K, generator=generator, dtype=torch.float64) for _ in range(2))
    h0 = torch.randn(4, V, K, generator=generator, dtype=torch.float64)
    q = InitialAttention(V, "learned").double()
    q.B.data.normal_(generator=generator)
    path = NamedODE(Linear(P, Q), None, q, Embedding(V, 1), "fixed", 0.0, TIGHT)(h0, [0.0, 0.5, 1.0])
    M = torch.kron(torch.eye(V, dtype=torch.float64), P) + torch.kron(torch.softmax(q.B, -1), Q)  # of flattened h
    for t, h in zip((0.0, 0.5, 1.0), path.h, strict=True):
        exact = (torch.linalg.matrix_exp(t * M) @ h0.flatten(1).T).T.unflatten(1, (V, K))
        torch.testing.assert_close(h, exact, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(path.a[1, 2], q.B)


def test_attention_without_g_returns_to_its_start():
    class Nothing(nn.Module):
        def forward(self, m, t, embedding):
            return torch.zeros(len(m), V, V, dtype=m.dtype)

    a0, a = torch.randn(V, V, dtype=torch.float64), torch.randn(1, V, V, dtype=torch.float64)
    zero = torch.zeros(K, K, dtype=torch.float64)
    field = NamedField(Linear(zero, zero), Nothing(), Embedding(V, 1), a0, pull=3.0)
    found = solve(field, (torch.zeros(1, V, K, dtype=torch.float64), a), [0.0, 0.7], TIGHT).states[1][-1]
    torch.testing.assert_close(found, a0 + np.exp(-2.1) * (a - a0))


def test_a_trajectory_begins_where_its_span_does():
    """The state at the first time is the encoder's, so another first time would shift all others."""
    model, batch = build().eval(), batch_of()
    start, end = batch.span
    path = model.trajectory(batch, [start, 0.5 * (start + end), end])
    torch.testing.assert_close(path.h[0], model.start(batch)[0])
    for t in ([0.0, end], [end], []):
        with pytest.raises(UserError, match=f"the first time must be {start:g}, where the ODE of this batch starts"):
            model.trajectory(batch, t)


@pytest.mark.parametrize("task", ["forecast", "fill", "classify"])
@pytest.mark.parametrize("method", ["ace", "mixed"])
def test_gradients_match_central_differences(task, method):
    model, batch = build(method, task), batch_of(task)
    used = [(name, p) for name, p in model.named_parameters() if task != "classify" or "read_out" not in name]
    assert check_gradients(lambda: loss_of(model, batch), used, rel=1e-4) == len(used)


def gradients_of(task, gradient, **given):
    model, batch = build(task=task, gradient=gradient, **given), batch_of(task, gaps=task != "forecast")
    loss_of(model, batch).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(("task", "given"), [("forecast", {}), ("fill", {"attention": "fixed"}),
                                             ("classify", {"method": "mixed"}), ("fill", {})])
def test_checkpointed_gradients_equal_those_of_backprop(given, task, monkeypatch):
    exact = gradients_of(task, "backprop", **given)
    torch.testing.assert_close(gradients_of(task, "checkpointed", **given), exact, rtol=1e-9, atol=1e-12)
    if task == "forecast":  # steps that would fill the memory are taken again too
        monkeypatch.setattr(runge_kutta_solve, "LIMIT", 10_000)
        torch.testing.assert_close(gradients_of(task, "backprop", **given), exact, rtol=1e-9, atol=1e-12)
        model, batch = build(), batch_of(gaps=False)
        predicted = model(batch)
        (predicted.x * batch.target.m).square().sum().backward()
        assert predicted.evaluations.backward == predicted.evaluations.forward > 0


def test_adjoint_gradients_reach_the_initial_attention():
    exact, found = (gradients_of("forecast", gradient, step_size=0.04) for gradient in ("backprop", "adjoint"))
    assert found.keys() == exact.keys()
    torch.testing.assert_close(found["ode.q.B"], exact["ode.q.B"], rtol=0.05, atol=1e-3)


def test_the_same_steps_whether_times_are_common_or_not():
    """A regular batch ends steps at its targets, an irregular one interpolates: both solve the same ODE."""
    model, batch = build(step_size=0.02), batch_of(gaps=False)
    assert batch.times is not None
    torch.testing.assert_close(model(batch).x, model(replace(batch, times=None)).x, rtol=1e-5, atol=1e-6)
    grid, chosen, solver = step_ends(0.0, [0.5, 0.6], Solver("rk4", step_size=0.2))
    assert grid == pytest.approx([0, 1 / 6, 1 / 3, 0.5, 0.6])
    assert (chosen, solver.step_size) == ([3, 4], None)


def test_a_control_is_linear_between_its_points():
    control = Control(torch.arange(6.0).reshape(1, 3, 1, 2), (0.0, 1.0))
    assert control(torch.tensor(0.25)).tolist() == [[[1.0, 2.0]]]
    assert control(torch.tensor(1.0)).tolist() == control(torch.tensor([[[1.0]]])).tolist() == [[[4.0, 5.0]]]
    times = torch.tensor([0.0, 0.3, 0.5, 1.0])
    assert torch.equal(control.at(times), torch.stack([control(t) for t in times]))


@pytest.mark.cuda
@pytest.mark.parametrize("task", ["forecast", "fill", "classify"])
@pytest.mark.parametrize("method", ["ace", "mixed", "no-attention"])
def test_outputs_and_gradients_on_a_gpu_are_those_of_the_cpu(method, task):
    found = []
    for device in ("cpu", "cuda"):
        model, batch = build(method, task).to(device), batch_of(task).to(torch.device(device))
        loss = loss_of(model, batch)
        loss.backward()
        found.append([loss.detach().cpu(), *(p.grad.cpu() for p in model.parameters() if p.grad is not None)])
    torch.testing.assert_close(found[1], found[0], rtol=1e-8, atol=1e-10)


def heard(model, batch):
    """Return whether predictions of variable i depend on observations of variable j, (V, V)."""
    x = batch.seen.x.clone().requires_grad_()
    control = None if batch.control is None else batch.control.clone().requires_grad_()
    predicted = model(replace(batch, seen=replace(batch.seen, x=x), control=control)).x
    found = torch.zeros(V, V)
    for i in range(V):
        inputs = [x, *([control] if control is not None else [])]
        grads = torch.autograd.grad((predicted[..., i] * batch.target.m[..., i]).sum(), inputs, retain_graph=True)
        for g in grads:  # (B, T, V), and (B, G, V, 2)
            found[i] += g.abs().sum((0, 1)).reshape(V, -1).sum(1)
    return found


@pytest.mark.parametrize("task", ["forecast", "fill"])
def test_variables_hear_each_other_through_attention_alone(task):
    batch = batch_of(task)
    for model in (build("no-attention", task), build("ace", task, attention="none"),
                  attend(build("ace", task, attention="fixed", initial="learned"))):
        found = heard(model, batch)
        assert (found[OFF] == 0).all()
        assert (found.diagonal() > 0).all()
    assert (heard(build("ace", task), batch)[OFF] > 0).all()
    found = heard(attend(build("ace", task, attention="fixed", initial="learned"), (0, 1)), batch)
    assert found[0, 1] > 0
    assert found[0, 2] == found[1, 0] == found[2, 1] == 0
    mixed = attend(build("mixed", task, attention="fixed", initial="learned"))
    assert (heard(mixed, batch)[OFF] > 0).all()  # one f on everything


@pytest.mark.parametrize("task", ["forecast", "fill", "classify"])
def test_missing_values_never_leak_and_samples_do_not_interact(task):
    """Whatever stands in a gap of the observations, and in every target, predictions are the same bits."""
    model, batch = build("ace", task).eval(), batch_of(task)

    def outputs(b):
        found = model(b)
        return found.logits if found.x is None else found.x

    seen = replace(batch.seen, x=torch.where(batch.seen.m > 0, batch.seen.x, 1e6))
    target = replace(batch.target, x=torch.full_like(batch.target.x, 1e6))
    assert torch.equal(outputs(batch), outputs(replace(batch, seen=seen, target=target)))
    alone = outputs(batch_of(task, index=(1,)))
    both = outputs(batch_of(task, index=(0, 1)))[1:]
    torch.testing.assert_close(both if task == "classify" else both[:, :alone.shape[1]], alone)


def test_influence_is_the_jacobian():
    W = torch.tensor([[0.0, 2.0, 0.0], [0.0, -1.0, 0.0], [3.0, 0.0, 0.5]])
    found = influence(lambda t, s: (s[0] @ W.T,), [0.0, 1.0, 2.0, 3.0], (torch.randn(4, 5, V),))
    torch.testing.assert_close(found, W.abs().expand(4, 5, V, V))
    model = attend(build("ace", attention="fixed", initial="learned"), (0, 1))
    h0, control = model.start(batch_of())
    field, state = model.ode.system(h0, control)
    found = influence(field, [0.5], (state[0][None],), K)[0].mean(0)
    assert found[0, 1] > 0
    assert found[0, 2] == found[1, 0] == found[1, 2] == found[2, 0] == found[2, 1] == 0


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
    model, batch = attend(build("ace", attention="fixed", initial="learned"), (0, 1)), wanted()
    plain = solve_with(model, batch, T, breaks=[0.65, 0.85])
    held = solve_with(model, batch, T, [HeldVariable(1, 3.0, 0.65, 0.85)])
    assert held[:, 1:3, 1] == pytest.approx(3.0)
    assert (held[:, 0] == plain[:, 0]).all()  # before
    assert (held[..., 2] == plain[..., 2]).all()  # w does not attend to v
    assert (held[:, 1:, 0] != plain[:, 1:, 0]).all()
    assert (held[:, 3:, 1] != plain[:, 3:, 1]).all()  # released from another state


@pytest.mark.parametrize("method", ["ace", "mixed"])
def test_attention_can_be_held(method):
    model, batch = build(method), wanted()
    plain, held = solve_with(model, batch, T), solve_with(model, batch, T, [HeldAttention(2, 0, 1.0, 0.7, 0.9)])
    assert torch.equal(plain[:, :2], held[:, :2])
    assert (plain[:, 2:, 2] != held[:, 2:, 2]).all()
    model = build("ace", attention="fixed", initial="learned")
    silent, hears = solve_with(attend(model), batch, T), solve_with(attend(model, (0, 1)), batch, T)
    assert (hears[..., 0] != silent[..., 0]).all()
    torch.testing.assert_close(solve_with(model, batch, T, [HeldAttention(0, 1, 0.0, 0.0, 1.0)]), silent)


def test_a_held_variable_acts_with_its_value_while_its_reference_moves():
    """The block of a held variable reads the held value beside the interpolation of its observations at every time."""
    model, batch = build("ace", "fill", relative_to="last", attention="fixed", initial="learned"), wanted("fill")
    attend(model, (0, 1))
    times, value = np.linspace(0, 1, 97)[1:], 0.5
    reference = references_at(batch.seen, np.linspace(0, 1, 97 * 2 - 1), "fill").double()
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
    assert (held[..., 0] - solve_with(model, batch, times.tolist())[..., 0]).abs().max() > 1e-2


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
    one_after_another = [replace(holds[0], end=0.8), HeldAttention(0, 2, 0.6, 0.8, 1.0)]
    assert solve_with(model, wanted(), T, one_after_another).isfinite().all()


@pytest.mark.parametrize(("method", "task", "held", "words"), [
    ("ace", "forecast", [HeldVariable(3, 0.0, 0.0, 1.0)], "numbered from 0 to 2"),
    ("ace", "forecast", [HeldVariable(0, 0.0, 1.0, 1.0)], "to a later one"),
    ("ace", "forecast", [HeldAttention(0, 1, 1.5, 0.0, 1.0)], "between 0 and 1"),
    ("ace", "forecast", [HeldAttention(0, 1, 0.5, 0.0, 1.0), HeldAttention(0, 2, 0.6, 0.5, 1.0)],
     "sum to 1.1: a row sums to 1"),
    ("no-attention", "forecast", [HeldAttention(0, 1, 0.5, 0.0, 1.0)], "no attention to hold"),
    ("ace", "classify", [], "classes")])
def test_a_hold_without_meaning_is_refused(method, task, held, words):
    with pytest.raises(UserError, match=words):
        solve_with(build(method, task), batch_of(task, gaps=False), T, held)
