"""Run Triton kernels: try them once before relying on them, one launch at a time; block sizes and the largest index.

Where a device cannot compile or launch a kernel, torch does the work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

import torch

from acenode.backend import Backend
from acenode.errors import is_out_of_memory

MAX_ELEMENTS = 2**31  # of a tensor: kernels compute indices in 32 bits
_launching, _trying = threading.Lock(), threading.Lock()
_failures: dict[Hashable, str] = {}  # by kind of kernel; empty if it works


class Serialised:
    """A Triton kernel whose launches, `kernel[grid](…)`, take turns between threads: the first launch compiles.

    The lock covers the launch alone. Code that holds it must not wait for torch's own threads, which launch too.
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        launch = self.kernel[grid]

        def locked(*args: Any, **kwargs: Any) -> None:
            with _launching:
                launch(*args, **kwargs)

        return locked


def block_size(*sizes: int) -> int:
    """Return the smallest power of two, at least 16, that is no less than any of the sizes."""
    return max(16, 1 << (max(sizes) - 1).bit_length())


def kernel_works(backend: Backend, kind: Hashable, attempt: Callable[[], object], what: str = "GPU kernels") -> bool:
    """Return True if kernels of this kind work; `attempt` tests it once per process. Log a failure once per run."""
    if kind not in _failures:  # an attempt may ask about kinds that are known
        with _trying:
            if kind not in _failures:
                try:
                    attempt()
                    _failures[kind] = ""
                except Exception as e:  # any class: of the compiler, the driver or the linker
                    if is_out_of_memory(e):  # says nothing about the kernel
                        raise
                    _failures[kind] = f"{type(e).__name__}: {e}".splitlines()[0].removesuffix(": ")
    if _failures[kind]:
        backend.log_once(f"{what} do not run here: {_failures[kind]}")
    return not _failures[kind]


def kernels_available(backend: Backend, device: torch.device) -> bool:
    """Return True if the backend allows Triton kernels and they compile and run on that device."""
    if device.type != "cuda" or not backend.accelerated:
        return False
    index = torch.cuda.current_device() if device.index is None else device.index
    return kernel_works(backend, ("any", index), lambda: _copy_one_number(index))


def _copy_one_number(device_index: int) -> None:
    from acenode.accelerate.triton_math import copy

    with torch.cuda.device(device_index):
        target = torch.zeros(1, device=f"cuda:{device_index}")
        Serialised(copy)[(1,)](torch.ones_like(target), target)
        if target.item() != 1:
            raise RuntimeError("the probe kernel did not copy its number")
