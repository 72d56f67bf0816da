"""Recording work as CUDA graphs, safely beside other threads that train.

One thread at a time records, or lets go of recordings; the others go on meanwhile. A run's recordings share one pool
of memory, since they are never replayed at the same time, and in the order in which they were recorded.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

RECORDING = threading.RLock()  # of the process: compiling kernels, recording, and letting go of recordings
_IDLE: list[torch.cuda.Stream] = []  # of runs that have ended: memory is kept by stream, so new runs take over theirs
_TAKING = threading.Lock()


def _take(device: torch.device) -> torch.cuda.Stream:
    index = torch.cuda.current_device() if device.index is None else device.index
    with _TAKING:
        found = next((stream for stream in reversed(_IDLE) if stream.device_index == index), None)
        if found is None:
            return torch.cuda.Stream(device)
        _IDLE.remove(found)
        return found


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """A stream for a run alone, so that runs in threads overlap; nothing on a CPU."""
    if device.type != "cuda":
        yield
        return
    stream = _take(device)
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        stream.synchronize()
        _IDLE.append(stream)


class Recorder:
    """Records work on a stream of its own into one pool."""

    def __init__(self, device: torch.device) -> None:
        self.stream, self.pool = _take(device), torch.cuda.graph_pool_handle()
        self.open = True
        self.graphs: list[torch.cuda.CUDAGraph] = []
        self.event = torch.cuda.Event()

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Work on the recorder's stream, after what was asked before and before what is asked later."""
        current = torch.cuda.current_stream()
        self.stream.wait_stream(current)
        try:
            with torch.cuda.stream(self.stream):
                yield
        finally:
            current.wait_stream(self.stream)

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """The work as something to replay; it is not done now."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.stream):
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                work()
            except BaseException:
                with contextlib.suppress(Exception):  # a recording that went wrong cannot be ended either
                    graph.capture_end()
                with contextlib.suppress(Exception):  # but its memory must not stay reserved for it
                    torch._C._cuda_endAllocateToPool(self.stream.device_index, self.pool)
                raise
            graph.capture_end()
        self.graphs.append(graph)
        return graph.replay

    def settle(self) -> int:
        """Give back what recording took and replaying does not need; the bytes that are left to torch."""
        with RECORDING:
            torch.cuda.empty_cache()
        return torch.cuda.memory_reserved()

    def mark(self) -> None:
        """What was asked so far is what `wait` waits for."""
        self.event.record()

    def wait(self) -> None:
        self.event.synchronize()

    def close(self) -> None:
        """Let go of the recordings and of their memory."""
        torch.cuda.current_stream().synchronize()
        self.stream.synchronize()
        with RECORDING:
            for graph in self.graphs:
                graph.reset()
            self.graphs.clear()
            if self.open:
                _IDLE.append(self.stream)
            self.open = False
            torch.cuda.empty_cache()  # a pool's memory serves nobody else until it is given back
