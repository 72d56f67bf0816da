"""Record work as CUDA graphs while other threads train.

One thread at a time records or frees recordings; the others continue. A run records on a stream that nothing else uses:
work of another thread on it would become part of the recording, and recordings made on one stream would share the
workspaces that torch keeps by stream. All recordings of a run share one memory pool, because they are never replayed at
the same time; those that leave results in it for each other are replayed in the order in which they were recorded.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from acenode.device import torch_private
from acenode.device.gpu import stream_pool

RECORDING = threading.RLock()  # of the process: held while a pass is tried out or recorded, or recordings are freed

Replay = Callable[[], None]


class RecordingError(RuntimeError):
    """The work cannot be done by recordings; the message says why."""


def reason_of(error: Exception) -> str:
    """Return in one line why something was not recorded."""
    return str(error) if isinstance(error, RecordingError) else f"{type(error).__name__}: {error}".splitlines()[0]


class GraphRecorder:
    """Records a run's work on a stream of its own, into one memory pool.

    Recordings are freed together: with one of them, torch frees the workspaces of cuBLAS that others still use.
    """

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.stream, self.pool = stream, torch.cuda.graph_pool_handle()
        self.open = True
        self.broken = 0  # recordings into the pool that could not be ended
        self.graphs: list[torch.cuda.CUDAGraph] = []
        self.event = torch.cuda.Event()

    @contextmanager
    def on_stream(self) -> Iterator[None]:
        """Run the block on the recorder's stream, in order with the work of the current stream before and after it."""
        current = torch.cuda.current_stream()
        self.stream.wait_stream(current)
        try:
            with torch.cuda.stream(self.stream):
                yield
        finally:
            current.wait_stream(self.stream)

    def record(self, work: Callable[[], None]) -> Replay:
        """Record the work without doing it; return a function that replays it."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.stream):
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                work()
            except BaseException:
                self._abandon(graph)
                raise
            graph.capture_end()
        self.graphs.append(graph)
        return graph.replay

    def _abandon(self, graph: torch.cuda.CUDAGraph) -> None:
        """End a recording that failed, so that its memory does not stay reserved."""
        try:
            graph.capture_end()
        except Exception:  # most failed recordings cannot be ended
            self.broken += 1
            torch_private.end_allocation_to_pool(self.stream.device_index, self.pool)
        with contextlib.suppress(Exception):
            graph.reset()

    def trim(self) -> int:
        """Free memory that recording needed and replaying does not; return the bytes that torch still holds."""
        with RECORDING:
            torch.cuda.empty_cache()
        return torch.cuda.memory_reserved()

    def mark(self) -> None:
        """Note the point in the current stream that `wait` waits for."""
        self.event.record()

    def wait(self) -> None:
        self.event.synchronize()

    def free(self) -> None:
        """Free all recordings once the current stream has finished, so that none of them still runs."""
        torch.cuda.current_stream().synchronize()
        with RECORDING:
            while self.graphs:
                self.graphs.pop().reset()
            for _ in range(self.broken):
                torch_private.release_pool(self.stream.device_index, self.pool)
            self.broken, self.pool = 0, torch.cuda.graph_pool_handle()  # torch frees a pool with its last recording

    def close(self) -> None:
        """Free all recordings and their memory, and release the stream."""
        self.free()
        with RECORDING:
            torch.cuda.empty_cache()  # other allocations cannot use a pool's memory before this
            if self.open:
                self.open = False
                try:
                    self.stream.synchronize()
                finally:
                    stream_pool(self.stream.device).release(self.stream)


def new_recorder(device: torch.device) -> GraphRecorder | None:
    """Return a recorder with a stream of its own, which `close` releases, or None if all streams are in use."""
    stream = stream_pool(device).acquire()
    return None if stream is None else GraphRecorder(stream)
