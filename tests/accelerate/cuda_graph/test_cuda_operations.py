"""The kernels of a recorded step on a GPU, each against its counterpart in plain tensor operations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from graph_training import CUDA
from problems import relative
from torch import Tensor, nn

from acenode.accelerate.cuda_graph.step_control import RUNNING, StepOperations
from acenode.accelerate.cuda_graph.steps import DeviceSteps
from acenode.accelerate.triton_support import kernels_available
from acenode.backend import ACCELERATED
from acenode.models.image import ConvField
from acenode.models.layers import initialise
from acenode.ode.options import Solver

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("exact")]


@pytest.fixture(autouse=True)
def triton() -> None:
    if not kernels_available(ACCELERATED, CUDA):
        pytest.skip("no Triton")


def both() -> tuple[StepOperations, StepOperations]:
    from acenode.accelerate.cuda_graph.step_kernels import KernelStepOperations

    return StepOperations(CUDA), KernelStepOperations(CUDA)


def states(count: int, blocks: int, generator: torch.Generator) -> list[tuple[Tensor, ...]]:
    """More values than a program handles at once, and not a multiple of its block."""
    shapes = [(5, 8, 7, 7), (5, 8, 7, 7)][:blocks]
    return [tuple(torch.randn(s, device=CUDA, generator=generator).to(memory_format=torch.channels_last)
                  for s in shapes) for _ in range(count)]


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("terms", [1, 7, 8, 9, 13])
def test_combinations_and_norms(terms: int, blocks: int) -> None:
    generator = torch.Generator(CUDA).manual_seed(terms)
    y0, y1, *ks = states(terms + 2, blocks, generator)
    weights = [0.0 if i == 2 else (-1.0) ** i / (i + 1) for i in range(terms)]
    dt = torch.tensor(0.3, dtype=torch.float64, device=CUDA)
    plain, kernels = both()
    for base in (y0, None):
        expected = plain.combine(base, dt, weights, ks)
        for given in (None, tuple(torch.empty_like(b) for b in y0)):
            found = kernels.combine(base, dt, weights, ks, given)
            assert given is None or found is given
            for mine, theirs in zip(found, expected, strict=True):
                assert relative(mine, theirs) < 1e-6
    expected, found = (o.scaled_squares(dt, weights, ks, y0, y1, 1e-3, 1e-2).sum(1)[:blocks] for o in (plain, kernels))
    assert relative(found, expected) < 1e-5


def test_stored_states() -> None:
    generator = torch.Generator(CUDA).manual_seed(0)
    first, second, slope = states(3, 2, generator)
    for o in both():
        store = o.store(first, 4)
        row = torch.tensor(1, device=CUDA)
        store.write_after(row, first, slope)
        store.write_after(row + 1, second, first)
        for at, y, k in ((2, first, slope), (3, second, first)):
            found = store.read(torch.tensor(at, device=CUDA))
            for mine, theirs in zip(found[0] + found[1], y + k, strict=True):
                assert torch.equal(mine, theirs)


class Rotation(nn.Module):
    """h and a rotate into each other, faster with time: steps of many sizes, and some rejected."""

    def forward(self, t: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        h, a = state
        speed = 2 + 60 * t**6
        return speed * (a - 0.1 * h), -speed * (h + 0.1 * a)


@pytest.mark.parametrize("method", ["dopri5", "dopri8", "bosh3", "adaptive_heun"])
def test_step_control_makes_the_same_decisions(method: str) -> None:
    generator = torch.Generator(CUDA).manual_seed(0)
    (y,) = states(1, 2, generator)
    found_by = []
    for o in both():
        steps = DeviceSteps(o.arrange(y), (0.0, 1.0), Solver(method, 1e-3, 1e-3), o, capacity=256)  # type: ignore[arg-type]
        field = Rotation()
        steps.begin(field, y)
        while True:
            steps.attempt(field)
            steps.control.send_to_host()
            torch.cuda.synchronize()
            seen = steps.control.read()
            if seen.status != RUNNING:
                break
        steps.begin_backward([b.clone() for b in steps.end_state()])
        steps.control.previous_step()
        found_by.append((seen, steps.end_state(), steps.control.times.clone(), steps.control.dt.clone()))
    (expected, end, times, dt), (found, mine, my_times, my_dt) = found_by
    assert (found.status, found.attempts, found.accepted) == (
        expected.status, expected.attempts, expected.accepted)
    near = {"rel": 1e-2, "abs": 1e-3}  # an error estimate of dopri8 is near the rounding of its terms
    assert found.step_sizes == pytest.approx(expected.step_sizes, **near)
    assert len(expected.step_sizes) < expected.attempts  # some were rejected
    for a, b in zip(mine, end, strict=True):
        assert relative(a, b) < 1e-3
    assert my_times.tolist() == pytest.approx(times.tolist(), **near)
    assert float(my_dt) == pytest.approx(float(dt), **near)


@pytest.mark.parametrize(("channels", "f_convolutions", "g_convolutions", "detach"), [
    (64, 1, 2, False), (64, 2, 1, True), (128, 2, 1, False)])
def test_f_and_g_in_one_kernel(channels: int, f_convolutions: int, g_convolutions: int, detach: bool) -> None:
    from acenode.accelerate.cuda_graph.field_kernels import FusedField

    fields = [ConvField(channels, n) for n in (f_convolutions, g_convolutions)]
    for i, field in enumerate(fields):
        initialise(field, i)
        field.to(CUDA)
    generator = torch.Generator(CUDA).manual_seed(0)
    h, a, *seeds = (torch.randn(6, channels, 6, 6, device=CUDA, generator=generator)
                    .to(memory_format=torch.channels_last) for _ in range(4))
    h, a, t = h.requires_grad_(), a.requires_grad_(), torch.tensor(0.4, device=CUDA)

    def gradients(outputs: Any, inputs: list[Tensor]) -> list[Tensor | None]:
        return list(torch.autograd.grad(outputs, inputs, seeds, allow_unused=True))

    attended = h * torch.sigmoid(a.detach() if detach else a)
    expected = [field(attended, t) for field in fields]
    everything = [h, a, *(p for field in fields for p in field.parameters())]
    exact = gradients(expected, everything)
    fused = [FusedField.of(field, h.detach(), "tf32x3") for field in fields]
    assert FusedField.can_pair(*fused)
    layers = [layer for field in fused for layer in field.networks[0]]
    for layer in layers:
        layer.load_parameters()
        layer.begin_step(1)
    found = FusedField([field.networks[0] for field in fused]).of_attended(t, h, a, detach)
    dh, da = gradients(found, [h, a])
    for layer in layers:
        layer.end_step()
    own = {p: grad for layer in layers for p, grad in layer.gradients().items()}
    for mine, theirs in zip(found, expected, strict=True):
        assert relative(mine, theirs) < 1e-5
    assert (da is None) == detach
    for mine, theirs in zip([dh, da, *(own[p] for p in everything[2:])], exact, strict=True):
        if theirs is not None:
            assert relative(mine, theirs) < 1e-4  # type: ignore[arg-type]
