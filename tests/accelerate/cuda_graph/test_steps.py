"""Recorded steps against `solve`, and their kernels on a GPU against plain tensor operations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from problems import co_evolving, relative
from torch import Tensor, nn
from triton_on_cpu import kernels_on

from acenode import SolveError, Solver, solve
from acenode.accelerate.cuda_graph.step_control import RUNNING, SolveStatus, StepOperations
from acenode.accelerate.cuda_graph.steps import AdjointSteps, DeviceSteps, GradientSums, can_record_adjoint
from acenode.ode.tableaus import TABLEAUS

PLACE = re.compile(r", in sample \d+, in h\[\d+\], after \d+ evaluations")  # a recorded pass does not know it


def solved(solver: Solver) -> tuple[nn.Module, tuple[Tensor, ...], Any, tuple[Tensor, ...]]:
    """Return a field, the initial state, the solution, and the gradients of the sum of sin(h) at its end."""
    h0 = 2 * torch.randn(4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    field, state = co_evolving("elementwise", solver, d=3).system(h0, False)
    y = tuple(b.detach().requires_grad_() for b in state)
    found = solve(field, y, [0.0, 1.0], solver)
    exact = torch.autograd.grad(found.states[0][-1].sin().sum(), (*y, *field.parameters()))
    return field, tuple(b.detach() for b in y), found, exact


def march(steps: DeviceSteps, field: nn.Module, y: tuple[Tensor, ...], extra: int = 0) -> SolveStatus:
    """Solve to the end, and attempt some more steps, which must have no effect."""
    steps.begin(field, y)
    while True:
        steps.attempt(field)
        steps.control.send_to_host()
        if y[0].is_cuda:
            torch.cuda.synchronize()
        status = steps.control.read()
        if status.status != RUNNING:
            break
    for _ in range(extra):
        steps.attempt(field)
    return status


@pytest.mark.parametrize("solver", [
    Solver("dopri5", 1e-7, 1e-7), Solver("tsit5", 1e-5, 1e-5), Solver("bosh3", 1e-4, 1e-4),
    Solver("fehlberg2", 1e-3, 1e-3), Solver("dopri8", 1e-6, 1e-6), Solver("rk4", step_size=0.3),
    Solver("euler", step_size=0.1), Solver("midpoint")], ids=lambda solver: solver.method)
def test_device_steps_equal_the_steps_of_solve(solver: Solver) -> None:
    field, y, expected, gradients = solved(solver)
    steps = DeviceSteps(y, solver, StepOperations(y[0].device))
    status = march(steps, field, y, extra=2)
    end = steps.end_state()[0].requires_grad_()
    sums = GradientSums(field.parameters())
    steps.begin_backward((*torch.autograd.grad(end.sin().sum(), end), None))
    for _ in status.step_sizes:
        steps.step_back(field, sums)
    start = steps.back_to_start(field, sums)

    assert status.step_sizes == pytest.approx(expected.evaluations.step_sizes, rel=1e-12)
    more = 0 if TABLEAUS[solver.method].adaptive else 1  # the slope at the very end
    assert steps.evaluations(status, 0).forward == expected.evaluations.forward + more
    assert relative(end, expected.states[0][-1]) < 1e-12
    for found, exact in zip((*start, *sums.sums.values()), gradients, strict=True):
        assert relative(found, exact) < 1e-10


class BlowsUp(nn.Module):
    """y' = y², which reaches infinity at t = 1 / y(0); with a NaN factor NaN at once."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, t: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (self.factor * state[0].square(),)


@pytest.mark.parametrize(("factor", "start", "settings"), [
    (1.0, 2.0, {"rtol": 1e-4}), (float("nan"), 1.0, {}), (float("inf"), 1.0, {}), (1.0, float("inf"), {}),
    (1.0, 0.8, {"max_steps": 4}), (1.0, 1e200, {"method": "rk4", "step_size": 0.5}),
    (1.0, 1e10, {"method": "euler", "step_size": 0.1})])
def test_errors_have_the_words_of_solve(factor: float, start: float, settings: dict[str, Any]) -> None:
    y, solver = (torch.tensor([[start]], dtype=torch.float64),), Solver(**{"rtol": 1e-8, "atol": 1e-8} | settings)
    with pytest.raises(SolveError) as expected:
        solve(BlowsUp(factor), y, [0.0, 1.0], solver)
    steps = DeviceSteps(y, solver, StepOperations(y[0].device), capacity=2000)
    with pytest.raises(SolveError) as found:
        march(steps, BlowsUp(factor), y).check(solver.max_steps)
    assert str(found.value) == PLACE.sub("", str(expected.value))


@pytest.mark.parametrize("solver", [
    Solver("rk4", gradient="adjoint"), Solver("rk4", step_size=0.3, gradient="adjoint"),
    Solver("euler", step_size=0.125, gradient="adjoint"), Solver("heun2", step_size=0.5, gradient="adjoint")], ids=str)
