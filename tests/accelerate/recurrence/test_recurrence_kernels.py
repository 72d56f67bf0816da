"""The mathematics of the kernels of recurrent cells, run on a CPU, against the plain loop."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from scan_problems import CELLS, make
from triton_on_cpu import triton_on_cpu

from acenode.accelerate import triton_support
from acenode.accelerate.recurrence import cuda
from acenode.accelerate.recurrence.cell import RecurrentCell


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


@pytest.mark.parametrize("wrong", ["forward", "backward"])
def test_kernels_with_wrong_numbers_are_not_used(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make("gru full decay", 3, 4, 5)
    monkeypatch.setattr(triton_support, "_failures", {})
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(cuda, "supports", lambda *_: True)
    exact = getattr(cuda, wrong)

    def broken(cell: RecurrentCell, *tensors: Any) -> Any:
        found = exact(cell, *tensors)
        (tensors[-1] if wrong == "forward" else found)[0] += 1
        return found

    monkeypatch.setattr(cuda, wrong, broken)
    with triton_on_cpu():
        found = problem.by_scan()
    for a, b in zip(found, problem.by_loop(), strict=True):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-10)
    (reason,) = triton_support._failures.values()
    assert "differ from torch" in reason
