"""Values and gradients of convolutions and of the linear layer for few rows on ARM; sizes of the norm groups."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from problems import relative

from acenode.accelerate import dispatch
from acenode.accelerate import layers as convolution
from acenode.backend import ACCELERATED, PLAIN
from acenode.models.image import Conv3x3, TimeConv, group_norm
from acenode.models.layers import LinearLayer


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gradients(y: torch.Tensor, inputs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad((y * noise(*y.shape, seed=9)).sum(), inputs)


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("kind", ["time", "bias", "no bias"])
@pytest.mark.parametrize(("B", "inputs", "outputs", "H", "W"), [(5, 3, 4, 6, 6), (2, 4, 2, 3, 5), (1, 2, 2, 1, 1)])
def test_convolutions_equal_those_of_torch(flipped: bool, kind: str, B: int, inputs: int, outputs: int, H: int, W: int,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """With time, one of a map with one more channel."""
    monkeypatch.setattr(convolution, "flipped", lambda x: flipped)
    layer: Any = TimeConv(inputs, outputs) if kind == "time" else Conv3x3(inputs, outputs, bias=kind == "bias")
    layer.double().initialise(torch.Generator().manual_seed(1))
    h, t = noise(B, inputs, H, W).requires_grad_(), torch.tensor(0.7, dtype=torch.float64)
    if kind == "time":
        found, weight = layer(h, t), torch.cat((layer.weight, layer.time), dim=1)
        expected = F.conv2d(torch.cat((h, t.expand(B, 1, H, W)), dim=1), weight, layer.bias, padding=1)
    else:
        found, expected = layer(h), F.conv2d(h, layer.weight, layer.bias, padding=1)
    leaves = [h, *layer.parameters()]
    for ours, theirs in zip((found, *gradients(found, leaves)), (expected, *gradients(expected, leaves)), strict=True):
        assert relative(ours, theirs) < 1e-12


@pytest.mark.parametrize(("frozen", "kept"), [("weight", {"x"}), ("x", {"weight"})])
def test_an_input_that_needs_no_gradient_gets_none(frozen: str, kept: set[str]) -> None:
    layer, x = Conv3x3(2, 2, bias=False).double(), noise(3, 2, 4, 4).requires_grad_(frozen != "x")
    layer.initialise(torch.Generator().manual_seed(0))
    layer.weight.requires_grad_(frozen != "weight")
    layer(x).sum().backward()
    assert {"x" for _ in [0] if x.grad is not None} | {"weight" for _ in [0] if layer.weight.grad is not None} == kept


@pytest.mark.parametrize(("channels", "expected"), [(64, 32), (128, 32), (69, 23), (16, 8), (21, 7), (3, 1), (1, 1)])
def test_number_of_norm_groups(channels: int, expected: int) -> None:
    assert group_norm(channels).num_groups == expected


def test_values_and_gradients_of_the_linear_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    x, W, b = (torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((5, 3), (4, 3), (4,)))
    assert torch.autograd.gradcheck(convolution.SmallLinear.apply, (x, W, b))
    for arm in (False, True):
        monkeypatch.setattr(dispatch, "ARM", arm)
        layer = LinearLayer(3, 4, backend=ACCELERATED).double()
        assert torch.allclose(layer(x.view(5, 1, 3))[:, 0], x @ layer.weight.T + layer.bias)


def test_small_linear_is_used_for_few_rows_on_arm_only(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many, W, b = torch.ones(2, 3), torch.ones(dispatch.SMALL + 1, 3), torch.ones(4, 3), torch.ones(4)
    monkeypatch.setattr(dispatch, "ARM", True)
    assert dispatch.linear(ACCELERATED, few, W, b) is not None
    assert dispatch.linear(ACCELERATED, many, W, b) is None
    assert dispatch.linear(PLAIN, few, W, b) is None
    monkeypatch.setattr(dispatch, "ARM", False)
    assert dispatch.linear(ACCELERATED, few, W, b) is None
