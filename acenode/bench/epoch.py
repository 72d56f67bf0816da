"""`acenode bench epoch`: ACE on digits for one epoch by every engine, over seeds: how much of a difference is noise.

The whole schedule lies in the one epoch. On real MNIST where it is there, on the bundled digits elsewhere. Engines that
take the same steps differ by roundings, which training enlarges; seeds say by how much.
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
from acenode.bench.gpu import words
from acenode.bench.gpu_workloads import FLOAT32, Family, Work, precision, training
from acenode.config import read_seeds
from acenode.data.folder import data_dir
from acenode.errors import UserError
from acenode.execution.environment import describe, device_of
from acenode.training.task import SilentListener

ENGINES = {"graph": "graph", "float32": FLOAT32, "native": "native", "reference": "reference"}
BASE = "reference"  # that the others are measured against

Row = dict[str, Any]


def run(options: Namespace) -> int:
    """Measure and print."""
    device = device_of(options.device)
    engines = chosen(options.engines, device)
    seeds = read_seeds(options.seeds)
    if options.jobs < 1:
        raise UserError("--jobs must be at least 1")
    root = data_dir()
    data = "full" if (root / "mnist.npz").is_file() else "sample"
    result = {"environment": describe(device), "data": data, "seeds": seeds, "engines": engines,
              "rows": list(measure(engines, seeds, device.type, data, root, options.jobs))}
    print(json.dumps(result) if options.json else render(result))
    return 0


def chosen(text: str | None, device: torch.device) -> list[str]:
    names = [n.strip() for n in (text or ("graph,native,reference" if device.type == "cuda" else
                                          "native,reference")).split(",")]
    if unknown := [n for n in names if n not in ENGINES]:
        raise UserError(f"there is no engine {unknown[0]!r}: choose from {', '.join(ENGINES)}")
    if device.type != "cuda" and {"graph", "float32"} & set(names):
        raise UserError("graphs need a CUDA device, and there is none here: choose from native, reference")
    return list(dict.fromkeys(names))


# One epoch ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Epoch(Work):
    """A run of one epoch."""

    data: str
    root: Path

    @property
    def of(self) -> Family:
        return Family("digits", 128, (self.method,), tuple(ENGINES.values()), partial(digits, self.data, self.root))


def digits(data: str, root: Path, method: str, device: str, backend: Backend, **given: Any) -> Any:
    entry = experiments.get("mnist")
    config = entry.configure(method, data, device=device, epochs=1, analysis=False, **given)
    return entry.make(config, root, torch.device(device), backend)


class Evaluations(SilentListener):
    """Hears how many evaluations a pass took."""

    def __init__(self) -> None:
        self.of: list[float] = []

    def on_steps(self, records: list[dict[str, Any]]) -> None:
        self.of += [float(r["nfe_forward"]) for r in records]


def one(engine: str, seed: int, device: str, data: str, root: Path, threads: int) -> Row:
    """Train for an epoch and test, in a process of its own."""
    torch.set_num_threads(threads)
    work, heard = Epoch("images", "ace", ENGINES[engine], data, root), Evaluations()
    with precision(work), training(work, torch.device(device), seed, []) as trainer:
        trainer.listener = heard
        trainer.run()
        trainer.task.model.eval()
        test = trainer.task.evaluate("test")
        return {"engine": engine, "seed": seed, "accuracy": test["accuracy"], "iterations": len(heard.of),
                "evaluations": statistics.mean(heard.of), "seconds": trainer.seconds}


def measure(engines: list[str], seeds: list[int], device: str, data: str, root: Path, jobs: int) -> Iterator[Row]:
    """Every run, some side by side; what goes wrong in one is said there in a line."""
    threads = max(1, (os.cpu_count() or 1) // jobs)
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(engines) * len(seeds)), spawned) as pool:
        waiting: dict[Future[Row], Row] = {
            pool.submit(one, engine, seed, device, data, root, threads): {"engine": engine, "seed": seed}
            for seed in seeds for engine in engines}
        for i, done in enumerate(as_completed(waiting), 1):
            try:
                row = done.result()
            except Exception as trouble:
                row = waiting[done] | {"error": words(trouble)}
            said = row["error"] if "error" in row else f"{row['accuracy']:.2%}"
            print(f"{i}/{len(waiting)} {row['engine']}, seed {row['seed']}: {said}", file=sys.stderr, flush=True)
            yield row


# In words -----------------------------------------------------------------------------------------------------------


def render(result: dict[str, Any]) -> str:
    rows = {(r["engine"], r["seed"]): r for r in result["rows"]}
    good = {at: r for at, r in rows.items() if "error" not in r}
    about = "MNIST" if result["data"] == "full" else "the bundled digits (MNIST is not here)"
    iterations = max((r["iterations"] for r in good.values()), default=0)
    lines = [f"Test accuracy after one epoch of ACE on {about}, {iterations} iterations, on "
             f"{result['environment']['device']}", "",
             f"{'seed':>8}" + "".join(f"{engine:>12}" for engine in result["engines"])]
    for seed in result["seeds"]:
        cells = (f"{100 * good[e, seed]['accuracy']:.2f}" if (e, seed) in good else "failed" for e in result["engines"])
        lines.append(f"{seed:>8}" + "".join(f"{cell:>12}" for cell in cells))
    of = {e: [100 * good[e, s]["accuracy"] for s in result["seeds"] if (e, s) in good] for e in result["engines"]}
    for name, statistic in (("median", statistics.median), ("mean", statistics.mean), ("std", _std), ("lowest", min)):
        lines.append(f"{name:>8}" + "".join(f"{_said(statistic, of[e]):>12}" for e in result["engines"]))
    for name, key, digits_ in (("NFE", "evaluations", 1), ("seconds", "seconds", 0)):
        values = {e: [r[key] for (engine, _), r in good.items() if engine == e] for e in result["engines"]}
        lines.append(f"{name:>8}" + "".join(f"{_said(statistics.mean, values[e], digits_):>12}"
                                            for e in result["engines"]))
    lines += ["", *(_difference(e, good, result["seeds"]) for e in result["engines"] if e != BASE and BASE in of)]
    lines += [f"{r['engine']}, seed {r['seed']}: {r['error']}" for r in rows.values() if "error" in r]
    return "\n".join(lines)


def _difference(engine: str, good: dict[tuple[str, int], Row], seeds: list[int]) -> str:
    """Seed by seed: the mean difference, and its standard error."""
    found = [100 * (good[engine, s]["accuracy"] - good[BASE, s]["accuracy"])
             for s in seeds if (engine, s) in good and (BASE, s) in good]
    if not found:
        return f"{engine} minus {BASE}: no seed by both"
    error = f" ± {_std(found) / math.sqrt(len(found)):.2f}" if len(found) > 1 else ""
    return f"{engine} minus {BASE}, seed by seed: {statistics.mean(found):+.2f}{error} points"


def _std(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else math.nan


def _said(statistic: Any, values: list[float], digits: int = 2) -> str:
    found = statistic(values) if values else math.nan
    return "—" if math.isnan(found) else f"{found:.{digits}f}"
