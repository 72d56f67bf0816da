"""What a GPU needs of us: a stream for every run, memory that is freed when the last run ends, and fast transfers."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass, replace
from itertools import accumulate
from typing import Any, TypeVar

import torch
from torch import Tensor

from acenode.device import torch_private

STREAMS_PER_DEVICE = 32  # size of torch's stream pool; after so many, torch returns the first one again
ALIGNMENT = 256  # bytes, that of torch's own allocations on a GPU
T = TypeVar("T")
_LOCK = threading.Lock()  # of the process: acquiring and releasing streams, and counting runs


class StreamPool:
    """Allocates the streams of a device, each to one user at a time."""

    def __init__(self, device: torch.device, create: Callable[[torch.device], torch.cuda.Stream]) -> None:
        self.device, self.create = device, create
        self.known: set[int] = set()
        self.idle: list[torch.cuda.Stream] = []  # reused first: torch caches memory by stream

    @property
    def in_use(self) -> int:
        return len(self.known) - len(self.idle)

    def acquire(self) -> torch.cuda.Stream | None:
        """Return an unused stream, or None if all are in use."""
        with _LOCK:
            if self.idle:
                return self.idle.pop()
            for _ in range(STREAMS_PER_DEVICE):
                stream = self.create(self.device)
                if stream.cuda_stream not in self.known:
                    self.known.add(stream.cuda_stream)
                    return stream
            return None

    def release(self, stream: torch.cuda.Stream) -> None:
        with _LOCK:
            self.idle.append(stream)


_pools: dict[int, StreamPool] = {}  # by the device's index
_runs = 0  # runs on CUDA devices, with a stream of their own or without


def stream_pool(device: torch.device) -> StreamPool:
    """Return the pool of a CUDA device."""
    index = torch.cuda.current_device() if device.index is None else device.index
    with _LOCK:
        if index not in _pools:
            _pools[index] = StreamPool(torch.device("cuda", index), torch.cuda.Stream)
        return _pools[index]


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """Run the block on a CUDA stream that no other run uses, so that runs in threads overlap; on a CPU do nothing.

    A run that finds no unused stream shares the current one. When the last run ends, GPU memory that nothing uses is
    freed. That of a failed run is freed when the next one ends: until then its exception still holds its tensors.
    """
    if device.type != "cuda":
        yield
        return
    global _runs
    pool = stream_pool(device)
    stream = pool.acquire()
    with _LOCK:
        _runs += 1
    try:
        with torch.cuda.device(pool.device), torch.cuda.stream(stream):  # kernels start on the thread's current GPU
            yield
    finally:
        with _LOCK:
            _runs -= 1
        try:
            if stream is not None:
                stream.synchronize()
        finally:
            if stream is not None:
                pool.release(stream)
            free_unused_memory()


def free_unused_memory() -> None:
    """Free what torch caches on the GPUs, unless a run or a recording is left.

    The cache holds freed memory, and a cuBLAS workspace (32 MB on an H200) for every pair of thread and stream that
    used cuBLAS. Recorded CUDA graphs use these workspaces too, so none may exist or begin while they are freed.
    """
    if _in_use():
        return
    gc.collect()
    with _LOCK:
        if not _in_use():
            torch_private.free_cublas_workspaces()
            torch.cuda.empty_cache()


def _in_use() -> bool:
    return _runs > 0 or any(pool.in_use for pool in tuple(_pools.values()))


def send_batch(batch: T, device: torch.device) -> T:
    """Copy a dataclass, with the tensors in it and in dataclasses among its fields, to a device in one transfer.

    What is in it twice, as points that are both seen and targets, is one object in the copy too.
    """
    tensors: dict[int, Tensor] = {}

    def collect(part: Any) -> None:
        if isinstance(part, Tensor):
            tensors[id(part)] = part
        elif is_dataclass(part):
            for value in vars(part).values():
                collect(value)

    def copy_of(part: Any) -> Any:
        if id(part) not in copies and is_dataclass(part) and not isinstance(part, type):
            copies[id(part)] = replace(part, **{name: copy_of(value) for name, value in vars(part).items()})
        return copies.get(id(part), part)

    collect(batch)
    if all(x.device == device for x in tensors.values()):
        return batch
    copies: dict[int, Any] = dict(zip(tensors, send(list(tensors.values()), device), strict=True))
    copy: T = copy_of(batch)
    return copy


def send(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Copy tensors to a device; to a GPU, packed into one block of pinned memory and without waiting for the copy."""
    if device.type != "cuda":
        return [x.to(device) for x in tensors]
    *starts, size = accumulate((-(-x.nbytes // ALIGNMENT) * ALIGNMENT for x in tensors), initial=0)
    block = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    memory = block.numpy()  # numpy copies in this thread: torch's thread pool costs more for a few kilobytes
    for x, start in zip(tensors, starts, strict=True):
        if x.numel():
            memory[start:start + x.nbytes] = x.contiguous().view(-1).view(torch.uint8).numpy()
    copy = block.to(device, non_blocking=True)
    return [copy[start:start + x.nbytes].view(x.dtype).view(x.shape) if x.numel() else x.to(device)
            for x, start in zip(tensors, starts, strict=True)]
