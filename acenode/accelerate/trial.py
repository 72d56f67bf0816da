"""Kernels of a GPU are tried before they are relied on: what a device cannot compile or launch is left to torch."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock

from acenode.accelerate.told import mention
from acenode.errors import is_out_of_memory

_trouble: dict[Hashable, str] = {}  # by kind of kernel; nothing where it works
_trying = Lock()


def works(kind: Hashable, attempt: Callable[[], object], what: str = "kernels of the GPU") -> bool:
    """Whether kernels of this kind run, found out once by an attempt; every run is told of those that do not."""
    if kind not in _trouble:
        with _trying:
            if kind not in _trouble:
                _trouble[kind] = _tried(attempt)
    if _trouble[kind]:
        mention(f"{what} do not run here: {_trouble[kind]}")
    return not _trouble[kind]


def _tried(attempt: Callable[[], object]) -> str:
    """What went wrong. A shortage of memory says nothing about the kernels, and is the run's own trouble."""
    try:
        attempt()
    except Exception as e:  # a compiler's, a driver's or a linker's own
        if is_out_of_memory(e):
            raise
        return f"{type(e).__name__}: {e}".splitlines()[0].removesuffix(": ")
    return ""
