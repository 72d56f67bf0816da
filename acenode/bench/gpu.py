"""`acenode bench gpu`: one training iteration of each model family with each engine, alone and beside others.

Five runs at once are in threads of their own.

An iteration assembles and transfers a batch, runs both phases of Algorithm 1 (one pass for methods without attention)
and updates the parameters. All rows are measured in one process, one after another.
"""

from __future__ import annotations

import gc
import math
import statistics
import threading
import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from acenode.accelerate.triton_support import kernels_available
from acenode.backend import ACCELERATED
from acenode.bench.measure import Report, duration, error_line, progress, size, table
from acenode.bench.workloads import FAMILIES, convolution_precision, iterate, trainer_for
from acenode.errors import UserError
from acenode.execution.environment import describe

THREADS = 5  # runs at once
WARM, GROUP = 3, 5  # warm-up iterations, and iterations per timing
BUDGET = 3.0  # seconds of timing per row, at least one iteration
SLOW = 1.0  # seconds per iteration above which five runs at once would take minutes
MOST = 40  # iterations per run, with several runs at once
HEADS = ("method", "engine", "1 run", "5 runs", "NFE", "samples/s", "memory", "setup", "target", "published")
NOTES = f"""\
1 run: median time of one training iteration (both phases of Algorithm 1 for ace). 5 runs: {THREADS} runs in threads of
one process, wall time divided by all their iterations; — if not measured (--full measures all rows). NFE: evaluations
of f per forward pass. memory: peak GPU memory of torch. setup: building the model and the first iteration, with
compiling and recording not done by an earlier row. published: one iteration of the published code, measured on an H200.
Engines: reference uses torchdiffeq and plain torch; native uses our Runge–Kutta steps; graph records CUDA graphs, with
convolutions in TF32 (torch's default) or float32; auto uses our own kernels and recorded steps where they exist."""

Row = dict[str, Any]


def gpu(options: Namespace) -> Report:
    """Measure the chosen families; an error is recorded in its row and the next row goes on."""
    workloads = workloads_of(options.families)
    if options.repeats < 1:
        raise UserError("--repeats must be at least 1")
    if not torch.cuda.is_available():
        raise UserError("bench gpu needs a CUDA device, and there is none here")
    device, begun, rows = torch.device("cuda"), time.perf_counter(), list[Row]()
    for i, (family, method, engine) in enumerate(workloads, 1):
        progress(f"{i}/{len(workloads)} {family}, {method} with {engine}, after {time.perf_counter() - begun:.0f} s")
        rows.append(measure_row(family, method, engine, device, options.repeats, options.full))
        progress("  ".join(cells(rows[-1])))
    result = {"environment": describe(device), "threads": THREADS, "kernels": kernels_available(ACCELERATED, device),
              "seconds": time.perf_counter() - begun, "rows": rows}
    return Report(result, render(result))


def workloads_of(families: str) -> list[tuple[str, str, str]]:
    """Return family, method and engine of every row of the named families."""
    names = [name.strip() for name in families.split(",")]
    if unknown := [name for name in names if name not in FAMILIES]:
        raise UserError(f"there is no family {unknown[0]!r}: choose from {', '.join(FAMILIES)}")
    return [(name, method, engine) for name, family in FAMILIES.items() if name in names
            for method in family.methods for engine in family.engines]


def measure_row(name: str, method: str, engine: str, device: torch.device, repeats: int, full: bool) -> Row:
    """Measure one method with one engine, alone and, unless it is slow, beside other runs."""
    family = FAMILIES[name]
    ours = engine == family.engines[-1]
    row: Row = {"family": name, "method": method, "engine": engine, "batch": family.batch,
                "published": family.published.get(method) if ours else None,
                "target": family.targets.get(method) if ours else None, "ms_in_threads": None, "error": None}
    train = partial(trainer_for, partial(family.make, method), engine, device, row_by_row=family.row_by_row)
    try:
        with convolution_precision(engine):
            row |= measure_alone(train, device, repeats, family.batch)
            if full or (engine != "reference" and row["ms"] < 1e3 * SLOW):
                row["ms_in_threads"] = measure_at_once(train, row["ms"] / 1e3)
    except Exception as error:
        row["error"] = error_line(error)
    return row


