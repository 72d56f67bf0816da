"""What computes recorded passes on a GPU: our kernels, fields compiled by torch, or torch's own operations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from graph_training import CUDA, apart, close, iterate, parameters, trainer
from problems import relative

from acenode.accelerate.cuda_graph.fields import CompiledField
from acenode.accelerate.triton_support import kernels_available
from acenode.backend import ACCELERATED
from acenode.models.image import ConvField
from acenode.models.layers import initialise

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("exact")]


@pytest.mark.parametrize(("channels", "convolutions", "side"), [(64, 2, 6), (24, 1, 4), (128, 1, 8),
                                                                (69, 2, 6), (69, 2, 8), (29, 2, 4)])
def test_kernels_equal_the_modules(channels: int, convolutions: int, side: int) -> None:
    if not kernels_available(ACCELERATED, CUDA):
        pytest.skip("no Triton")
    from acenode.accelerate.cuda_graph.field_kernels import FusedField

    field = ConvField(channels, convolutions)
    initialise(field, 0)
    field.to(CUDA)
    generator = torch.Generator(CUDA).manual_seed(0)
    x = torch.randn(16, channels, side, side, device=CUDA, generator=generator).to(memory_format=torch.channels_last)
    grad = torch.randn(x.shape, device=CUDA, generator=generator)
    t = torch.tensor(0.3, device=CUDA)
    x.requires_grad_()
    expected = field(x, t)
    gradients = torch.autograd.grad(expected, (x, *field.parameters()), grad)
    fused = FusedField.of(field, x.detach(), "tf32x3")
    for layer in fused.networks[0]:
        layer.load_parameters()
        layer.begin_step(1)
    found = fused(x, t)
    assert relative(found, expected) < 1e-5
    assert relative(torch.autograd.grad(found, x, grad)[0], gradients[0]) < 1e-4
    for layer in fused.networks[0]:
        layer.end_step()
    own = {p: g for layer in fused.networks[0] for p, g in layer.gradients().items()}
    for p, exact in zip(field.parameters(), gradients[1:], strict=True):
        assert relative(own[p], exact) < 1e-4


def test_kernels_propagate_nan() -> None:
    """As torch does: a maximum that drops NaN would let training go on silently."""
    if not kernels_available(ACCELERATED, CUDA):
        pytest.skip("no Triton")
    from acenode.accelerate.cuda_graph.field_kernels import FusedField

    field = ConvField(64, 1)
    initialise(field, 0)
    field.to(CUDA)
    x = torch.randn(4, 64, 6, 6, device=CUDA, generator=torch.Generator(CUDA).manual_seed(0))
    x[1, 3, 2, 2] = torch.nan
    fused = FusedField.of(field, x, "tf32x3")
    for layer in fused.networks[0]:
        layer.load_parameters()
        layer.begin_step(1)
    with torch.no_grad():
        t = torch.tensor(0.3, device=CUDA)
        expected, found = field(x, t).isnan(), fused(x, t).isnan()
    assert expected.any()
    assert not expected.all()
    assert torch.equal(found, expected)


def test_tf32_takes_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for allowed in (False, True):
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
        t = trainer(True, rtol=1e-4, atol=1e-4)
        found[allowed] = [r["nfe_forward"] for r in iterate(t, 6)]
        close(t)
    print(f"evaluations a pass: {found[False]} in float32, {found[True]} in TF32")
    assert max(abs(a - b) for a, b in zip(*found.values(), strict=True)) <= 6


def test_without_triton_torch_operations_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acenode.accelerate.cuda_graph.fields.kernels_available", lambda *_: False)
    log: list[str] = []
    plain, graphed = trainer(False), trainer(True, log=log)
    start = parameters(plain)
    iterate(plain, 2)
    iterate(graphed, 2)
    assert "steps by torch, fields by torch;" in log[0]
    assert apart(graphed, plain, start) < 1e-2
    close(graphed)


@pytest.mark.parametrize("refuses", [False, True])
def test_fields_without_kernels_are_compiled_by_torch(refuses: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not kernels_available(ACCELERATED, CUDA):
        pytest.skip("no Triton")
    monkeypatch.setattr("acenode.accelerate.cuda_graph.field_kernels.MAX_MAP_SIZE", 0)  # no map fits a kernel
    monkeypatch.setattr("acenode.accelerate.triton_support._failures", {})  # forget earlier tests
    if refuses:
        def refuse(self: CompiledField, *_: Any) -> None:
            raise RuntimeError("no compiler")
        monkeypatch.setattr(CompiledField, "__call__", refuse)
    log: list[str] = []
    graphed = trainer(True, "augmented", log, augment=5)
    iterate(graphed, 1)
    found, expected = (("torch", ["fields compiled by torch do not run here: RuntimeError: no compiler"]) if refuses
                       else ("torch.compile", []))
    assert f"steps by Triton, fields by {found};" in log[-1]
    assert log[:-1] == expected
    close(graphed)


def test_kernels_that_fail_are_replaced_by_torch_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    if not kernels_available(ACCELERATED, CUDA):
        pytest.skip("no Triton")
    from acenode.accelerate.cuda_graph.field_kernels import FusedLayer

    def refuses(self: FusedLayer) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(FusedLayer, "end_step", refuses)
    log: list[str] = []
    plain, graphed = trainer(False), trainer(True, log=log)
    start = parameters(plain)
    for t in (plain, graphed):
        iterate(t, 2)
    assert log[0] == ("graph engine: kernels do not run here (RuntimeError: no such kernel): torch's operations are "
                      "recorded")
    assert all("steps by torch, fields by torch;" in line for line in log[1:])
    assert apart(graphed, plain, start) < 1e-2
    close(graphed)
