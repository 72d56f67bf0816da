"""Copy tensors to the GPU in one asynchronous transfer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

ALIGNMENT = 256  # bytes, that of torch's own allocations on a GPU


def send_all(parts: Sequence[Any], device: torch.device) -> Callable[..., Any]:
    """Copy tensors, and dataclasses with tensors in their fields, to a device in one transfer.

    Returns:
        A function from each part to its copy; keyword arguments replace further fields of a dataclass.
    """
    values = [x for part in parts for x in ([part] if isinstance(part, Tensor) else vars(part).values())]
    sources = {id(x): x for x in values if isinstance(x, Tensor)}  # a tensor in two parts is copied once
    copies = dict(zip(sources, send(list(sources.values()), device), strict=True))

    def copy_of(part: Any, **more: Any) -> Any:
        if isinstance(part, Tensor):
            return copies[id(part)]
        return replace(part, **{name: copies[id(x)] for name, x in vars(part).items() if isinstance(x, Tensor)}, **more)

    return copy_of


def send(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Copy tensors to a device; to a GPU, packed into one block of pinned memory and without waiting for the copy."""
    if device.type != "cuda":
        return [x.to(device) for x in tensors]
    starts, size = [], 0
    for x in tensors:
        starts.append(size)
        size += -(-x.nbytes // ALIGNMENT) * ALIGNMENT
    block = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    memory = block.numpy()  # numpy copies in this thread: torch's thread pool costs more for a few kilobytes
    for x, start in zip(tensors, starts, strict=True):
        if x.numel() == 0:
            continue
        memory[start:start + x.nbytes] = x.contiguous().view(-1).view(torch.uint8).numpy()
    copy = block.to(device, non_blocking=True)
    return [copy[start:start + x.nbytes].view(x.dtype).view(x.shape) if x.numel() else x.to(device)
            for x, start in zip(tensors, starts, strict=True)]
