"""Runs in threads of one process on one GPU: the same numbers as alone, own streams, and memory that is freed."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from graph_training import CUDA, close, iterate, parameters, trainer
from problems import relative
from quick_settings import QUICK

from acenode import experiments
from acenode.accelerate.cuda_graph.recorder import GraphRecorder, Replay
from acenode.device.streams import STREAMS_PER_DEVICE, own_stream, stream_pool
from acenode.execution.execute import create, execute
from acenode.runs.store import RunStore
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("exact")]


def test_five_runs_in_threads_equal_each_alone() -> None:
    def train(seed: int) -> torch.Tensor:
        with own_stream(CUDA):
            t = trainer(True, seed=seed)
            iterate(t, 6)
            found = parameters(t)
            close(t)
        return found

    alone = [train(seed) for seed in range(5)]
    together: dict[int, torch.Tensor] = {}
    threads = [threading.Thread(target=lambda seed=seed: together.update({seed: train(seed)})) for seed in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, expected in enumerate(alone):
        assert relative(together[seed], expected) < 1e-6, seed


def test_dropped_recordings_are_not_freed_while_others_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped, log = [trainer(True)], list[str]()
    iterate(dropped[0], 1)
    stream = dropped[0].engine.recorder.stream  # type: ignore[union-attr]
    dropped.append(dropped)  # type: ignore[arg-type]  # a cycle, which only the collector frees
    held = [dropped]
    del dropped
    record = GraphRecorder.record

    def drop_and_record(self: GraphRecorder, work: Replay) -> Replay:
        def both() -> None:
            held.clear()
            [[] for _ in range(100_000)]  # enough for the collector to run
            work()

        return record(self, both)

    monkeypatch.setattr(GraphRecorder, "record", drop_and_record)
    t = trainer(True, log=log)
    iterate(t, 1)
    assert len(log) == 2
    assert all("fields by Triton" in line for line in log), log
    close(t)
    gc.collect()
    stream_pool(CUDA).release(stream)  # a trainer that is not closed keeps its stream


def test_series_and_images_in_threads_equal_each_alone() -> None:
    def images(seed: int) -> Trainer:
        return trainer(True, seed=seed)

    def series(name: str, method: str, seed: int) -> Trainer:
        entry = experiments.get(name)
        task = entry.make(entry.configure(method, device="cuda", batch_size=16, seed=seed), Path(), CUDA)
        task.model.train()
        return Trainer(task, task.recipe(), SilentListener())

    makers = [partial(images, 0), partial(series, "physionet", "ace", 1), partial(series, "ushcn", "ace", 2),
              partial(images, 3), partial(series, "physionet", "latent-ode", 4)]

    def train(make: Callable[[], Trainer]) -> torch.Tensor:
        with own_stream(CUDA):
            t = make()
            iterate(t, 3)
            found = parameters(t)
            if t.engine is not None:
                close(t)
        return found

    together: dict[int, torch.Tensor] = {}
    threads = [threading.Thread(target=lambda i=i, make=make: together.update({i: train(make)}))
               for i, make in enumerate(makers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, make in enumerate(makers):
        assert relative(together[i], train(make)) < 1e-5, i


def test_no_two_runs_share_a_stream() -> None:
    """torch returns its first stream again after the last."""
    with contextlib.ExitStack() as stack:
        had = []
        for _ in range(STREAMS_PER_DEVICE + 8):
            stack.enter_context(own_stream(CUDA))
            had.append(torch.cuda.current_stream().cuda_stream)
        assert len(set(had)) == STREAMS_PER_DEVICE
        log: list[str] = []
        crowded = trainer(True, log=log)
        assert crowded.engine is None
        assert log == ["graph engine not used: other runs use all CUDA streams; training without it"]
        iterate(crowded, 2)
    again = trainer(True)
    iterate(again, 2)
    close(again)
    assert relative(parameters(crowded), parameters(again)) < 1e-3


def test_twenty_runs_leave_no_memory_behind() -> None:
    held = []
    for seed in range(20):
        with own_stream(CUDA):
            t = trainer(True, seed=seed)
            iterate(t, 2)
            close(t)
            del t
        torch.cuda.synchronize()
        held.append((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()))
    allocated, reserved = np.array(held).T
    assert allocated[-1] <= allocated[2]
    assert reserved[-1] <= 1.1 * reserved[2]


def test_gpu_memory_is_freed_after_twenty_runs_in_threads(tmp_path: Path) -> None:
    """Without emptying torch's cache in the test."""
    store, held = RunStore(tmp_path), []

    def train(seed: int) -> None:
        config = experiments.get("mnist").configure("ace", seed=seed, **QUICK | {"device": "cuda"})
        outcome = execute(create(store, config), tmp_path)
        assert outcome.state == "finished", outcome.error

    torch.cuda.reset_peak_memory_stats()
    for turn in range(4):
        threads = [threading.Thread(target=train, args=(5 * turn + i,)) for i in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        held.append((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()))
    print(f"held after each five: {held}, at most {torch.cuda.max_memory_reserved()}")
    assert len([run for run in store if run.status()["state"] == "finished"]) == 20
    (allocated, reserved), (allocated_last, reserved_last) = held[0], held[-1]
    assert allocated_last <= allocated
    assert reserved_last <= reserved
    assert reserved <= 0.05 * torch.cuda.max_memory_reserved()
