"""The mathematics of the kernels of recurrent cells, run on a CPU, against the plain loop."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import pytest
import torch
from scan_problems import CELLS, make
from triton_on_cpu import triton_on_cpu

from acenode.accelerate.recurrence import cuda


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize(("B", "T", "size", "units"), [(3, 4, 5, 17), (2, 3, 1, 4)])
def test_kernels_equal_the_plain_loop(name: str, B: int, T: int, size: int, units: int,
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make(name, B, T, size, units=units)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(cuda, "supports", lambda *_: True)
    with triton_on_cpu():
        found = problem.by_scan()
        assert "acenode.accelerate.recurrence.kernels" in sys.modules  # the kernels ran
    for a, b in zip(found, problem.by_loop(), strict=True):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-10)
