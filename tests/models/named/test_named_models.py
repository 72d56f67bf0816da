"""Named variables: the field against a closed form, its gradients, and who can hear whom."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from named_models import K, V, batch_of, build
from torch import nn

from acenode.errors import UserError
from acenode.models.influence import influence
from acenode.models.named.field import WRITTEN_OUT, Control, Embedding, NamedField, products
from acenode.models.named.model import InitialAttention, NamedODE, step_ends
from acenode.ode import runge_kutta_solve
from acenode.ode.solve import Solver, solve

# The mathematics ----------------------------------------------------------------------------------------------------


class Linear(nn.Module):
    """dh_i/dt = P h_i + Q m_i."""

    def __init__(self, P, Q):
        super().__init__()
        self.P, self.Q = P, Q

    def forward(self, h, m, c, t, embedding):
        return h @ self.P.T + m @ self.Q.T


def test_linear_field_with_fixed_attention_is_a_matrix_exponential():
    generator = torch.Generator().manual_seed(0)
    P, Q = (torch.randn(K, K, generator=generator, dtype=torch.float64) for _ in range(2))
    h0 = torch.randn(4, V, K, generator=generator, dtype=torch.float64)
    q = InitialAttention(V, "learned").double()
    q.B.data.normal_(generator=generator)
    layer = NamedODE(Linear(P, Q), None, q, Embedding(V, 1), "fixed", 0.0, Solver("dopri5", rtol=1e-10, atol=1e-12))
    path = layer(h0, [0.0, 0.5, 1.0])
    S = torch.softmax(q.B, -1)
    M = torch.kron(torch.eye(V, dtype=torch.float64), P) + torch.kron(S, Q)  # of the flattened h
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
    found = solve(field, (torch.zeros(1, V, K, dtype=torch.float64), a), [0.0, 0.7],
                  Solver("dopri5", rtol=1e-10, atol=1e-12)).states[1][-1]
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

    def loss():
        predicted = model(batch)
        return predicted.x.mul(batch.target.m).square().sum() if predicted.x is not None else \
            predicted.logits.square().sum()

    loss().backward()
    checked = 0
    for name, p in model.named_parameters():
        assert p.grad is not None or (task == "classify" and "read_out" in name), name
        if p.grad is None:
            continue
        place = tuple(int(i) for i in np.unravel_index(int(p.grad.abs().argmax()), p.shape)) if p.dim() else ()
        with torch.no_grad():
            before = p[place].item()
            values = []
            for shift in (1e-5, -1e-5):
                p[place] = before + shift
                values.append(loss().item())
            p[place] = before
        assert (values[0] - values[1]) / 2e-5 == pytest.approx(p.grad[place].item(), rel=1e-4, abs=1e-7), name
        checked += 1
    assert checked > 10


def gradients_of(task, gradient, **given):
    model, batch = build(task=task, gradient=gradient, **given), batch_of(task, gaps=task != "forecast")
    predicted = model(batch)
    (predicted.logits if predicted.x is None else predicted.x * batch.target.m).square().sum().backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("task", ["forecast", "fill", "classify"])
@pytest.mark.parametrize("given", [{}, {"attention": "fixed"}, {"method": "mixed"}])
def test_checkpointed_gradients_equal_those_of_backprop(given, task):
    exact, found = (gradients_of(task, gradient, **given) for gradient in ("backprop", "checkpointed"))
    assert found.keys() == exact.keys()
    for name, y in exact.items():
        torch.testing.assert_close(found[name], y, rtol=1e-9, atol=1e-12)


def test_adjoint_gradients_reach_the_initial_attention():
    exact, found = (gradients_of("forecast", gradient, step_size=0.04) for gradient in ("backprop", "adjoint"))
    assert found.keys() == exact.keys()
    torch.testing.assert_close(found["ode.q.B"], exact["ode.q.B"], rtol=0.05, atol=1e-3)


@pytest.mark.parametrize("method", ["ace", "mixed"])
def test_steps_that_would_fill_the_memory_are_taken_again(method, monkeypatch):
    """A regular forecast of many points would save more than fits; its gradient does not change."""
    kept = gradients_of("forecast", "backprop", method=method)
    monkeypatch.setattr(runge_kutta_solve, "LIMIT", 10_000)
    model, batch = build(method), batch_of(gaps=False)
    predicted = model(batch)
    (predicted.x * batch.target.m).square().sum().backward()
    assert predicted.evaluations.backward == predicted.evaluations.forward > 0
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, kept[name], rtol=1e-9, atol=1e-12)


def test_the_same_steps_whether_times_are_common_or_not():
    """A regular batch ends steps at its targets, an irregular one interpolates: both solve the same ODE."""
    model, batch = build(step_size=0.02), batch_of(gaps=False)
    assert batch.times is not None
    torch.testing.assert_close(model(batch).x, model(replace(batch, times=None)).x, rtol=1e-5, atol=1e-6)


def test_steps_end_at_the_targets():
    grid, chosen, solver = step_ends(0.0, [0.5, 0.6], Solver("rk4", step_size=0.2))
    assert grid == pytest.approx([0, 1 / 6, 1 / 3, 0.5, 0.6])
    assert chosen == [3, 4]
    assert solver.step_size is None


def test_a_control_is_linear_between_its_points():
    values = torch.arange(6.0).reshape(1, 3, 1, 2)
    control = Control(values, (0.0, 1.0))
    assert control(torch.tensor(0.25)).tolist() == [[[1.0, 2.0]]]
    assert control(torch.tensor(1.0)).tolist() == control(torch.tensor([[[1.0]]])).tolist() == [[[4.0, 5.0]]]
    times = torch.tensor([0.0, 0.3, 0.5, 1.0])
    assert torch.equal(control.at(times), torch.stack([control(t) for t in times]))


# Who can hear whom --------------------------------------------------------------------------------------------------


def heard(model, batch):
    """Return whether predictions of variable i depend on observations of variable j, (V, V)."""
    x = batch.seen.x.clone().requires_grad_()
    control = None if batch.control is None else batch.control.clone().requires_grad_()
    reference = batch.reference.clone().requires_grad_()
    predicted = model(replace(batch, seen=replace(batch.seen, x=x), control=control, reference=reference)).x
    found = torch.zeros(V, V)
    for i in range(V):
        inputs = [x, *([control] if control is not None else [])]
        grads = torch.autograd.grad((predicted[..., i] * batch.target.m[..., i]).sum(), inputs, retain_graph=True)
        found[i] += grads[0].abs().sum((0, 1))
        if control is not None:
            found[i] += grads[1].abs().sum((0, 1, 3))
    return found


OFF = ~torch.eye(V, dtype=torch.bool)


@pytest.mark.parametrize("task", ["forecast", "fill"])
def test_no_variable_hears_another_without_attention(task):
    for model in (build("no-attention", task), build("ace", task, attention="none")):
        found = heard(model, batch_of(task))
        assert (found[OFF] == 0).all()
        assert (found.diagonal() > 0).all()
    assert (heard(build("ace", task), batch_of(task))[OFF] > 0).all()


@pytest.mark.parametrize("task", ["forecast", "fill"])
def test_no_variable_hears_another_if_attention_is_the_identity(task):
    model = build("ace", task, attention="fixed", initial="learned")
    model.ode.q.B.data.copy_(2000 * torch.eye(V))  # its softmax is the identity, exactly
    assert (heard(model, batch_of(task))[OFF] == 0).all()
    model.ode.q.B.data[0, 1] = 2000
    found = heard(model, batch_of(task))
    assert found[0, 1] > 0
    assert found[0, 2] == found[1, 0] == found[2, 1] == 0


def test_one_f_on_everything_hears_everything():
    model = build("mixed", attention="fixed", initial="learned")
    model.ode.q.B.data.copy_(2000 * torch.eye(V))
    assert (heard(model, batch_of())[OFF] > 0).all()


@pytest.mark.parametrize("task", ["forecast", "fill", "classify"])
def test_missing_values_never_leak(task):
    """Whatever stands in a gap of the observations, and in every target, predictions are the same bits."""
    model, batch = build("ace", task), batch_of(task)

    def outputs(b):
        found = model(b)
        return found.logits if found.x is None else found.x

    seen = replace(batch.seen, x=torch.where(batch.seen.m > 0, batch.seen.x, 1e6))
    target = replace(batch.target, x=torch.full_like(batch.target.x, 1e6))
    assert torch.equal(outputs(batch), outputs(replace(batch, seen=seen, target=target)))


def test_a_prediction_does_not_depend_on_its_batch():
    model = build().eval()
    both = model(batch_of(index=(0, 1))).x
    alone = model(batch_of(index=(1,))).x
    torch.testing.assert_close(both[1:, :alone.shape[1]], alone)


# Influence ----------------------------------------------------------------------------------------------------------


def test_influence_of_a_linear_field_is_its_matrix():
    W = torch.tensor([[0.0, 2.0, 0.0], [0.0, -1.0, 0.0], [3.0, 0.0, 0.5]])
    h = torch.randn(4, 5, V)
    found = influence(lambda t, s: (s[0] @ W.T,), [0.0, 1.0, 2.0, 3.0], (h,))
    torch.testing.assert_close(found, W.abs().expand(4, 5, V, V))


def test_influence_is_zero_where_attention_is():
    model, batch = build("ace", attention="fixed", initial="learned"), batch_of()
    model.ode.q.B.data.copy_(2000 * torch.eye(V))
    model.ode.q.B.data[0, 1] = 2000
    h0, control = model.start(batch)
    field, state = model.ode.system(h0, control)
    found = influence(field, [0.5], (state[0][None],), K)[0].mean(0)
    assert found.shape == (V, V)
    assert found[0, 1] > 0
    assert found[0, 2] == found[1, 0] == found[1, 2] == found[2, 0] == found[2, 1] == 0


def test_attention_shared_by_a_batch_counts_once_for_every_series():
    """Whether sums are written out depends on the size of the whole product."""
    h = torch.empty(700, 8, 10)
    assert products(torch.empty(8, 8), h) == products(torch.empty(700, 8, 8), h) == 700 * 8 * 8 * 10 > WRITTEN_OUT