def test_adjoint_steps_equal_those_of_torchdiffeq(solver: Solver) -> None:
    assert can_record_adjoint(solver)
    field, y, expected, exact = solved(solver)
    steps = AdjointSteps(y, solver, StepOperations(y[0].device))
    end = steps.forward(field, y)
    h1 = end[0].clone().requires_grad_()
    (grad,) = torch.autograd.grad(h1.sin().sum(), h1)
    sums = GradientSums(field.parameters())
    start = steps.backward(field, end, (grad, torch.zeros_like(end[1])), sums)
    assert relative(end[0], expected.states[0][-1]) < 1e-12
    for mine, theirs in zip((*start, *sums.sums.values()), exact, strict=True):
        assert relative(mine, theirs) < 1e-10
    cost, theirs = steps.evaluations(), expected.evaluations
    assert (cost.forward, cost.backward) == (theirs.forward, theirs.backward)
    assert cost.step_sizes == pytest.approx(theirs.step_sizes)


@pytest.mark.parametrize(("solver", "recorded"), [
    (Solver("rk4", step_size=1.0, gradient="adjoint"), True), (Solver("dopri5", gradient="adjoint"), False),
    (Solver("rk4", step_size=0.01, gradient="adjoint"), False), (Solver("rk4", step_size=1.0), False),
    (Solver("midpoint", gradient="adjoint"), False),  # its first stage has no weight
    (Solver("rk4", step_size=1.0, gradient="adjoint", engine="reference"), False)], ids=str)
def test_which_adjoint_solves_are_recorded(solver: Solver, recorded: bool) -> None:
    assert can_record_adjoint(solver) == recorded


Both = tuple[StepOperations, StepOperations]


@pytest.fixture(params=[torch.device("cpu"), pytest.param(torch.device("cuda"), marks=pytest.mark.cuda)], ids=str)
def both(request: pytest.FixtureRequest, exact: None) -> Iterator[Both]:
    with kernels_on(request.param):
        from acenode.accelerate.cuda_graph.step_kernels import KernelStepOperations

        yield StepOperations(request.param), KernelStepOperations(request.param)


def states(count: int, blocks: int, seed: int, device: torch.device) -> list[tuple[Tensor, ...]]:
    """More values than a program handles at once, and not a multiple of its block."""
    generator = torch.Generator().manual_seed(seed)
    return [tuple(torch.randn(5, 8, 7, 7, generator=generator).to(device).to(memory_format=torch.channels_last)
                  for _ in range(blocks)) for _ in range(count)]


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("terms", [1, 7, 13])
def test_combinations_and_norms(terms: int, blocks: int, both: Both) -> None:
    plain, kernels = both
    y0, y1, *ks = states(terms + 2, blocks, terms, plain.device)
    weights = [0.0 if i == 2 else (-1.0) ** i / (i + 1) for i in range(terms)]
    dt = torch.tensor(0.3, dtype=torch.float64, device=plain.device)
    for base in (y0, None):
        expected = plain.combine(base, dt, weights, ks)
        for given in (None, tuple(torch.empty_like(b) for b in y0)):
            found = kernels.combine(base, dt, weights, ks, given)
            assert given is None or found is given
            for mine, theirs in zip(found, expected, strict=True):
                assert relative(mine, theirs) < 1e-6
    solver = Solver(rtol=1e-3, atol=1e-2)
    expected, found = (o.scaled_squares(dt, weights, ks, y0, y1, solver).sum(1)[:blocks] for o in (plain, kernels))
    assert relative(found, expected) < 1e-5


class Rotation(nn.Module):
    """h and a rotate into each other, faster with time: steps of many sizes, and some rejected."""

    def forward(self, t: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        h, a = state
        speed = 2 + 60 * t**6
        return speed * (a - 0.1 * h), -speed * (h + 0.1 * a)


@pytest.mark.parametrize("method", ["dopri5", "dopri8", "bosh3", "adaptive_heun"])
def test_step_control_makes_the_same_decisions(method: str, both: Both) -> None:
    (y,) = states(1, 2, 0, both[0].device)
    found_by = []
    for o in both:
        steps = DeviceSteps(o.arrange(y), Solver(method, 1e-3, 1e-3), o, capacity=256)  # type: ignore[arg-type]
        seen = march(steps, Rotation(), y)
        steps.begin_backward([b.clone() for b in steps.end_state()])
        steps.control.previous_step()
        found_by.append((seen, steps.end_state(), steps.control.times.clone(), steps.control.dt.clone()))
    (expected, end, times, dt), (found, mine, my_times, my_dt) = found_by
    assert (found.status, found.attempts, found.accepted) == (
        expected.status, expected.attempts, expected.accepted)
    near = {"rel": 2e-2, "abs": 1e-3}  # an error estimate of dopri8 is near the rounding of its terms
    assert found.step_sizes == pytest.approx(expected.step_sizes, **near)
    assert len(expected.step_sizes) < expected.attempts  # some were rejected
    for a, b in zip(mine, end, strict=True):
        assert relative(a, b) < 1e-3
    assert my_times.tolist() == pytest.approx(times.tolist(), **near)
    assert float(my_dt) == pytest.approx(float(dt), **near)
