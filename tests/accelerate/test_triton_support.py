"""Each kind of kernel is tried once per process; a failure is reported to every run."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from acenode.accelerate import triton_support
from acenode.backend import ACCELERATED, Backend


@pytest.fixture(autouse=True)
def no_known_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_support, "_failures", {})


def test_a_working_kernel_is_tried_once() -> None:
    attempts: list[int] = []
    backend = Backend(log=attempts.append)  # type: ignore[arg-type]
    assert all(triton_support.kernel_works(backend, "kind", lambda: attempts.append(1)) for _ in range(3))
    assert attempts == [1]


def test_a_failure_is_reported_once_to_every_run() -> None:
    attempts: list[int] = []

    def attempt() -> None:
        attempts.append(1)
        raise ValueError("no such instruction\nsm_20")

    for _ in range(2):
        lines: list[str] = []
        backend = Backend(log=lines.append)
        assert not any(triton_support.kernel_works(backend, "kind", attempt) for _ in range(3))
        assert lines == ["GPU kernels do not run here: ValueError: no such instruction"]
    assert attempts == [1]
    assert triton_support.kernel_works(ACCELERATED, "another", lambda: None)


def test_concurrent_threads_make_one_attempt() -> None:
    attempts: list[int] = []
    ready, answers = threading.Barrier(4), list[bool]()

    def attempt() -> None:
        attempts.append(1)
        time.sleep(0.05)

    def ask() -> None:
        ready.wait()
        answers.append(triton_support.kernel_works(ACCELERATED, "kind", attempt))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (attempts, answers) == ([1], [True] * 4)


@pytest.mark.parametrize("error", [
    torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("Triton Error [CUDA]: out of memory"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED")], ids=str)
def test_running_out_of_memory_does_not_disable_kernels(error: Exception) -> None:
    def attempt() -> None:
        raise error

    with pytest.raises(type(error)):
        triton_support.kernel_works(ACCELERATED, "kind", attempt)
    assert triton_support.kernel_works(ACCELERATED, "kind", lambda: None)
