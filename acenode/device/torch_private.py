"""Private functions of torch, each behind a function that also works without it.

Names of torch that begin with an underscore may change at any release. If one is missing or takes other arguments, the
function here does without it: that costs speed or memory and one warning in the log, never a run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

_log = logging.getLogger(__name__)
_reported: set[str] = set()
POOL_STAYS = "GPU memory of a failed recording may stay reserved"
_CHANGED = (AttributeError, ImportError, TypeError)  # what a missing function, or one of other arguments, raises


def _report(name: str, consequence: str) -> None:
    """Log once per process that this torch lacks a function."""
    if name not in _reported:
        _reported.add(name)
        _log.warning("torch %s has no usable %s: %s", torch.__version__, name, consequence)


def free_cublas_workspaces() -> None:
    """Free the workspaces that torch keeps for cuBLAS, one for every pair of thread and stream that used it."""
    _free("_cuda_clearCublasWorkspaces", "GPU memory of ended runs is freed with the process")


def end_allocation_to_pool(device: int, pool: tuple[int, int]) -> None:
    """Stop allocating from the memory pool of a CUDA graph whose capture could not be ended."""
    _free("_cuda_endAllocateToPool", POOL_STAYS, device, pool)


def release_pool(device: int, pool: tuple[int, int]) -> None:
    """Release one reference to the memory pool of CUDA graphs."""
    _free("_cuda_releasePool", POOL_STAYS, device, pool)


def _free(name: str, consequence: str, *given: object) -> None:
    """Call a function of torch that frees memory; no error of it may fail a run."""
    try:
        getattr(torch._C, name)(*given)
    except _CHANGED:
        _report(f"torch._C.{name}", consequence)
    except Exception:  # torch has done it by itself
        return


def zero_all(tensors: Sequence[Tensor]) -> None:
    """Set every tensor to zero in place, in few kernel launches."""
    _for_all("_foreach_zero_", Tensor.zero_, "set to zero", tensors)


def copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy each source to its target, in few kernel launches."""
    _for_all("_foreach_copy_", Tensor.copy_, "copied", targets, sources)


def add_all(totals: Sequence[Tensor], terms: Sequence[Tensor]) -> None:
    """Add each term to its total in place, in few kernel launches."""
    _for_all("_foreach_add_", Tensor.add_, "added", totals, terms)


def _for_all(name: str, operation: Callable[..., Tensor], done: str, *lists: Sequence[Tensor]) -> None:
    """Call a function of torch that takes lists, or without it the operation for the tensors at each place in them."""
    if not lists[0]:
        return
    try:
        getattr(torch, name)(*map(list, lists))
    except _CHANGED:
        _report(f"torch.{name}", f"tensors are {done} one by one")
        for tensors in zip(*lists, strict=True):
            operation(*tensors)


def transforms_active() -> bool:
    """Return whether this code runs inside vmap, grad or another transform of torch.func."""
    try:
        return torch._C._are_functorch_transforms_active()
    except _CHANGED:
        _report("torch._C._are_functorch_transforms_active", "torch.func cannot pass through a solve")
        return False
