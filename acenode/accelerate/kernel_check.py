"""Try GPU kernels once before relying on them: where a device cannot compile or launch one, torch does the work."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock

import torch

from acenode.backend import Backend
from acenode.errors import is_out_of_memory

_failures: dict[Hashable, str] = {}  # by kind of kernel; empty if it works
_lock = Lock()


def kernel_works(backend: Backend, kind: Hashable, attempt: Callable[[], object], what: str = "GPU kernels") -> bool:
    """Return True if kernels of this kind work; `attempt` tests it once per process. Log a failure once per run."""
    if kind not in _failures:
        with _lock:
            if kind not in _failures:
                _failures[kind] = _failure(attempt)
    if _failures[kind]:
        backend.log_once(f"{what} do not run here: {_failures[kind]}")
    return not _failures[kind]


def _failure(attempt: Callable[[], object]) -> str:
    """Return the error of an attempt in one line. Running out of memory says nothing about the kernel: raise it."""
    try:
        attempt()
    except Exception as e:  # any class: of the compiler, the driver or the linker
        if is_out_of_memory(e):
            raise
        return f"{type(e).__name__}: {e}".splitlines()[0].removesuffix(": ")
    return ""


def kernels_available(backend: Backend, device_index: int) -> bool:
    """Return True if the backend allows Triton kernels and they compile and run on that CUDA device."""
    return backend.accelerated and kernel_works(backend, ("any", device_index), lambda: _copy_one_number(device_index))


def _copy_one_number(device_index: int) -> None:
    from acenode.accelerate.probe_kernel import copy

    with torch.cuda.device(device_index):
        target = torch.zeros(1, device=f"cuda:{device_index}")
        copy[(1,)](torch.ones_like(target), target)
        if target.item() != 1:
            raise RuntimeError("the probe kernel did not copy its number")
