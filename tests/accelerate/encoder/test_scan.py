"""The accelerated ODE-RNN on a CPU, compared with the plain loop and with central differences."""

from __future__ import annotations

import pytest
import torch
from irregular_batches import batch, filled, records
from torch import Tensor

from acenode.accelerate.encoder.scan import EncoderScan
from acenode.backend import ACCELERATED, PLAIN, Backend
from acenode.models.latent.ode_rnn import ODERNN, AttentiveDrift, Drift
from acenode.models.layers import MLPField

R = 4


@pytest.mark.parametrize("attentive", [False, True])
def test_values_and_gradients_equal_those_of_the_plain_loop(attentive: bool) -> None:
    b = batch(records())
    assert b.schedule is not None

    def run(backend: Backend) -> tuple[Tensor, list[Tensor]]:
        f = MLPField(R, R, 6, 3)
        drift = AttentiveDrift(f, MLPField(R, R * R, 6, 3, square=True)) if attentive else Drift(f)
        model = ODERNN(6, R, 5, drift, backend)
        filled(model)
        y = model(b.seen, b.schedule)
        (y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum().backward()
        return y, [p.grad for p in model.parameters() if p.grad is not None]

    (y, grads), (exact, exact_grads) = run(ACCELERATED), run(PLAIN)
    assert torch.allclose(y, exact, atol=1e-6)
    for g, e in zip(grads, exact_grads, strict=True):
        assert torch.allclose(g, e, rtol=1e-3, atol=1e-4)


def test_the_gradient_of_the_scan_agrees_with_central_differences() -> None:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return (torch.randn(shape, generator=generator, dtype=torch.float64) * 0.7).requires_grad_()

    S, B, r, u = 4, 3, 2, 3
    projected = draw(S, B, 3 * u)
    dt = torch.rand(S, B, 1, generator=generator, dtype=torch.float64) - 0.5
    read = torch.rand(S, B, 1, generator=generator) > 0.3
    weights = [draw(2 * r, 2 * u), draw(2 * u, 2 * r), draw(2 * r), draw(2 * r, u), draw(u, 2 * r), draw(2 * r),
               draw(r, 4), draw(4), draw(4, r), draw(r)]
    assert torch.autograd.gradcheck(lambda x, *w: EncoderScan.apply(ACCELERATED, x, dt, read, *w),
                                    (projected, *weights))
