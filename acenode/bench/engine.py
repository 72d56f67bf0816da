"""`acenode bench engine`: one alternating ACE iteration by native steps and by CUDA graphs, alone and in threads.

MNIST's size on made-up images; both in one process, so that the numbers stand beside each other.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from argparse import Namespace
from typing import Any

import numpy as np
import torch

from acenode import experiments
from acenode.data.images import ImageArrays
from acenode.engine.capture import own_stream
from acenode.engine.graph import engine_for
from acenode.environment import describe, device_of
from acenode.errors import UserError
from acenode.experiments.image_task import ImageTask
from acenode.experiments.mnist import IMAGES
from acenode.training import Trainer

THREADS, WARM = 5, 3


class Nobody:
    """Hears nothing and never asks to stop."""

    def stop_asked(self) -> bool:
        return False

    def steps(self, records: list[dict[str, Any]]) -> None: ...
    def epoch(self, record: dict[str, Any]) -> None: ...
    def checkpoint(self, state: dict[str, Any]) -> None: ...

    def checkpoint_due(self) -> bool:
        return False


def made_up(count: int) -> ImageArrays:
    """Images of MNIST's shape: a blob for every class, with noise, so that something is learned."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, count, dtype=np.uint8)
    blobs = rng.random((10, 28, 28, 1))
    x = (160 * blobs[y] + 95 * rng.random((count, 28, 28, 1))).astype(np.uint8)
    return ImageArrays(x, y, x[:128], y[:128], tuple("0123456789"))


def trainer(engine: str, batch: int, seed: int = 0, log: list[str] | None = None) -> Trainer:
    """ACE of the paper's MNIST table, about to train on the GPU by `native` steps or by `graph`."""
    config = experiments.get("mnist").configure("ace", data="full", device="cuda", batch_size=batch, seed=seed)
    device = torch.device("cuda")
    task = ImageTask(config, made_up(8 * batch + 100), 100, IMAGES.build(config), pad=4, device=device)
    lines = log if log is not None else []
    chosen = engine_for(task, device, "graph", lines.append)[1] if engine == "graph" else None
    if engine == "graph" and chosen is None:
        raise UserError(lines[-1])
    task.model.train()
    return Trainer(task, task.recipe(), Nobody(), chosen)


def iterate(t: Trainer, count: int) -> list[dict[str, Any]]:
    records = []
    for _ in range(count):
        t.iteration = (t.iteration + 1) % t.task.iterations
        records.append(t.train_batch())
    torch.cuda.current_stream().synchronize()
    return records


def close(t: Trainer) -> None:
    if t.engine is not None:
        t.engine.close()  # type: ignore[attr-defined]


def alone(engine: str, batch: int, repeats: int) -> dict[str, Any]:
    """Milliseconds an iteration, what it took to get ready, evaluations of f and g, and memory."""
    with own_stream(torch.device("cuda")):
        torch.cuda.empty_cache()
        held, begun, log = torch.cuda.memory_reserved(), time.perf_counter(), list[str]()
        t = trainer(engine, batch, log=log)
        iterate(t, 1)
        ready = time.perf_counter() - begun
        iterate(t, WARM)
        times = []
        for _ in range(repeats):
            begun = time.perf_counter()
            records = iterate(t, 5)
            times.append((time.perf_counter() - begun) / 5)
        result = {"ms": 1e3 * statistics.median(times), "ready_seconds": ready,
                  "evaluations": statistics.mean(r["nfe_forward"] for r in records),
                  "memory_megabytes": (torch.cuda.memory_reserved() - held) / 1e6, "log": log}
        close(t)
    return result


def together(engine: str, batch: int, iterations: int) -> float:
    """Milliseconds an iteration of one run takes of the device where several train in threads."""
    start, end, trouble = threading.Barrier(THREADS + 1), threading.Barrier(THREADS + 1), list[Exception]()

    def work(seed: int) -> None:
        try:
            with own_stream(torch.device("cuda")):
                t = trainer(engine, batch, seed)
                iterate(t, WARM)
                start.wait()
                iterate(t, iterations)
                end.wait()
                close(t)
        except Exception as error:
            trouble.append(error)
            start.abort()
            end.abort()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        start.wait()
        begun = time.perf_counter()
        end.wait()
        took = time.perf_counter() - begun
    except threading.BrokenBarrierError:
        raise UserError(f"a run of the benchmark ended: {trouble[0] if trouble else 'no reason given'}") from None
    for thread in threads:
        thread.join()
    return 1e3 * took / (THREADS * iterations)


def run(options: Namespace) -> int:
    """Measure and print."""
    device = device_of("cuda")
    result: dict[str, Any] = {"batch": options.batch, "environment": describe(device), "threads": THREADS}
    for engine in ("native", "graph"):
        found = alone(engine, options.batch, options.repeats)
        result[engine] = found | {"ms_in_threads": together(engine, options.batch, 3 if engine == "native" else 40)}
    print(json.dumps(result) if options.json else render(result))
    return 0


def render(result: dict[str, Any]) -> str:
    """The result as text."""
    lines = [f"ACE-ODE-Net, MNIST size, batch {result['batch']}, {result['environment']['device']}", "",
             f"{'one alternating iteration':<28}{'alone':>11}{'in threads':>13}{'evaluations':>13}{'memory':>11}"
             f"{'ready in':>11}"]
    for engine in ("native", "graph"):
        r = result[engine]
        lines.append(f"{engine:<28}{r['ms']:>8.2f} ms{r['ms_in_threads']:>10.2f} ms{r['evaluations']:>13.1f}"
                     f"{r['memory_megabytes']:>8.0f} MB{r['ready_seconds']:>9.1f} s")
    lines += ["", f"in threads: {result['threads']} runs at a time, wall time over all their iterations"]
    return "\n".join(lines)