def measure_alone(train: Callable[..., Any], device: torch.device, repeats: int, batch: int) -> Row:
    """Measure the time, evaluations and memory of one run, and its setup time."""
    gc.collect()  # free what the row before left
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_reserved() if device.type == "cuda" else 0
    log, begun = list[str](), time.perf_counter()
    with train(log=log) as trainer:
        (first,) = iterate(trainer, 1)
        ready = time.perf_counter() - begun
        seconds, records = time_iterations(lambda count: iterate(trainer, count), repeats)
        peak = (torch.cuda.max_memory_reserved() - held) / 1e6 if device.type == "cuda" else None  # with graph pools
    losses = [float(r["L_h"]) for r in (first, records[-1])]
    if not all(map(math.isfinite, losses)):
        raise UserError(f"the loss became {losses[-1]}")
    evaluations = [r["nfe_forward"] for r in records if "nfe_forward" in r]  # none for a method without a solver
    return {"ms": 1e3 * seconds, "evaluations": statistics.mean(evaluations) if evaluations else None,
            "samples_per_second": batch / seconds, "memory_megabytes": peak, "ready_seconds": ready,
            "first_loss": losses[0], "log": log}


def time_iterations(go: Callable[[int], list[Row]], repeats: int) -> tuple[float, list[Row]]:
    """Return the median seconds of an iteration, and the last records; a slow one is timed once."""
    def timed(count: int) -> tuple[float, list[Row]]:
        begun = time.perf_counter()
        records = go(count)
        return (time.perf_counter() - begun) / count, records

    one, records = timed(1)
    if 2 * one > BUDGET:
        return one, records
    group = GROUP if GROUP * one < BUDGET / 2 else 1
    if WARM * one < BUDGET / 2:
        go(WARM)
    begun, times = time.perf_counter(), list[float]()
    while len(times) < repeats and (not times or time.perf_counter() - begun < BUDGET):
        seconds, records = timed(group)
        times.append(seconds)
    return statistics.median(times), records


def measure_at_once(train: Callable[..., Any], seconds: float, runs: int = THREADS) -> float:
    """Train several runs, in a thread each; return wall time divided by all their iterations, in milliseconds.

    Args:
        train: returns a context with a trainer, from seed=; the seeds are 0, 1, …
        seconds: the time of an iteration of one run alone, which decides how many iterations are measured.
        runs: how many.
    """
    gc.collect()
    iterations = max(2, min(MOST, int(BUDGET / (runs * seconds))))
    start, end, errors = threading.Barrier(runs + 1), threading.Barrier(runs + 1), list[Exception]()

    def run(seed: int) -> None:
        try:
            with train(seed=seed) as trainer:
                iterate(trainer, WARM if WARM * seconds < BUDGET / 10 else 1)
                start.wait()
                iterate(trainer, iterations)
                end.wait()
        except Exception as error:
            errors.append(error)
            start.abort()
            end.abort()

    threads = [threading.Thread(target=run, args=(seed,), daemon=True) for seed in range(runs)]
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


def render(result: Row) -> str:
    """Format a table for each family; errors stand in lines of their own."""
    by = "" if result["kernels"] else "; kernels cannot be compiled on this machine"
    lines = [f"One iteration of training on {result['environment']['device']}{by}"]
    for name in dict.fromkeys(row["family"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["family"] == name]
        lines += ["", f"{name}: {FAMILIES[name].title}, batch {FAMILIES[name].batch}",
                  table(HEADS, [cells(row) for row in rows if "ms" in row])]
        lines += [f"{row['method']} {row['engine']} failed: {row['error']}" for row in rows if row["error"] is not None]
    return "\n".join([*lines, "", NOTES])


def cells(row: Row) -> list[str]:
    """Return the cells of a row, or its name and error."""
    if "ms" not in row:
        return [row["method"], row["engine"], f"failed: {row['error']}"]
    times = [duration(None if ms is None else ms / 1e3) for ms in (row["ms"], row["ms_in_threads"])]
    return [row["method"], row["engine"], *times, "—" if row["evaluations"] is None else f"{row['evaluations']:.0f}",
            f"{row['samples_per_second']:,.0f}", size(row["memory_megabytes"]), f"{row['ready_seconds']:.1f} s",
            row["target"] or "", row["published"] or ""]
