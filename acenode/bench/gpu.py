"""`acenode bench gpu`: one training iteration of each model family with each engine, alone and beside others.

Five runs at once are in threads of their own.

An iteration assembles and transfers a batch, runs both phases of Algorithm 1 (one pass for methods without attention)
and updates the parameters. All rows are measured in one process, one after another.
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

from acenode.accelerate.cuda_graph.layer_kernels import triton_runs
from acenode.bench.gpu_table import render, row_lines
from acenode.bench.gpu_workloads import FAMILIES, Workload, convolution_precision, iterate, trainer_for
from acenode.errors import UserError
from acenode.execution.environment import describe

THREADS = 5  # runs at once
WARM, GROUP = 3, 5  # warm-up iterations, and iterations per timing
BUDGET = 3.0  # seconds of timing per row, at least one iteration
SLOW = 1.0  # seconds per iteration above which five runs at once would take minutes
MOST = 40  # iterations per run, with several runs at once

Row = dict[str, Any]


def run(options: Namespace) -> int:
    """Measure and print."""
    workloads = workloads_of(options.families)
    if options.repeats < 1:
        raise UserError("--repeats must be at least 1")
    if not torch.cuda.is_available():
        raise UserError("bench gpu needs a CUDA device, and there is none here")
    device = torch.device("cuda")
    result = measure(workloads, device, options.repeats, options.full)
    print(json.dumps(result) if options.json else render(result))
    return 0


def workloads_of(families: str) -> list[Workload]:
    """Return the workloads of the named families."""
    names = [name.strip() for name in families.split(",")]
    if unknown := [name for name in names if name not in FAMILIES]:
        raise UserError(f"there is no family {unknown[0]!r}: choose from {', '.join(FAMILIES)}")
    return [Workload(name, method, engine) for name in FAMILIES if name in names
            for method in FAMILIES[name].methods for engine in FAMILIES[name].engines]


def measure(workloads: list[Workload], device: torch.device, repeats: int, full: bool) -> dict[str, Any]:
    """Measure every row; an error is recorded in its row and the next row goes on."""
    result = {"environment": describe(device), "threads": THREADS, "kernels": triton_runs(device)}
    begun, rows = time.perf_counter(), list[Row]()
    for i, workload in enumerate(workloads, 1):
        after = f"after {time.perf_counter() - begun:.0f} s"
        print(f"{i}/{len(workloads)} {workload}, {after}", file=sys.stderr, flush=True)
        rows.append(measure_row(workload, device, repeats, full))
        print(*row_lines(rows[-1]), sep="\n", file=sys.stderr, flush=True)
    return {**result, "seconds": time.perf_counter() - begun, "rows": rows}


def measure_row(workload: Workload, device: torch.device, repeats: int, full: bool) -> Row:
    """Measure one workload, alone and, unless it is slow, beside other runs."""
    family, ours = workload.spec, workload.engine == workload.spec.engines[-1]
    row: Row = {"family": workload.family, "method": workload.method, "engine": workload.engine, "batch": family.batch,
                "published": family.published.get(workload.method) if ours else None,
                "target": family.targets.get(workload.method) if ours else None, "ms_in_threads": None,
                "ms_of_seeds": None, "error": None}
    try:
        with convolution_precision(workload):
            row |= measure_alone(workload, device, repeats)
            if full or (workload.engine != "reference" and row["ms"] < 1e3 * SLOW):
                row["ms_in_threads"] = measure_at_once(workload, device, row["ms"] / 1e3)
    except Exception as error:
        row["error"] = error_line(error)
    return row


def error_line(error: Exception) -> str:
    """Describe an error in one line."""
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return text.splitlines()[0]


# Measurements -------------------------------------------------------------------------------------------------------


def measure_alone(workload: Workload, device: torch.device, repeats: int) -> Row:
    """Measure the time, evaluations and memory of one run, and its setup time."""
    peak, log, begun = peak_memory(device), list[str](), time.perf_counter()
    with trainer_for(workload, device, 0, log) as trainer:
        (first,) = iterate(trainer, 1)
        ready = time.perf_counter() - begun
        times, records = time_iterations(lambda count: iterate(trainer, count), repeats)
        memory = peak()
    losses = [float(r["L_h"]) for r in (first, records[-1])]
    if not all(map(math.isfinite, losses)):
        raise UserError(f"the loss became {losses[-1]}")
    seconds = statistics.median(times)
    evaluations = [r["nfe_forward"] for r in records if "nfe_forward" in r]  # none for a method without a solver
    return {"ms": 1e3 * seconds, "evaluations": statistics.mean(evaluations) if evaluations else None,
            "samples_per_second": workload.spec.batch / seconds, "memory_megabytes": memory, "ready_seconds": ready,
            "first_loss": losses[0], "log": log}


def time_iterations(go: Callable[[int], list[Row]], repeats: int) -> tuple[list[float], list[Row]]:
    """Return several timings of an iteration in seconds, and the last records; a slow one is timed once."""
    one, records = _seconds_of(go, 1)
    if 2 * one > BUDGET:
        return [one], records
    group = GROUP if GROUP * one < BUDGET / 2 else 1
    if WARM * one < BUDGET / 2:
        go(WARM)
    begun, times = time.perf_counter(), list[float]()
    while len(times) < repeats and (not times or time.perf_counter() - begun < BUDGET):
        seconds, records = _seconds_of(go, group)
        times.append(seconds)
    return times, records


def _seconds_of(go: Callable[[int], list[Row]], count: int) -> tuple[float, list[Row]]:
    """Run `count` iterations; return the seconds per iteration, and their records."""
    begun = time.perf_counter()
    records = go(count)
    return (time.perf_counter() - begun) / count, records


def peak_memory(device: torch.device) -> Callable[[], float | None]:
    """Start measuring GPU memory; the returned function gives the peak since then in MB, graph pools included."""
    gc.collect()  # free what the row before left
    if device.type != "cuda":
        return lambda: None
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_reserved()
    return lambda: (torch.cuda.max_memory_reserved() - held) / 1e6


def measure_at_once(workload: Workload, device: torch.device, seconds: float, runs: int = THREADS) -> float:
    """Train several runs, in a thread each; return wall time divided by all their iterations, in milliseconds.

    Args:
        workload: what to train; the seeds are 0, 1, …
        device: where.
        seconds: the time of an iteration of one run alone, which decides how many iterations are measured.
        runs: how many.
    """
    gc.collect()
    iterations = max(2, min(MOST, int(BUDGET / (runs * seconds))))
    start, end, errors = threading.Barrier(runs + 1), threading.Barrier(runs + 1), list[Exception]()

    def train(seed: int) -> None:
        try:
            with trainer_for(workload, device, seed, []) as trainer:
                iterate(trainer, WARM if WARM * seconds < BUDGET / 10 else 1)
                start.wait()
                iterate(trainer, iterations)
                end.wait()
        except Exception as error:
            errors.append(error)
            start.abort()
            end.abort()

    threads = [threading.Thread(target=train, args=(seed,), daemon=True) for seed in range(runs)]
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
    if errors:
        raise UserError(f"one of {runs} runs: {error_line(errors[0])}")
    return 1e3 * took / (runs * iterations)
