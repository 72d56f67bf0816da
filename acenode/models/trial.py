"""Kernels of a GPU are tried before they are relied on: what a device cannot compile or launch is left to torch."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch

from acenode.models.told import complain

_trouble: dict[Hashable, str] = {}  # by kind of kernel; nothing where it works


def works(kind: Hashable, attempt: Callable[[], object]) -> bool:
    """Whether kernels of this kind run, found out once by an attempt; every run is told of those that do not."""
    if kind not in _trouble:
        try:
            attempt()
            _trouble[kind] = ""
        except torch.OutOfMemoryError:  # says nothing about the kernels
            raise
        except Exception as e:  # a compiler's, a driver's or a linker's own
            _trouble[kind] = next(iter(str(e).splitlines()), "") or type(e).__name__
    if _trouble[kind]:
        complain(f"kernels of the GPU do not run here: {_trouble[kind]}")
    return not _trouble[kind]
