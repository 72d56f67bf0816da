"""The parts of a recorded step by kernels on a GPU, each beside its twin in plain tensor operations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from graph_training import CUDA
from problems import relative
from torch import Tensor, nn

from acenode.accelerate.cuda_graph.accelerate import compiler
from acenode.accelerate.cuda_graph.control import RUNNING
from acenode.accelerate.cuda_graph.operations import Operations
from acenode.accelerate.cuda_graph.steps import Steps
from acenode.models.image.model import ConvField
from acenode.models.initialise import initialise
from acenode.ode.options import Solver

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("exact")]


@pytest.fixture(autouse=True)
def triton() -> None:
    if not compiler(CUDA):
        pytest.skip("no Triton")


def both() -> tuple[Operations, Operations]:
    from acenode.accelerate.cuda_graph.kernels.operations import KernelOperations

    return Operations(CUDA), KernelOperations(CUDA)


def states(count: int, blocks: int, generator: torch.Generator) -> list[tuple[Tensor, ...]]:
    """More numbers than a program takes at once, and not a whole number of its shares."""
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
    expected, found = (o.squares(dt, weights, ks, y0, y1, 1e-3, 1e-2).sum(1)[:blocks] for o in (plain, kernels))
    assert relative(found, expected) < 1e-5


def test_states_under_numbers() -> None:
    generator = torch.Generator(CUDA).manual_seed(0)
    first, second, slope = states(3, 2, generator)
    for o in both():
        kept = o.keep(first, 4)
        number = torch.tensor(1, device=CUDA)
        kept.write(number, first, slope)
        kept.write(number + 1, second, first)
        for at, y, k in ((2, first, slope), (3, second, first)):
            found = kept.read(torch.tensor(at, device=CUDA))
            for mine, theirs in zip(found[0] + found[1], y + k, strict=True):
                assert torch.equal(mine, theirs)


class Turning(nn.Module):
    """h and a turn into each other, the faster the later: steps of many sizes, and some refused."""

    def forward(self, t: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        h, a = state
        speed = 2 + 60 * t**6
        return speed * (a - 0.1 * h), -speed * (h + 0.1 * a)


@pytest.mark.parametrize("method", ["dopri5", "dopri8", "bosh3", "adaptive_heun"])
def test_the_control_decides_alike(method: str) -> None:
    generator = torch.Generator(CUDA).manual_seed(0)
    (y,) = states(1, 2, generator)
    told = []
    for o in both():
        steps = Steps(o.arrange(y), (0.0, 1.0), Solver(method, 1e-3, 1e-3), o, places=256)  # type: ignore[arg-type]
        field = Turning()
        steps.begin(field, y)
        while True:
            steps.attempt(field)
            steps.control.send()
            torch.cuda.synchronize()
            seen = steps.control.read()
            if seen.status != RUNNING:
                break
        steps.turn([b.clone() for b in steps.end()])
        steps.control.back()
        told.append((seen, steps.end(), steps.control.times.clone(), steps.control.dt.clone()))
    (expected, end, times, dt), (found, mine, my_times, my_dt) = told
    assert (found.status, found.tried, found.tries) == (expected.status, expected.tried, expected.tries)
    near = {"rel": 1e-2, "abs": 1e-3}  # an error estimate of dopri8 is near the rounding of its terms
    assert found.sizes == pytest.approx(expected.sizes, **near)
    assert len(expected.sizes) < expected.tried  # some were refused
    for a, b in zip(mine, end, strict=True):
        assert relative(a, b) < 1e-3
    assert my_times.tolist() == pytest.approx(times.tolist(), **near)
    assert float(my_dt) == pytest.approx(float(dt), **near)


@pytest.mark.parametrize(("channels", "f_convolutions", "g_convolutions", "detach"), [
    (64, 1, 2, False), (64, 2, 1, True), (128, 2, 1, False)])
def test_f_and_g_side_by_side(channels: int, f_convolutions: int, g_convolutions: int, detach: bool) -> None:
    from acenode.accelerate.cuda_graph.kernels.fused import FusedField, FusedPair

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
    fused = [FusedField(field, h.detach(), "tf32x3") for field in fields]
    assert FusedPair.fits(*fused)
    layers = [layer for field in fused for layer in field.layers]
    for layer in layers:
        layer.refresh()
        layer.begin(1)
    found = FusedPair(*fused)(t, h, a, detach)
    dh, da = gradients(found, [h, a])
    for layer in layers:
        layer.end()
    own = {p: grad for layer in layers for p, grad in layer.gradients().items()}
    for mine, theirs in zip(found, expected, strict=True):
        assert relative(mine, theirs) < 1e-5
    assert (da is None) == detach
    for mine, theirs in zip([dh, da, *(own[p] for p in everything[2:])], exact, strict=True):
        if theirs is not None:
            assert relative(mine, theirs) < 1e-4  # type: ignore[arg-type]
