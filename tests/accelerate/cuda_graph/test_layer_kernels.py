"""The mathematics of the kernels of convolutional layers, run on a CPU, against the modules."""

from __future__ import annotations

import pytest
import torch
from problems import relative
from triton_on_cpu import triton_on_cpu

from acenode.models.image import ConvField
from acenode.models.layers import initialise


@pytest.mark.parametrize(("channels", "convolutions", "trains"), [
    (8, 2, True), (8, 1, False),  # groups of two
    (15, 2, True), (15, 2, False), (9, 1, True),  # groups of three, as in Augmented-ODE-Net
    (7, 2, True), (6, 2, True),  # one group of seven; an odd number of groups of two
    (69, 1, True)])  # products and weights in parts
def test_kernels_equal_the_modules(channels: int, convolutions: int, trains: bool) -> None:
    field = ConvField(channels, convolutions)
    initialise(field, 0)
    field.requires_grad_(trains)
    generator = torch.Generator().manual_seed(0)
    for norm in field.norms:
        norm.weight.data.normal_(generator=generator)
        norm.bias.data.normal_(generator=generator)
    x = torch.randn(2, channels, 3, 4, generator=generator).to(memory_format=torch.channels_last)
    grads = [torch.randn(x.shape, generator=generator) for _ in range(2)]
    inputs = [x.clone().requires_grad_(), (2 * x).requires_grad_()]
    times = [torch.tensor(0.3), torch.tensor(0.8)]
    parameters = [p for p in field.parameters() if p.requires_grad]
    expected = [field(h, t) for h, t in zip(inputs, times, strict=True)]
    exact = torch.autograd.grad(expected, (*inputs, *parameters), grads)
    with triton_on_cpu():
        from acenode.accelerate.cuda_graph.field_kernels import FusedField

        fused = FusedField.of(field, x, "ieee")
        for layer in fused.networks[0]:
            layer.reserve(2)
            layer.load_parameters()
            layer.begin_step(2)
        mine = [fused(h, t) for h, t in zip(inputs, times, strict=True)]
        found = torch.autograd.grad(mine, inputs, grads)
        for layer in fused.networks[0]:
            layer.end_step()
        of_kernels = {p: g for layer in fused.networks[0] if layer.trains for p, g in layer.gradients().items()}
    for a, b in zip((*mine, *found), (*expected, *exact[:2]), strict=True):
        assert relative(a, b) < 1e-5
    assert len(of_kernels) == len(parameters)
    for p, gradient in zip(parameters, exact[2:], strict=True):
        assert relative(of_kernels[p], gradient) < 1e-5


def test_slots_of_augmented_ode_net() -> None:
    with triton_on_cpu():
        from acenode.accelerate.cuda_graph.field_kernels import ChannelSlots, FusedField

        slots = ChannelSlots.of(ConvField(69).norms[0])
        assert (slots.group, slots.slot, slots.count) == (3, 4, 92)
        index = slots.index(torch.device("cpu"))
        assert index is not None
        assert index.tolist()[:7] == [0, 1, 2, 4, 5, 6, 8]
        assert ChannelSlots.of(ConvField(64).norms[0]).index(torch.device("cpu")) is None
        assert FusedField.supports(ConvField(69), torch.zeros(1, 69, 8, 8))
        assert not FusedField.supports(ConvField(133), torch.zeros(1, 133, 8, 8))


@pytest.mark.parametrize("channels", [8, 9])
def test_f_and_g_in_one_launch_equal_the_modules(channels: int) -> None:
    f, g = ConvField(channels, 1), ConvField(channels, 2)
    for field in (f, g):
        initialise(field, 0)
    generator = torch.Generator().manual_seed(0)
    h, a, d_f, d_g = (torch.randn(2, channels, 3, 3, generator=generator).to(memory_format=torch.channels_last)
                      for _ in range(4))
    h.requires_grad_()
    a.requires_grad_()
    t = torch.tensor(0.4)
    expected = f(h * torch.sigmoid(a), t), g(h * torch.sigmoid(a), t)
    exact = torch.autograd.grad(expected, (h, a), (d_f, d_g))
    with triton_on_cpu():
        from acenode.accelerate.cuda_graph.field_kernels import FusedField

        fused = [FusedField.of(field, h.detach(), "ieee") for field in (f, g)]
        assert FusedField.can_pair(*fused)
        pair = FusedField([field.networks[0] for field in fused])
        for layer in (*pair.networks[0], *pair.networks[1]):
            layer.load_parameters()
            layer.begin_step(1)
        found = pair.of_attended(t, h, a, False)
        gradients = torch.autograd.grad(found, (h, a), (d_f, d_g))
    for mine, theirs in zip((*found, *gradients), (*expected, *exact), strict=True):
        assert relative(mine, theirs) < 1e-5
