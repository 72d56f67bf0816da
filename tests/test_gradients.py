"""Every gradient mode against central differences, in double precision, for θ_f, θ_g, θ_q and h(0)."""

from __future__ import annotations

import gc

import pytest
import torch
from problems import TIGHT, Linear, central_difference, co_evolving, relative

from acenode import Solver, solve
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


def test_linear_system_gradient_is_closed_form() -> None:
    """d/dh(0) of Σ h(1) for h' = M h is the column sums of exp(M)."""
    field = Linear(3, torch.Generator().manual_seed(0))
    h0 = start(3).requires_grad_()
    a0 = torch.zeros_like(h0)
    solve(field, (h0, a0), [0.0, 1.0], Solver(gradient="checkpointed", **TIGHT)).states[0][-1].sum().backward()
    assert relative(h0.grad, torch.linalg.matrix_exp(field.M)[:3, :3].sum(0).expand(4, 3)) < 1e-9


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


def test_checkpointed_refuses_a_second_derivative() -> None:
    y = torch.ones(3, dtype=torch.float64, requires_grad=True)
    end = solve(WideField().double(), (y,), [0.0, 1.0], Solver(gradient="checkpointed")).states[0][-1]
    (grad,) = torch.autograd.grad(end.sum(), y, create_graph=True)
    with pytest.raises(RuntimeError):
        grad.sum().backward()


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
