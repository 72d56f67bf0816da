"""The kernels of recurrent cells on a CUDA device, compared with the plain loop in double precision."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from problems import FailingKernel
from scan_problems import CELLS, Problem, make
from torch import Tensor

from acenode.accelerate import triton_support
from acenode.accelerate.recurrence import cuda
from acenode.backend import ACCELERATED, Backend
from acenode.bench.workloads import latent_task, ushcn_task

pytestmark = pytest.mark.cuda


def single(name: str, B: int, T: int, size: int, units: int = 5) -> Problem:
    return make(name, B, T, size, units=units, device="cuda", dtype=torch.float32)


def assert_close(found: list[Tensor], exact: list[Tensor]) -> None:
    for n, (a, b) in enumerate(zip(found, exact, strict=True)):
        assert (a.double() - b).norm() <= (1e-5 if n == 0 else 1e-4) * b.norm(), n


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize(("B", "T", "size", "units"), [
    (50, 121, 20, 20), (300, 60, 50, 50), (1, 7, 64, 33), (3, 1, 1, 2)])
def test_kernels_equal_the_plain_loop(name: str, B: int, T: int, size: int, units: int) -> None:
    problem = single(name, B, T, size, units)
    assert cuda.supports(ACCELERATED, problem.cell, problem.scan_inputs())
    assert_close(problem.by_scan(), make(name, B, T, size, units=units, device="cuda").by_loop())


@pytest.mark.parametrize("name", CELLS)
def test_unsupported_widths_use_torch_operations(name: str) -> None:
    problem = single(name, 3, 5, 65)
    assert not cuda.supports(ACCELERATED, problem.cell, problem.scan_inputs())
    assert_close(problem.by_scan(), make(name, 3, 5, 65, device="cuda").by_loop())


@pytest.mark.parametrize("which", ["gru_forward", "gru_backward"])
def test_a_failing_kernel_is_replaced_by_torch_operations(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from acenode.accelerate.recurrence import kernels

    monkeypatch.setattr(triton_support, "_failures", {})
    monkeypatch.setattr(kernels, which, FailingKernel())
    lines = list[str]()
    found = single("gru", 3, 5, 4).by_scan(Backend(log=lines.append))
    assert_close(found, make("gru", 3, 5, 4, device="cuda").by_loop())
    assert lines == ["GPU kernels do not run here: RuntimeError: out of resource: registers",
                     "series are integrated by torch's operations, row by row"]


@pytest.mark.parametrize("name", ["gru full decay", "lstm"])
def test_scans_are_deterministic_in_concurrent_threads(name: str) -> None:
    problem = single(name, 40, 50, 50)
    first, found = problem.by_scan(), list[list[Tensor]]()

    def run() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            found.append(problem.by_scan())
            torch.cuda.current_stream().synchronize()

    torch.cuda.synchronize()
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for each in found:
        assert all(torch.equal(a, b) for a, b in zip(each[:3], first[:3], strict=True))
        assert_close(each, [x.double() for x in first])


@pytest.mark.parametrize(("method", "make_task"), [
    ("gru-d", latent_task), ("gru-d", partial(ushcn_task, dropout=0.0)), ("t-lstm", partial(ushcn_task, dropout=0.0))])
def test_loss_and_gradients_at_the_papers_size_agree_with_the_cpu(method: str, make_task: Callable[..., Any]) -> None:
    found = []
    for device in ("cpu", "cuda"):
        made = make_task(method, device)
        loss = made.loss(made.batch(0, 0), detach_attention=False).task
        loss.backward()
        grads = [p.grad.flatten().cpu() for p in made.model.parameters() if p.grad is not None]
        found.append((loss.detach().cpu(), torch.cat(grads)))
    for (a, b), most in zip(zip(*found, strict=True), (1e-4, 1e-2), strict=True):
        assert (a - b).norm() <= most * a.norm()
