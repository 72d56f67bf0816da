"""Jumps of many events at once, whose gradient is the kernel's weights' gradient."""

from __future__ import annotations

import torch
from jump_problem import events_of, leap, weights_of

from acenode.accelerate.gru_ode_bayes import cuda as jump_scan_cuda
from acenode.accelerate.gru_ode_bayes.events import jump

SIZES = (7, 5, 3, 4)


def test_jumps_together_are_the_jumps_one_by_one() -> None:
    weights, events = weights_of(*SIZES), events_of(20, (4, 0, 6), *SIZES, True, False)
    h = torch.randn(10, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    exact = torch.cat([leap(h[e:e + 1], e, events, weights) for e in range(10)])
    assert torch.allclose(jump(h, events, weights), exact)


def test_without_a_gpu_there_is_no_kernel() -> None:
    weights, events = weights_of(*SIZES), events_of(20, (4,), *SIZES, False, False)
    assert not jump_scan_cuda.suits(torch.zeros(1, 7), torch.zeros(20, 1), events, weights)
