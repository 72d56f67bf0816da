"""Whole epochs and whole runs: `acenode bench epoch`, `validation` and `together`."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from acenode import experiments
from acenode.backend import Backend
from acenode.bench import Row, chosen, descendants, in_turns, measured, progress, sampled
from acenode.bench.scale import launcher_for
from acenode.bench.workloads import iterate, trainer_for
from acenode.config import Config, read_seeds
from acenode.data.folder import data_dir
from acenode.errors import UserError
from acenode.execution.devices import gpu_state
from acenode.execution.environment import describe, device_of
from acenode.runs.store import RunStore
from acenode.runs.writer import RunWriter


def make_task(experiment: str, method: str, device: str, backend: Backend, **given: Any) -> Any:
    entry = experiments.get(experiment)
    config = entry.configure(method, data_of(experiment), device=device, **given)
    return entry.make(config, data_dir(), torch.device(device), backend)


def data_of(experiment: str) -> str:
    """Return "full" if the real data are prepared here, else "sample"."""
    return "full" if (data_dir() / f"{experiments.get(experiment).source}.npz").is_file() else "sample"


# One epoch: engines that take the same steps still differ by rounding, which training amplifies ---------------------

BASE = "reference"  # the engine the others are compared with


def epoch(options: Namespace) -> Row:
    """Train ACE on digits for one epoch, with its whole learning rate schedule, by each engine with each seed."""
    device, rows = device_of(options.device), list[Row]()
    make = partial(make_task, "mnist", "ace", epochs=1, analysis=False)
    for seed in read_seeds(options.seeds):
        for engine in (*(["graph"] if device.type == "cuda" else []), "native", BASE):
            rows.append(measured({"engine": engine, "seed": seed}, partial(train_epoch, make, engine, device, seed)))
    return {"environment": describe(device), "data": data_of("mnist"), "rows": rows, "engines": summarise(rows),
            "notes": "test accuracy after one epoch of ACE on MNIST (sample: the bundled digits), in percent"}


def train_epoch(make: Any, engine: str, device: torch.device, seed: int) -> Row:
    """Train for an epoch and test."""
    with trainer_for(make, engine, device, seed) as trainer:
        trainer.run()
        trainer.task.model.eval()
        return {"accuracy": 100 * trainer.task.evaluate("test")["accuracy"], "seconds": trainer.seconds}


def summarise(rows: list[Row]) -> list[Row]:
    """Return each engine's accuracies, and their differences from the reference seed by seed with their errors."""
    frame = pd.DataFrame(rows, columns=["engine", "seed", "accuracy"]).astype({"accuracy": float})
    by_seed = frame.pivot(index="seed", columns="engine", values="accuracy")
    less = by_seed.sub(by_seed[BASE], axis="index").drop(columns=BASE)
    found = by_seed.agg(["median", "mean", "std", "min"]).T
    found[f"minus {BASE}"], found["±"] = less.mean(), less.sem()
    found = found.round(2).astype(object)
    return found.where(found.notna(), None).reset_index().to_dict("records")


# What a run does between its batches --------------------------------------------------------------------------------

CHECKED = (("mnist", "ace"), ("physionet", "latent-ode"), ("physionet", "ace"), ("ushcn", "ace"))
BATCHES = 8  # timed, after one that compiles and records


def validation(options: Namespace) -> Row:
    """Time batches, validation, a checkpoint and a snapshot on the real data where they are prepared."""
    device = device_of(options.device)
    rows = [measured({"experiment": experiment, "method": method, "data": data_of(experiment)},
                     partial(measure_validation, experiment, method, device)) for experiment, method in CHECKED]
    return {"environment": describe(device), "rows": rows,
            "notes": "seconds of an epoch; share: validation / (training + validation)"}


def measure_validation(experiment: str, method: str, device: torch.device) -> Row:
    """Return the seconds of an epoch's training, of its validation and of what surrounds them."""
    with (trainer_for(partial(make_task, experiment, method), "auto", device) as trainer,
          tempfile.TemporaryDirectory() as folder):
        task: Any = trainer.task
        iterate(trainer)
        training = task.iterations * in_turns({"batch": partial(iterate, trainer)}, BATCHES)["batch"]
        task.model.eval()
        task.evaluate("validation")
        writer = RunWriter(RunStore(Path(folder)).create(task.config, {}))
        writer.checkpoint(trainer.state_dict())
        checks = in_turns({"validation": partial(task.evaluate, "validation"), "snapshot": task.snapshot,
                           "checkpoint": lambda: writer.checkpoint(trainer.state_dict())})
        return {"batches": task.iterations, "training": training, **checks,
                "share": checks["validation"] / (training + checks["validation"])}


# Several whole runs, one after another, in threads and in processes -------------------------------------------------

WAYS = ("processes", "mps", "one", "threads")  # threads last: they leave memory in this process
MPS = "nvidia-cuda-mps-control"  # of CUDA's multi-process service, which lets kernels of several processes overlap
NOTES = """\
one is one run after another, mps are processes with CUDA's multi-process service. total: seconds until all runs have
ended, with validation, tests and snapshots. share of one: training time of a run alone divided by its training time in
this way, of the least and the most served run. start: seconds until the last run that need not queue began. memory:
highest sum over this process and its workers."""


