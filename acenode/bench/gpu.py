"""`acenode bench gpu`: an iteration of every family by every engine, one run alone and five runs in threads.

An iteration is what the trainer does with a batch: the batch made and sent, both passes of Algorithm 1 where there is
attention, and the updates. All rows are measured in one process, one after another.
"""

from __future__ import annotations

import gc
import json
import math
import statistics
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import torch

from acenode.accelerate.cuda_graph.accelerate import compiler
from acenode.bench.gpu_table import render
from acenode.bench.gpu_workloads import FAMILIES, Work, iterate, precision, training
from acenode.errors import UserError
from acenode.execution.environment import describe

THREADS, WARM, GROUP = 5, 3, 5  # runs at a time, iterations before any is timed, and iterations timed together
BUDGET = 3.0  # seconds that iterations are timed for, at least one
SLOW = 1.0  # seconds an iteration, from which on five runs at a time take minutes
MOST = 40  # iterations of each of five runs

Row = dict[str, Any]


def run(options: Namespace) -> int:
    """Measure and print."""
    chosen = works(options.families)
    if options.repeats < 1:
        raise UserError("--repeats must be at least 1")
    if not torch.cuda.is_available():
        raise UserError("bench gpu needs a CUDA device, and there is none here")
    device = torch.device("cuda")
    result = measure(chosen, device, options.repeats, options.full)
    print(json.dumps(result) if options.json else render(result))
    return 0


def works(families: str) -> list[Work]:
    """The rows of the families that were named."""
    names = [name.strip() for name in families.split(",")]
    if unknown := [name for name in names if name not in FAMILIES]:
        raise UserError(f"there is no family {unknown[0]!r}: choose from {', '.join(FAMILIES)}")
    return [Work(name, method, engine) for name in FAMILIES if name in names
            for method in FAMILIES[name].methods for engine in FAMILIES[name].engines]


def measure(chosen: list[Work], device: torch.device, repeats: int, full: bool) -> dict[str, Any]:
    """Every row; what goes wrong in one is said there in a line."""
    result = {"environment": describe(device), "threads": THREADS, "kernels": compiler(device)}
    begun, rows = time.perf_counter(), list[Row]()
    for i, work in enumerate(chosen, 1):
        print(f"{i}/{len(chosen)} {work}, after {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
        rows.append(row_of(work, device, repeats, full))
    return {**result, "seconds": time.perf_counter() - begun, "rows": rows}


def row_of(work: Work, device: torch.device, repeats: int, full: bool) -> Row:
    family, ours = work.of, work.engine == work.of.engines[-1]
    row: Row = {"family": work.family, "method": work.method, "engine": work.engine, "batch": family.batch,
                "published": family.published.get(work.method) if ours else None,
                "target": family.targets.get(work.method) if ours else None, "ms_in_threads": None, "error": None}
    try:
        with precision(work):
            row |= alone(work, device, repeats)
            if full or (work.engine != "reference" and row["ms"] < 1e3 * SLOW):
                row["ms_in_threads"] = together(work, device, row["ms"] / 1e3)
    except Exception as trouble:
        row["error"] = words(trouble)
    return row


def words(trouble: Exception) -> str:
    """What went wrong, in one line."""
    text = str(trouble) if isinstance(trouble, UserError) else f"{type(trouble).__name__}: {trouble}"
    return text.splitlines()[0]


# What is measured ---------------------------------------------------------------------------------------------------


def alone(work: Work, device: torch.device, repeats: int) -> Row:
    """Time, evaluations and memory of one run, and what it took to get ready."""
    peak, log, begun = peak_memory(device), list[str](), time.perf_counter()
    with training(work, device, 0, log) as trainer:
        (first,) = iterate(trainer, 1)
        ready = time.perf_counter() - begun
        times, records = timed(lambda count: iterate(trainer, count), repeats)
        memory = peak()
    losses = [float(r["L_h"]) for r in (first, records[-1])]
    if not all(map(math.isfinite, losses)):
        raise UserError(f"the loss became {losses[-1]}")
    seconds = statistics.median(times)
    return {"ms": 1e3 * seconds, "evaluations": statistics.mean(r["nfe_forward"] for r in records),
            "samples_per_second": work.of.batch / seconds, "memory_megabytes": memory, "ready_seconds": ready,
            "first_loss": losses[0], "log": log}


def timed(go: Callable[[int], list[Row]], repeats: int) -> tuple[list[float], list[Row]]:
    """Seconds an iteration, several times over, and the last records; of what is slow, one iteration once."""
    one, records = _took(go, 1)
    if 2 * one > BUDGET:
        return [one], records
    group = GROUP if GROUP * one < BUDGET / 2 else 1
    if WARM * one < BUDGET / 2:
        go(WARM)
    begun, times = time.perf_counter(), list[float]()
    while len(times) < repeats and (not times or time.perf_counter() - begun < BUDGET):
        seconds, records = _took(go, group)
        times.append(seconds)
    return times, records


def _took(go: Callable[[int], list[Row]], count: int) -> tuple[float, list[Row]]:
    begun = time.perf_counter()
    records = go(count)
    return (time.perf_counter() - begun) / count, records


def peak_memory(device: torch.device) -> Callable[[], float | None]:
    """What asks for the megabytes that torch holds of the GPU at most from now on, recordings' own pools included."""
    gc.collect()  # whatever the row before left behind
    if device.type != "cuda":
        return lambda: None
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_reserved()
    return lambda: (torch.cuda.max_memory_reserved() - held) / 1e6


def together(work: Work, device: torch.device, seconds: float) -> float:
    """Milliseconds an iteration of one run takes of the device where five train in threads; alone it takes `seconds`.

    The wall time over all their iterations.
    """
    gc.collect()
    iterations = max(2, min(MOST, int(BUDGET / (THREADS * seconds))))
    start, end, trouble = threading.Barrier(THREADS + 1), threading.Barrier(THREADS + 1), list[Exception]()

    def work_on(seed: int) -> None:
        try:
            with training(work, device, seed, []) as trainer:
                iterate(trainer, WARM if WARM * seconds < BUDGET / 10 else 1)
                start.wait()
                iterate(trainer, iterations)
                end.wait()
        except Exception as error:
            trouble.append(error)
            start.abort()
            end.abort()

    threads = [threading.Thread(target=work_on, args=(seed,), daemon=True) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    begun = took = math.nan
    try:
        start.wait()
        begun = time.perf_counter()
        end.wait()
        took = time.perf_counter() - begun
    except threading.BrokenBarrierError:
        pass
    for thread in threads:
        thread.join()
    if trouble:
        raise UserError(f"one of {THREADS} runs: {words(trouble[0])}")
    return 1e3 * took / (THREADS * iterations)
