"""The kernels of convolutional layers against the modules, on a CPU by an interpreter of Triton, and on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from problems import relative
from torch import Tensor
from triton_on_cpu import kernels_on, triton_on_cpu

from acenode.models.image import ConvField
from acenode.models.layers import initialise

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
pytestmark = pytest.mark.usefixtures("exact")


def on_both(*cases: tuple[Any, ...]) -> list[Any]:
    """Return the cases on a CPU; with the sizes of the models, their last, also on a GPU."""
    return [pytest.param(device, *case, marks=marks, id=f"{device}-{case}") for case in cases
            for device, marks in ((CPU, ()), (CUDA, pytest.mark.cuda))
            if (case[-1] <= 12) == (device is CPU)]


def field_of(channels: int, convolutions: int, device: torch.device, seed: int = 0) -> ConvField:
    field, generator = ConvField(channels, convolutions), torch.Generator().manual_seed(seed)
    initialise(field, seed)
    for norm in field.norms:
        norm.weight.data.normal_(generator=generator)
        norm.bias.data.normal_(generator=generator)
    return field.to(device)


def maps(count: int, device: torch.device, *shape: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(device).to(memory_format=torch.channels_last)
            for _ in range(count)]


def compare(fields: list[ConvField], inputs: list[Tensor], seeds: list[Tensor], expected: Sequence[Tensor], fused: Any,
            evaluate: Callable[[], Sequence[Tensor]], stages: int) -> None:
    """Compare values and gradients of kernels with those of the modules."""
    parameters = [p for field in fields for p in field.parameters() if p.requires_grad]
    exact = torch.autograd.grad(expected, (*inputs, *parameters), seeds, allow_unused=True)
    layers = [layer for network in fused.networks for layer in network]
    for layer in layers:
        layer.load_parameters()
        layer.begin_step(stages)
    mine = evaluate()
    found = torch.autograd.grad(mine, inputs, seeds, allow_unused=True)
    for layer in layers:
        layer.end_step()
    own = {p: g for layer in layers if layer.trains for p, g in layer.gradients().items()}
    for a, b in zip(mine, expected, strict=True):
        assert relative(a, b) < 1e-5
    assert len(own) == len(parameters)
    for x, y in zip((*found, *(own[p] for p in parameters)), exact, strict=True):
        assert (x is None) == (y is None)
        assert x is None or relative(x, y) < (1e-4 if x.is_cuda else 1e-5)


@pytest.mark.parametrize(("device", "channels", "convolutions", "trains", "pixels"), on_both(
    (8, 2, True, 12), (8, 1, False, 12),  # groups of two
    (15, 2, True, 12), (15, 2, False, 12), (9, 1, True, 12),  # groups of three, as in Augmented-ODE-Net
    (7, 2, True, 12), (6, 2, True, 12),  # one group of seven; an odd number of groups of two
    (69, 1, True, 12),  # products and weights in parts
    (64, 2, True, 36), (24, 1, True, 16), (128, 1, True, 64), (69, 2, True, 36), (69, 2, True, 64), (29, 2, True, 16)))
def test_a_field_equals_the_module(device: torch.device, channels: int, convolutions: int, trains: bool,
                                   pixels: int) -> None:
    field = field_of(channels, convolutions, device).requires_grad_(trains)
    height = 3 if pixels == 12 else round(pixels**0.5)
    x, *seeds = maps(3, device, 2 if device is CPU else 16, channels, height, pixels // height)
    inputs = [x.clone().requires_grad_(), (2 * x).requires_grad_()]
    times = [torch.tensor(t, device=device) for t in (0.3, 0.8)]
    expected = [field(h, t) for h, t in zip(inputs, times, strict=True)]
    with kernels_on(device):
        from acenode.accelerate.cuda_graph.field_kernels import FusedField

        fused = FusedField.of(field, x, "ieee" if device is CPU else "tf32x3", 2)
        compare([field], inputs, seeds, expected, fused,
                lambda: [fused(h, t) for h, t in zip(inputs, times, strict=True)], 2)


@pytest.mark.parametrize(("device", "channels", "f_convolutions", "g_convolutions", "detach", "pixels"), on_both(
    (8, 1, 2, False, 9), (9, 1, 2, False, 9), (8, 2, 1, True, 9),
    (64, 1, 2, False, 36), (64, 2, 1, True, 36), (128, 2, 1, False, 36)))
def test_f_and_g_in_one_launch_equal_the_modules(device: torch.device, channels: int, f_convolutions: int,
                                                 g_convolutions: int, detach: bool, pixels: int) -> None:
    fields = [field_of(channels, n, device, seed) for seed, n in enumerate((f_convolutions, g_convolutions))]
    side = round(pixels**0.5)
    h, a, *seeds = maps(4, device, 2 if device is CPU else 6, channels, side, side)
    h, a, t = h.requires_grad_(), a.requires_grad_(), torch.tensor(0.4, device=device)
    attended = h * torch.sigmoid(a.detach() if detach else a)
    with kernels_on(device):
        from acenode.accelerate.cuda_graph.field_kernels import FusedField

        fused = [FusedField.of(field, h.detach(), "ieee" if device is CPU else "tf32x3", 1) for field in fields]
        pair = FusedField([network for field in fused for network in field.networks])
        compare(fields, [h, a], seeds, [field(attended, t) for field in fields], pair,
                lambda: pair.of_attended(t, h, a, detach), 1)


def test_slots_of_augmented_ode_net() -> None:
    with triton_on_cpu():
        from acenode.accelerate.cuda_graph.field_kernels import ChannelSlots, FusedField

        slots = ChannelSlots(ConvField(69).norms[0], CPU)
        assert (slots.group, slots.slot, slots.count) == (3, 4, 92)
        assert slots.index is not None
        assert slots.index.tolist()[:7] == [0, 1, 2, 4, 5, 6, 8]
        assert ChannelSlots(ConvField(64).norms[0], CPU).index is None
        assert FusedField.supports(ConvField(69), torch.zeros(1, 69, 8, 8))
        assert not FusedField.supports(ConvField(133), torch.zeros(1, 133, 8, 8))


@pytest.mark.cuda
def test_kernels_propagate_nan() -> None:
    """As torch does: a maximum that drops NaN would let training go on silently."""
    field, (x,) = field_of(64, 1, CUDA), maps(1, CUDA, 4, 64, 6, 6)
    x[1, 3, 2, 2] = torch.nan
    with kernels_on(CUDA), torch.no_grad():
        from acenode.accelerate.cuda_graph.field_kernels import FusedField

        fused, t = FusedField.of(field, x, "tf32x3", 1), torch.tensor(0.3, device=CUDA)
        for layer in fused.networks[0]:
            layer.load_parameters()
            layer.begin_step(1)
        expected, found = field(x, t).isnan(), fused(x, t).isnan()
    assert expected.any()
    assert not expected.all()
    assert torch.equal(found, expected)