def together(options: Namespace) -> Row:
    """Train whole runs in several ways, after one epoch of every kind of run, which compiles what is kept on disk.

    Choose epochs with which the runs take about the same time alone, so that all of them compete most of the time.
    """
    device = device_of(options.device).type
    configs = configs_of(options.train, options.each, options.data, device)
    has_mps = device == "cuda" and shutil.which(MPS) is not None
    ways = [way for way in WAYS if (way in chosen("way", options.ways, WAYS) if options.ways else
                                    way != "mps" or has_mps)]
    if "mps" in ways and not has_mps:
        raise UserError(f"mps needs a CUDA device and {MPS}: leave it out of --ways")
    first = {(c.experiment, c.method): Config.from_dict(c.to_dict() | {"epochs": 1}) for c in configs}
    rows, runs = list[Row](), list[Row]()
    with tempfile.TemporaryDirectory() as folder:
        progress("one epoch of every kind of run, to compile")
        measure_way("processes", list(first.values()), device, Path(folder) / "compile")
        for way in ways:
            progress(f"{len(configs)} runs: {way}")
            with mps_daemon(Path(folder)) if way == "mps" else nullcontext():
                row, own = measure_way(way, configs, device, Path(folder) / way)
            rows.append(row)
            runs += own
    compare_with_one(rows, runs)
    return {"environment": describe(torch.device(device)), "ways": rows, "runs": runs, "notes": NOTES}


def compare_with_one(rows: list[Row], runs: list[Row]) -> None:
    """Add to the rows of ways what they take and give, compared with one run after another."""
    training = {way: [run["training"] for run in runs if run["way"] == way] for way in WAYS}
    total = next((row["total"] for row in rows if row["way"] == "one"), None)
    for row in rows if total is not None else []:
        shares = [alone / own for alone, own in zip(training["one"], training[row["way"]], strict=True)]
        row |= {"total of one": row["total"] / total, "least share of one": min(shares),
                "most share of one": max(shares), "least/most": min(shares) / max(shares)}


def configs_of(train: str, each: int, data: str, device: str) -> list[Config]:
    """Return the configurations of "EXPERIMENT/METHOD:EPOCHS,...", each with as many seeds."""
    found = []
    for text in train.split(","):
        name, _, epochs = text.strip().partition(":")
        experiment, _, method = name.partition("/")
        if not method or not epochs.isdigit():
            raise UserError(f"--train takes EXPERIMENT/METHOD:EPOCHS,..., such as physionet/ace:1, not {text!r}")
        found += [experiments.get(experiment).configure(method, data, seed=seed, epochs=int(epochs), device=device)
                  for seed in range(each)]
    if not 1 <= len(found) <= 64:
        raise UserError(f"1 to 64 runs are trained together, not {len(found)}: change --each")
    return found


@contextmanager
def mps_daemon(folder: Path) -> Iterator[None]:
    """Run a multi-process service of our own, for processes that are started in the block."""
    names = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
    before = {name: os.environ.pop(name, None) for name in names}
    os.environ |= dict.fromkeys(names, str(folder))
    try:
        # no pipes: the daemon would hold them open, and waiting for their end would not return
        if subprocess.run([MPS, "-d"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30).returncode:
            raise UserError(f"{MPS} did not start: leave mps out of --ways")
        yield
        subprocess.run([MPS], input="quit\n", text=True, capture_output=True, timeout=30)
    finally:
        for name in names:
            del os.environ[name]
        os.environ |= {name: value for name, value in before.items() if value is not None}


def measure_way(way: str, configs: list[Config], device: str, folder: Path) -> tuple[Row, list[Row]]:
    """Train all runs in one way: total seconds, highest memory, and each run's times since the beginning."""
    gc.collect()
    at_a_time = 1 if way == "one" else len(configs)
    with (launcher_for(way, device, at_a_time, folder) as train, sampled(process_memory, 1.0) as peak,
          sampled(lambda: gpu_state(0, 0, 0).memory_used if device == "cuda" else None, 1.0) as gpu_peak):
        begun = time.time()
        trained = [(run.status(), run.config()) for run in train(configs)]
        seconds = time.time() - begun
    runs = [{"way": way, "run": f"{config.experiment}/{config.method}, seed {config.seed}", "epochs": status["epochs"],
             "training": status["seconds"], "began": status["began"] - begun, "ended": status["heartbeat"] - begun}
            for status, config in trained]
    start = sorted(run["began"] for run in runs)[at_a_time - 1]
    peaks = {name: None if (most := read()) is None else most / 1e6
             for name, read in (("memory MB", peak), ("GPU memory MB", gpu_peak))}
    return {"way": way, "total": seconds, "start": start, **peaks}, runs


def process_memory() -> int | None:
    """Return the bytes that this process and its children use, shared pages counted once; None without /proc."""
    try:
        texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in (os.getpid(), *descendants(os.getpid()))]
        return 1024 * sum(int(line.split()[1]) for text in texts for line in text.splitlines()
                          if line.startswith("Pss:"))
    except OSError:  # also where a child has just ended
        return None
