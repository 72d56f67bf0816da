"""Streams: each has one user at a time, and memory is freed when the last run ends; without a GPU."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import pytest
import torch

from acenode.device import gpu
from acenode.device.gpu import STREAMS_PER_DEVICE, StreamPool, free_unused_memory, own_stream

CUDA = torch.device("cuda", 0)


class FakeStream:
    def __init__(self, number: int) -> None:
        self.cuda_stream = number

    def synchronize(self) -> None: ...


def rotating_pool(size: int = STREAMS_PER_DEVICE) -> StreamPool:
    """Return a pool that repeats its streams after `size`, as torch does."""
    number = itertools.count()
    return StreamPool(CUDA, lambda device: FakeStream(next(number) % size))  # type: ignore[arg-type, return-value]


@pytest.fixture
def freed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of what is freed, in order."""
    found: list[str] = []
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: found.append("workspaces"), raising=False)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: found.append("cache"))
    return found


@pytest.fixture(autouse=True)
def current(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """Return the list of devices that were made the current one."""
    found: list[torch.device] = []

    @contextlib.contextmanager
    def device(chosen: torch.device) -> Iterator[None]:
        found.append(chosen)
        yield

    monkeypatch.setattr(torch.cuda, "device", device)
    return found


def test_no_stream_has_two_users() -> None:
    pool = rotating_pool()
    taken = [pool.acquire() for _ in range(STREAMS_PER_DEVICE + 3)]
    assert taken[STREAMS_PER_DEVICE:] == [None] * 3
    assert len({s.cuda_stream for s in taken if s is not None}) == STREAMS_PER_DEVICE
    assert taken[7] is not None
    pool.release(taken[7])
    assert pool.acquire() is taken[7]


def test_memory_is_freed_when_the_last_stream_is_released(freed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pool = rotating_pool()
    monkeypatch.setattr(gpu, "_pools", {0: rotating_pool(), 1: pool})
    first, second = pool.acquire(), pool.acquire()
    assert first is not None
    assert second is not None
    pool.release(first)
    free_unused_memory()
    assert not freed
    pool.release(second)
    free_unused_memory()
    assert freed == ["workspaces", "cache"]  # workspaces go to the cache first


def test_runs_without_a_stream_count_as_running(freed: list[str], current: list[torch.device],
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_pools", {0: rotating_pool(1)})
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    with contextlib.ExitStack() as second:
        with own_stream(CUDA):
            second.enter_context(own_stream(CUDA))  # finds no unused stream
        assert not freed
    assert current == [CUDA, CUDA]  # kernels start on the run's GPU, with a stream of its own or without
    assert freed == ["workspaces", "cache"]
