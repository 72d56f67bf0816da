"""`acenode bench validation`: which share of an epoch is validation, and what else a run does between its batches.

Each row trains a few batches as `acenode train` does and multiplies their median by the batches of an epoch, then
validates, writes a checkpoint and takes a snapshot. Uses the real data where it is prepared, else the bundled samples.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from acenode import experiments
from acenode.backend import Backend
from acenode.bench.gpu import error_line
from acenode.bench.gpu_workloads import Family, Workload, iterate, trainer_for
from acenode.data.folder import data_dir
from acenode.errors import UserError
from acenode.execution.environment import describe, device_of
from acenode.runs.store import RunStore
from acenode.runs.writer import RunWriter
from acenode.training.trainer import Trainer

ROWS = (("mnist", "ace"), ("physionet", "latent-ode"), ("physionet", "ace"), ("ushcn", "ace"))
BATCHES = 8  # timed per row, after one that compiles and records
BUDGET = 20.0  # seconds of timed batches per row

Row = dict[str, Any]


def run(options: Namespace) -> int:
    """Measure and print."""
    if options.repeats < 1:
        raise UserError("--repeats must be at least 1")
    device, root = device_of(options.device), data_dir()
    rows = []
    for experiment, method in ROWS:
        data = "full" if _prepared(experiment, root) else "sample"
        print(f"{experiment}, {method} on {data} data", file=sys.stderr, flush=True)
        try:
            rows.append(measure(experiment, method, data, device, root, options.repeats))
        except Exception as error:
            rows.append({"experiment": experiment, "method": method, "data": data, "error": error_line(error)})
    result = {"environment": describe(device), "rows": rows}
    print(json.dumps(result) if options.json else render(result))
    return 0


def _prepared(experiment: str, root: Path) -> bool:
    return (root / f"{experiments.get(experiment).source}.npz").is_file()


def make_task(experiment: str, data: str, root: Path, method: str, device: str, backend: Backend, **given: Any) -> Any:
    entry = experiments.get(experiment)
    return entry.make(entry.configure(method, data, device=device, **given), root, torch.device(device), backend)


@dataclass(frozen=True)
class RealWorkload(Workload):
    """A method of an experiment on its own data."""

    data: str
    root: Path

    @property
    def spec(self) -> Family:
        make = partial(make_task, self.family, self.data, self.root)
        return Family(self.family, 0, (self.method,), (self.engine,), make)


def measure(experiment: str, method: str, data: str, device: torch.device, root: Path, repeats: int) -> Row:
    """Return the seconds of an epoch's training, of its validation and of what surrounds them."""
    begun, log = time.perf_counter(), list[str]()
    with trainer_for(RealWorkload(experiment, method, "auto", data, root), device, 0, log) as trainer:
        task: Any = trainer.task
        made = time.perf_counter() - begun
        first, batch = _seconds(lambda: iterate(trainer, 1)), list[float]()
        while len(batch) < BATCHES and (not batch or sum(batch) < BUDGET):
            batch.append(_seconds(lambda: iterate(trainer, 1)))
        task.model.eval()
        validation = [_seconds(lambda: task.evaluate("validation")) for _ in range(repeats + 1)]
        snapshot = min(_seconds(task.snapshot) for _ in range(2))
        epoch, checks = statistics.median(batch) * task.iterations, statistics.median(validation[1:])
        return {"experiment": experiment, "method": method, "data": data, "error": None, "setup": made, "first": first,
                "iteration": statistics.median(batch), "iterations": task.iterations, "training": epoch,
                "first_validation": validation[0], "validation": checks, "share": checks / (epoch + checks),
                "checkpoint": _checkpoint_seconds(trainer), "snapshot": snapshot}


def _seconds(work: Callable[[], object]) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    begun = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def _checkpoint_seconds(trainer: Trainer) -> float:
    with tempfile.TemporaryDirectory() as folder:
        task: Any = trainer.task
        writer = RunWriter(RunStore(Path(folder)).create(task.config, {}))
        writer.checkpoint(trainer.state_dict())
        return _seconds(lambda: writer.checkpoint(trainer.state_dict()))


def render(result: dict[str, Any]) -> str:
    """Format the table."""
    lines = [f"An epoch on {result['environment']['device']}, in seconds", "",
             f"  {'':<30}{'batches':>9}{'a batch':>10}{'training':>10}{'validation':>12}{'share':>8}{'checkpoint':>12}"
             f"{'snapshot':>10}{'setup':>8}"]
    for row in result["rows"]:
        name = f"  {row['experiment']} {row['method']}{' (sample)' if row['data'] == 'sample' else ''}"
        if row["error"] is not None:
            lines.append(f"{name:<32} failed: {row['error']}")
            continue
        lines.append(f"{name:<32}{row['iterations']:>9}{row['iteration']:>10.4f}{row['training']:>10.2f}"
                     f"{row['validation']:>12.3f}{row['share']:>8.1%}{row['checkpoint']:>12.3f}"
                     f"{row['snapshot']:>10.3f}{row['setup'] + row['first']:>8.1f}")
    return "\n".join([*lines, "", "share: validation / (training + validation). setup: making the task and its first "
                      "batch, with compiling."])
