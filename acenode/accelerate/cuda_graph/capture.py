"""Recording work as CUDA graphs, safely beside other threads that train.

One thread at a time records, or lets go of recordings; the others go on meanwhile. A run records on a stream that
nobody else has while it trains: what another thread sent to it would end in the recording, and recordings from the same
stream would share the libraries' workspaces, which torch keeps by stream. A run's recordings share one pool of memory,
since they are never replayed at the same time, and within a pass in the order in which they were recorded.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch

from acenode.accelerate import torch_private

RECORDING = threading.RLock()  # of the process: rehearsing, recording, and letting go of recordings
LENDING = threading.Lock()  # of the process: taking and giving back streams
POOL = 32  # streams that torch has of a device; it hands them out in turn, and again from the first


class Streams:
    """A device's streams, each given to one at a time."""

    def __init__(self, device: torch.device, draw: Callable[[torch.device], torch.cuda.Stream]) -> None:
        self.device, self.draw = device, draw
        self.known: set[int] = set()
        self.idle: list[torch.cuda.Stream] = []  # memory is kept by stream, so new runs take over those of ended ones

    @property
    def lent(self) -> int:
        return len(self.known) - len(self.idle)

    def take(self) -> torch.cuda.Stream | None:
        """One that nobody has; none where all are taken."""
        with LENDING:
            if self.idle:
                return self.idle.pop()
            for _ in range(POOL):
                stream = self.draw(self.device)
                if stream.cuda_stream not in self.known:
                    self.known.add(stream.cuda_stream)
                    return stream
            return None

    def give_back(self, stream: torch.cuda.Stream) -> None:
        with LENDING:
            self.idle.append(stream)


_OF: dict[int, Streams] = {}  # by the device's index


def streams_of(device: torch.device) -> Streams:
    index = torch.cuda.current_device() if device.index is None else device.index
    with LENDING:
        if index not in _OF:
            _OF[index] = Streams(torch.device("cuda", index), torch.cuda.Stream)
        return _OF[index]


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """A stream for a run alone, so that runs in threads overlap; nothing on a CPU.

    Where more runs train than there are streams, the last ones share the one that they find.
    """
    stream = streams_of(device).take() if device.type == "cuda" else None
    if stream is None:
        yield
        return
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        try:
            stream.synchronize()
        finally:
            streams_of(device).give_back(stream)
            leave()


def leave() -> None:
    """Where nobody trains any more, give the GPUs back what torch keeps for later.

    That is freed memory, and what cuBLAS was given for each pair of thread and stream that ever met (32 MB on an H200).
    Recordings use that as well: so only when none is left, and while none can begin.
    """
    if _anybody():
        return
    gc.collect()
    with LENDING:
        if not _anybody():
            torch_private.free_cublas_workspaces()
            torch.cuda.empty_cache()


def _anybody() -> bool:
    return any(streams.lent for streams in tuple(_OF.values()))


class Recorder:
    """Records a run's work on a stream of its own into one pool."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.stream, self.pool = stream, torch.cuda.graph_pool_handle()
        self.open = True
        self.broken = 0  # recordings into the pool that could not be ended
        self.graphs: dict[Callable[[], None], torch.cuda.CUDAGraph] = {}
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
                self._abandon(graph)
                raise
            graph.capture_end()
        self.graphs[graph.replay] = graph
        return graph.replay

    def _abandon(self, graph: torch.cuda.CUDAGraph) -> None:
        """What a recording that went wrong has taken must not stay reserved for it."""
        try:
            graph.capture_end()
        except Exception:  # most cannot be ended either
            self.broken += 1
            torch_private.end_allocation_to_pool(self.stream.device_index, self.pool)
        with contextlib.suppress(Exception):
            graph.reset()
        self._renew()

    @contextmanager
    def all_or_none(self) -> Iterator[None]:
        """Recordings that serve together: where one fails, those before it are let go of."""
        before = set(self.graphs)
        try:
            yield
        except BaseException:
            self.drop([replay for replay in self.graphs if replay not in before])
            raise

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

    def drop(self, replays: Iterable[Callable[[], None]]) -> None:
        """Let go of these recordings, when nothing of them runs any more: what they used may then be let go of too."""
        torch.cuda.current_stream().synchronize()
        with RECORDING:
            for replay in replays:
                self.graphs.pop(replay).reset()
            self._renew()

    def _renew(self) -> None:
        """Another pool, where no recording is left in this one: torch gives it up with the last that was ended."""
        if self.graphs:
            return
        for _ in range(self.broken):
            torch_private.release_pool(self.stream.device_index, self.pool)
        self.broken, self.pool = 0, torch.cuda.graph_pool_handle()

    def close(self) -> None:
        """Let go of what is left of the recordings and of their memory, and give the stream back."""
        self.drop(list(self.graphs))
        with RECORDING:
            torch.cuda.empty_cache()  # a pool's memory serves nobody else until it is given back
            if self.open:
                self.open = False
                try:
                    self.stream.synchronize()
                finally:
                    streams_of(self.stream.device).give_back(self.stream)
