"""Tensors of the host on a device in one transfer, which the host does not wait for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

ALIGNED = 256  # bytes: every tensor begins where one of its own would


def send_all(parts: Sequence[Any], device: torch.device) -> Callable[..., Any]:
    """Of dataclasses and tensors, all sent together: a function from each of them to the same thing there."""
    held = [x for part in parts for x in ([part] if isinstance(part, Tensor) else vars(part).values())]
    here = {id(x): x for x in held if isinstance(x, Tensor)}  # what is in two of them goes once
    there = dict(zip(here, send(list(here.values()), device), strict=True))

    def moved(part: Any, **more: Any) -> Any:
        if isinstance(part, Tensor):
            return there[id(part)]
        return replace(part, **{name: there[id(x)] for name, x in vars(part).items() if isinstance(x, Tensor)}, **more)

    return moved


def send(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """The same tensors there. To a CUDA device they go side by side through one block of pinned memory."""
    if device.type != "cuda":
        return [x.to(device) for x in tensors]
    starts, size = [], 0
    for x in tensors:
        starts.append(size)
        size += -(-x.nbytes // ALIGNED) * ALIGNED
    block = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    memory = block.numpy()  # numpy copies on one thread: waking others costs more than these few kilobytes
    for x, start in zip(tensors, starts, strict=True):
        if x.numel() == 0:
            continue
        memory[start:start + x.nbytes] = x.contiguous().view(-1).view(torch.uint8).numpy()
    there = block.to(device, non_blocking=True)
    return [there[start:start + x.nbytes].view(x.dtype).view(x.shape) if x.numel() else x.to(device)
            for x, start in zip(tensors, starts, strict=True)]
