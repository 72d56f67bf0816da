"""The linear layer for few rows on ARM."""

from __future__ import annotations

import pytest
import torch

from acenode.accelerate import dispatch
from acenode.accelerate.small_linear import SmallLinear
from acenode.backend import ACCELERATED, PLAIN
from acenode.models.layers import LinearLayer


def test_values_and_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    x, W, b = (torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((5, 3), (4, 3), (4,)))
    assert torch.autograd.gradcheck(SmallLinear.apply, (x, W, b))
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
