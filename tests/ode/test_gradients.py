"""Every gradient mode against central differences, torch.func, and what is refused in words."""

from __future__ import annotations

import gc

import pytest
import torch
import torch.autograd.forward_ad as fwd
from problems import TIGHT, Linear, Smooth, central_difference, co_evolving, relative
from torch import Tensor, nn
from torch.func import grad, jacrev, jvp, vmap

from acenode import ACENODE, NODE, Correlation, Solver, UserError, solve
from acenode.config import FIXED_STEP

ENDS, INSIDE = (0.0, 1.0), (0.0, 0.3, 1.0)


def start(d: int = 2) -> torch.Tensor:
    return torch.randn(4, d, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def gradients(kind: str, times: tuple[float, ...], **settings: object) -> dict[str, torch.Tensor]:
    """Return the gradients of a loss that reads h at every time and a at the end."""
    layer = co_evolving(kind, Solver(**settings))  # type: ignore[arg-type]
    h0 = start().requires_grad_()
    loss_of(layer, h0, times).backward()
    found = {name: p.grad for name, p in layer.named_parameters()} | {"h(0)": h0.grad}
    return {name: g for name, g in found.items() if g is not None}


def loss_of(layer: torch.nn.Module, h0: torch.Tensor, times: tuple[float, ...] = ENDS) -> torch.Tensor:
    trajectory = layer(h0, times)
    return trajectory.h.sin().sum() + 0.1 * trajectory.a[-1].square().sum()


@pytest.mark.parametrize("kind", ["pairwise", "elementwise"])
def test_all_modes_agree_with_central_differences(kind: str) -> None:
    layer, h0 = co_evolving(kind, Solver("dopri8", **TIGHT)), start()  # another method than the one tested
    exact = {name: central_difference(lambda: loss_of(layer, h0), p.data) for name, p in layer.named_parameters()}
    exact["h(0)"] = central_difference(lambda: loss_of(layer, h0), h0)
    groups = {name.split(".")[0] for name in exact}
    assert groups == {"f", "g", "q", "h(0)"}
    for mode in ("backprop", "checkpointed", "adjoint"):
        found = gradients(kind, ENDS, gradient=mode, **TIGHT)
        assert found.keys() == exact.keys()
        for name, g in found.items():
            assert relative(g, exact[name]) < 1e-6, (mode, name)


@pytest.mark.parametrize("method", ["dopri5", "tsit5", "dopri8", "bosh3", "adaptive_heun", "rk4", "heun3", "euler"])
def test_checkpointed_equals_backprop_up_to_rounding(method: str) -> None:
    """At loose tolerances too: both are the exact gradient of the steps taken."""
    settings = {"method": method, "rtol": 1e-3, "atol": 1e-3, "step_size": 0.2 if method in FIXED_STEP else None}
    plain = gradients("pairwise", INSIDE, gradient="backprop", **settings)
    replayed = gradients("pairwise", INSIDE, gradient="checkpointed", **settings)
    for name, g in plain.items():
        assert relative(replayed[name], g) < 1e-12, name


def test_seminorm_gives_the_same_gradient_with_fewer_evaluations() -> None:
    counts, grads = {}, {}
    for seminorm in (False, True):
        field = Linear(3, torch.Generator().manual_seed(0))
        field.M.data *= 3
        h0 = start(3).requires_grad_()
        solution = solve(field, (h0, start(3)), [0.0, 2.0], Solver(rtol=1e-7, atol=1e-7, gradient="adjoint",
                                                                  seminorm=seminorm))
        solution.states[0][-1].sum().backward()
        counts[seminorm], grads[seminorm] = solution.evaluations.backward, field.M.grad
    assert relative(grads[True], grads[False]) < 1e-4
    assert 0 < counts[True] < counts[False]


def test_forward_and_backward_evaluations_are_counted() -> None:
    for mode, backward in (("backprop", False), ("checkpointed", True), ("adjoint", True)):
        layer = co_evolving("pairwise", Solver(gradient=mode))  # type: ignore[arg-type]
        calls = []
        layer.f.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        trajectory = layer(start())
        assert trajectory.evaluations.forward == len(calls) > 0
        trajectory.h[-1].sum().backward()
        assert trajectory.evaluations.forward + trajectory.evaluations.backward == len(calls)
        assert (trajectory.evaluations.backward > 0) == backward


class WideField(torch.nn.Module):
    """A field whose evaluation saves a hundred times its state for the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(100, 1))

    def forward(self, t: torch.Tensor, state: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return (torch.sin(self.w * state[0]).mean(0),)


class SavedTensor:
    """A tensor saved for the backward pass; counts the elements alive."""

    now = most = 0

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x
        SavedTensor.now += x.numel()
        SavedTensor.most = max(SavedTensor.most, SavedTensor.now)

    def __del__(self) -> None:
        SavedTensor.now -= self.x.numel()


def saved_elements(mode: str, steps: int) -> tuple[int, int]:
    """Return the elements saved at the end of the forward pass, and the most at any moment."""
    SavedTensor.now = SavedTensor.most = 0
    y = torch.ones(50, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(SavedTensor, lambda saved: saved.x):
        solution = solve(WideField(), (y,), [0.0, 1.0], Solver("rk4", step_size=1 / steps, gradient=mode))  # type: ignore[arg-type]
        after_forward = SavedTensor.now
        solution.states[0][-1].sum().backward()
    return after_forward, SavedTensor.most


def test_checkpointed_saves_the_tensors_of_one_step_only() -> None:
    """Backprop saves the tensors of all evaluations, checkpointed those of one step, whatever the number of steps."""
    after_forward, most = saved_elements("checkpointed", 40)
    assert after_forward == 0
    assert most == saved_elements("checkpointed", 5)[1] <= saved_elements("backprop", 1)[1]
    assert saved_elements("backprop", 40)[0] >= 40 * saved_elements("backprop", 1)[0] * 0.9


def test_changing_the_start_in_place_does_not_change_the_gradient() -> None:
    found = []
    for change in (False, True):
        y = torch.ones(3, dtype=torch.float64, requires_grad=True)
        start_state = y * 1
        end = solve(WideField().double(), (start_state,), [0.0, 1.0], Solver(gradient="checkpointed")).states[0][-1]
        if change:
            start_state.detach().mul_(3)
        (grad,) = torch.autograd.grad(end.sum(), y)
        found.append(grad)
    assert torch.equal(*found)


def test_checkpointed_frees_its_graph() -> None:
    y = torch.ones(50, requires_grad=True)
    gc.collect()
    before = sum(type(o) is torch.Tensor for o in gc.get_objects())
    gc.disable()
    try:
        for _ in range(5):
            solve(WideField(), (y,), [0.0, 1.0], Solver(gradient="checkpointed")).states[0][-1].sum().backward()
        after = sum(type(o) is torch.Tensor for o in gc.get_objects())
    finally:
        gc.enable()
    assert after - before < 5


State = tuple[Tensor, ...]


class Decay(nn.Module):
    """y' = -k y."""

    def __init__(self, k: Tensor | None = None) -> None:
        super().__init__()
        self.k = nn.Parameter(torch.tensor(1.5, dtype=torch.float64)) if k is None else k

    def forward(self, t: Tensor, state: State) -> State:
        return (-self.k * state[0],)


def ones() -> Tensor:
    return torch.ones(3, 2, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("gradient", ["checkpointed", "adjoint"])
@pytest.mark.parametrize("variable", ["state", "parameter"])
def test_a_second_derivative_is_refused(gradient: str, variable: str) -> None:
    """Also as a part of a loss whose other parts have one."""
    field, y = Decay(), ones()
    x = y if variable == "state" else field.k
    end = solve(field, (y,), [0.0, 1.0], Solver(gradient=gradient)).states[0][-1]  # type: ignore[arg-type]
    (first,) = torch.autograd.grad(end.square().sum(), x, create_graph=True)
    with pytest.raises(UserError, match=f'gradient "{gradient}" has no second derivatives: use gradient "backprop"'):
        (first.square().sum() + x.square().sum()).backward()


def test_backprop_has_second_derivatives() -> None:
    y = ones()
    end = solve(Decay(), (y,), [0.0, 1.0], Solver(rtol=1e-9, atol=1e-9)).states[0][-1]
    (first,) = torch.autograd.grad(end.square().sum(), y, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), y)
    assert torch.allclose(second, torch.full_like(y, 2 * torch.exp(torch.tensor(-3.0))), atol=1e-6)


@pytest.mark.parametrize("gradient", ["checkpointed", "adjoint"])
def test_a_tensor_from_outside_the_field_is_refused(gradient: str) -> None:
    weight = torch.ones(1, dtype=torch.float64, requires_grad=True)
    computed, solver = weight * 2, Solver(gradient=gradient)  # type: ignore[arg-type]
    for outside in (weight, computed):
        end = solve(Decay(outside), (ones(),), [0.0, 1.0], solver).states[0][-1]
        with pytest.raises(UserError, match="computed outside of it.* part of the state or a parameter"):
            end.sum().backward()
        with pytest.raises(UserError, match="computed outside of it"):  # nothing else needs a gradient
            solve(Decay(outside), (ones().detach(),), [0.0, 1.0], solver)
        with torch.no_grad():
            solve(Decay(outside), (ones().detach(),), [0.0, 1.0], solver)


METHODS = ["dopri5", "adaptive_heun", "fehlberg2", "rk4", "euler"]


def solver(method: str, gradient: str) -> Solver:
    steps = {"step_size": 0.3} if method in ("rk4", "euler") else {"rtol": 1e-2, "atol": 1e-2}
    return Solver(method, gradient=gradient, **steps)  # type: ignore[arg-type]


class Random(nn.Module):
    """A field with dropout and batch normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, t: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        drawn = nn.functional.dropout(torch.tanh(self.norm(self.first(state[0]))), 0.3)
        return (self.last(drawn) * torch.cos(t),)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("method", METHODS)
def test_masks_and_running_averages_are_those_of_backprop(method: str, device: str) -> None:
    """With rejected steps, times within a step, and further draws before the backward pass."""
    found = {}
    for gradient in ("backprop", "checkpointed"):
        torch.manual_seed(0)
        field = Random().double().to(device)
        h0 = torch.randn(6, 3, dtype=torch.float64, device=device, requires_grad=True)
        h = solve(field, (h0,), [0.0, 0.4, 1.0], solver(method, gradient)).states[0]
        torch.rand(5)
        (h.sin().sum() * 3).backward()
        found[gradient] = [h.detach(), h0.grad, *(p.grad for p in field.parameters()), *field.buffers(), torch.rand(3)]
    for a, b in zip(*found.values(), strict=True):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-13)  # type: ignore[arg-type]


def test_a_field_that_draws_nothing_leaves_the_generator_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads may use the global generator meanwhile."""
    monkeypatch.setattr(torch, "set_rng_state", lambda state: pytest.fail("the generator was set"))
    y = torch.ones(2, 3, requires_grad=True)
    solve(lambda t, s: (-s[0],), (y,), [0.0, 1.0], Solver(gradient="checkpointed")).states[0].sum().backward()
    assert y.grad is not None


def test_the_running_correlation_of_fixed_attention_is_that_of_backprop() -> None:
    averages = []
    for gradient in ("backprop", "checkpointed"):
        torch.manual_seed(0)
        q = Correlation((3,), bins=5)
        layer = ACENODE(Smooth(3, 3), q=q, attention="fixed", solver=solver("dopri5", gradient))
        layer(torch.randn(8, 3)).h[-1].sum().backward()
        averages.append((q.running.clone(), q.seen.clone()))
    assert float(averages[0][1].sum()) > 0
    for a, b in zip(*averages, strict=True):
        assert torch.equal(a, b)


RK4, DOPRI5 = Solver("rk4", step_size=0.05), Solver(rtol=1e-9, atol=1e-9)
Y = torch.tensor([0.3, -1.2], dtype=torch.float64)


def end(y: Tensor, solver: Solver, k: Tensor | float = 1.0) -> Tensor:
    """y' = -k y³, whose solution is y / √(1 + 2 k y² t)."""
    return solve(lambda t, s: (-k * s[0] ** 3,), (y,), [0.0, 1.0], solver).states[0][-1]


def exact(y: Tensor) -> Tensor:
    return y / (1 + 2 * y**2).sqrt()


def slope(y: Tensor) -> Tensor:
    return (1 + 2 * y**2) ** -1.5


@pytest.mark.parametrize("solver", [RK4, DOPRI5], ids=["rk4", "dopri5"])
def test_grad_jacrev_and_jvp(solver: Solver) -> None:
    assert torch.allclose(grad(lambda y: end(y, solver).sum())(Y), slope(Y), atol=1e-6)
    assert torch.allclose(jacrev(lambda y: end(y, solver))(Y), torch.diag(slope(Y)), atol=1e-6)
    value, tangent = jvp(lambda y: end(y, solver), (Y,), (torch.tensor([1.0, 2.0], dtype=torch.float64),))
    assert torch.allclose(value, exact(Y), atol=1e-6)
    assert torch.allclose(tangent, slope(Y) * torch.tensor([1.0, 2.0]), atol=1e-6)


def test_vmap_over_states_and_over_parameters() -> None:
    ks = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    states = torch.stack((Y, Y / 2))
    assert torch.allclose(vmap(lambda y: end(y, RK4))(states), exact(states), atol=1e-6)
    found = vmap(lambda k: end(Y, RK4, k))(ks)
    assert torch.allclose(found, torch.stack([end(Y, RK4, float(k)) for k in ks]))
    per_sample = vmap(grad(lambda y: end(y, RK4).sum()))(states)
    assert torch.allclose(per_sample, slope(states), atol=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_vmap_over_adaptive_steps_is_refused(training: bool) -> None:
    with pytest.raises(UserError, match="vmap cannot pass through dopri5.* fixed-step method such as rk4"):
        vmap(lambda y: end(y, DOPRI5))(torch.stack((Y, Y)))

    class Cube(nn.Module):
        def forward(self, h: Tensor, t: Tensor) -> Tensor:
            return -(h**3)

    layer = NODE(Cube(), DOPRI5).train(training)
    with pytest.raises(UserError, match="vmap cannot pass"):
        vmap(lambda y: layer(y).h)(torch.ones(3, 2, 2))
    assert layer(torch.ones(2, 2)).h.shape == (2, 2, 2)


@pytest.mark.parametrize("gradient", ["checkpointed", "adjoint"])
def test_other_gradients_are_refused(gradient: str) -> None:
    solver = Solver(gradient=gradient)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=f'need .* gradient "backprop", not dopri5 with gradient "{gradient}"'):
        grad(lambda y: end(y, solver).sum())(Y)
    with fwd.dual_level(), pytest.raises(UserError, match='gradient "backprop", not dopri5'):
        end(fwd.make_dual(Y, torch.ones_like(Y)), solver)
