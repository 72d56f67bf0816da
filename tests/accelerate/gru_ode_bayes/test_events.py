"""The GRU-Bayes update of all events at once, from which the gradients of the kernels' weights follow."""

from __future__ import annotations

import torch
from gru_ode_bayes_steps import events_of, update_one, weights_of

from acenode.accelerate.gru_ode_bayes import cuda
from acenode.accelerate.gru_ode_bayes.events import jump
from acenode.backend import ACCELERATED

SIZES = (7, 5, 3, 4)


def test_batched_updates_equal_updates_one_by_one() -> None:
    weights, events = weights_of(*SIZES), events_of(20, (4, 0, 6), *SIZES, True, False)
    h = torch.randn(10, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    exact = torch.cat([update_one(h[e:e + 1], e, events, weights) for e in range(10)])
    assert torch.allclose(jump(h, events, weights), exact)


def test_kernels_support_no_cpu_tensors() -> None:
    weights, events = weights_of(*SIZES), events_of(20, (4,), *SIZES, False, False)
    assert not cuda.supports(ACCELERATED, torch.zeros(1, 7), torch.zeros(20, 1), events, weights)
