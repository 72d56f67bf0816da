"""`acenode bench epoch`: test accuracy of ACE on digits after one epoch with each engine, over seeds.

Engines that take the same steps still differ by rounding, which training amplifies; the spread over seeds shows how
much of a difference is noise. Uses MNIST if it has been downloaded, else the bundled digits. The whole learning rate
schedule fits into the one epoch.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import statistics
import sys
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from acenode import experiments
from acenode.backend import Backend
from acenode.bench.gpu import error_line
from acenode.bench.gpu_workloads import FLOAT32, Family, Workload, convolution_precision, trainer_for
from acenode.config import read_seeds
from acenode.data.folder import data_dir
from acenode.errors import UserError
from acenode.execution.environment import describe, device_of
from acenode.training.task import SilentListener

ENGINES = {"graph": "graph", "float32": FLOAT32, "native": "native", "reference": "reference"}
BASE = "reference"  # the engine the others are compared with

Row = dict[str, Any]


def run(options: Namespace) -> int:
    """Measure and print."""
    device = device_of(options.device)
    engines = engines_from(options.engines, device)
    seeds = read_seeds(options.seeds)
    if options.jobs < 1:
        raise UserError("--jobs must be at least 1")
    root = data_dir()
    data = "full" if (root / "mnist.npz").is_file() else "sample"
    result = {"environment": describe(device), "data": data, "seeds": seeds, "engines": engines,
              "rows": list(measure(engines, seeds, device.type, data, root, options.jobs))}
    print(json.dumps(result) if options.json else render(result))
    return 0


def engines_from(text: str | None, device: torch.device) -> list[str]:
    """Return the engines named in a comma-separated list; without one, all that the device supports."""
    names = [n.strip() for n in (text or ("graph,native,reference" if device.type == "cuda" else
                                          "native,reference")).split(",")]
    if unknown := [n for n in names if n not in ENGINES]:
        raise UserError(f"there is no engine {unknown[0]!r}: choose from {', '.join(ENGINES)}")
    if device.type != "cuda" and {"graph", "float32"} & set(names):
        raise UserError("engine graph needs a CUDA device, and there is none: choose from native, reference")
    return list(dict.fromkeys(names))


# One epoch ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EpochWorkload(Workload):
    """ACE for one epoch on digits."""

    data: str
    root: Path

    @property
    def spec(self) -> Family:
        make = partial(digits_task, self.data, self.root)
        return Family("digits", 128, (self.method,), tuple(ENGINES.values()), make)


def digits_task(data: str, root: Path, method: str, device: str, backend: Backend, **given: Any) -> Any:
    """Make a task of one epoch on digits, without the analysis of features."""
    entry = experiments.get("mnist")
    config = entry.configure(method, data, device=device, epochs=1, analysis=False, **given)
    return entry.make(config, root, torch.device(device), backend)


class EvaluationListener(SilentListener):
    """Collects the evaluations of every forward pass."""

    def __init__(self) -> None:
        self.evaluations: list[float] = []

    def on_steps(self, records: list[dict[str, Any]]) -> None:
        self.evaluations += [float(r["nfe_forward"]) for r in records]


def train_epoch(engine: str, seed: int, device: str, data: str, root: Path, threads: int) -> Row:
    """Train for an epoch and test; runs in a worker process."""
    torch.set_num_threads(threads)
    workload, listener = EpochWorkload("images", "ace", ENGINES[engine], data, root), EvaluationListener()
    with convolution_precision(workload), trainer_for(workload, torch.device(device), seed, []) as trainer:
        trainer.listener = listener
        trainer.run()
        trainer.task.model.eval()
        test = trainer.task.evaluate("test")
        return {"engine": engine, "seed": seed, "accuracy": test["accuracy"], "iterations": len(listener.evaluations),
                "evaluations": statistics.mean(listener.evaluations), "seconds": trainer.seconds}


def measure(engines: list[str], seeds: list[int], device: str, data: str, root: Path, jobs: int) -> Iterator[Row]:
    """Train every engine with every seed, `jobs` at a time; an error is recorded in its row."""
    threads = max(1, (os.cpu_count() or 1) // jobs)
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(engines) * len(seeds)), spawned) as pool:
        waiting: dict[Future[Row], Row] = {
            pool.submit(train_epoch, engine, seed, device, data, root, threads): {"engine": engine, "seed": seed}
            for seed in seeds for engine in engines}
        for i, done in enumerate(as_completed(waiting), 1):
            try:
                row = done.result()
            except Exception as error:
                row = waiting[done] | {"error": error_line(error)}
            outcome = row["error"] if "error" in row else f"{row['accuracy']:.2%}"
            print(f"{i}/{len(waiting)} {row['engine']}, seed {row['seed']}: {outcome}", file=sys.stderr, flush=True)
            yield row


# Table --------------------------------------------------------------------------------------------------------------


def render(result: dict[str, Any]) -> str:
    """Format the accuracies and their differences as a table."""
    rows = {(r["engine"], r["seed"]): r for r in result["rows"]}
    good = {at: r for at, r in rows.items() if "error" not in r}
    about = "MNIST" if result["data"] == "full" else "the bundled digits (MNIST is not downloaded)"
    iterations = max((r["iterations"] for r in good.values()), default=0)
    lines = [f"Test accuracy after one epoch of ACE on {about}, {iterations} iterations, on "
             f"{result['environment']['device']}", "",
             f"{'seed':>8}" + "".join(f"{engine:>12}" for engine in result["engines"])]
    for seed in result["seeds"]:
        cells = (f"{100 * good[e, seed]['accuracy']:.2f}" if (e, seed) in good else "failed" for e in result["engines"])
        lines.append(f"{seed:>8}" + "".join(f"{cell:>12}" for cell in cells))
    of = {e: [100 * good[e, s]["accuracy"] for s in result["seeds"] if (e, s) in good] for e in result["engines"]}
    for name, statistic in (("median", statistics.median), ("mean", statistics.mean), ("std", _std), ("lowest", min)):
        lines.append(f"{name:>8}" + "".join(f"{_cell(statistic, of[e]):>12}" for e in result["engines"]))
    for name, key, digits_ in (("NFE", "evaluations", 1), ("seconds", "seconds", 0)):
        values = {e: [r[key] for (engine, _), r in good.items() if engine == e] for e in result["engines"]}
        lines.append(f"{name:>8}" + "".join(f"{_cell(statistics.mean, values[e], digits_):>12}"
                                            for e in result["engines"]))
    lines += ["", *(_difference(e, good, result["seeds"]) for e in result["engines"] if e != BASE and BASE in of)]
    lines += [f"{r['engine']}, seed {r['seed']}: {r['error']}" for r in rows.values() if "error" in r]
    return "\n".join(lines)


def _difference(engine: str, good: dict[tuple[str, int], Row], seeds: list[int]) -> str:
    """Return the mean difference from the reference over paired seeds, with its standard error."""
    found = [100 * (good[engine, s]["accuracy"] - good[BASE, s]["accuracy"])
             for s in seeds if (engine, s) in good and (BASE, s) in good]
    if not found:
        return f"{engine} minus {BASE}: no seed finished with both"
    error = f" ± {_std(found) / math.sqrt(len(found)):.2f}" if len(found) > 1 else ""
    return f"{engine} minus {BASE}, seed by seed: {statistics.mean(found):+.2f}{error} points"


def _std(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else math.nan


def _cell(statistic: Any, values: list[float], digits: int = 2) -> str:
    found = statistic(values) if values else math.nan
    return "—" if math.isnan(found) else f"{found:.{digits}f}"
