"""Whole epochs and whole runs: `acenode bench epoch`, `validation` and `together`."""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from acenode import experiments
from acenode.backend import Backend
from acenode.bench import Row, chosen, descendants, error_line, in_turns, progress, sampled
from acenode.bench.scale import launcher_for
from acenode.bench.workloads import FLOAT32, convolution_precision, iterate, trainer_for
from acenode.config import Config, read_seeds
from acenode.data.folder import data_dir
from acenode.errors import UserError
from acenode.execution.devices import gpu_state
from acenode.execution.environment import describe, device_of
from acenode.runs.store import RunStore
from acenode.runs.writer import RunWriter
from acenode.training.task import SilentListener


def make_task(experiment: str, method: str, data: str, device: str, backend: Backend, **given: Any) -> Any:
    entry = experiments.get(experiment)
    return entry.make(entry.configure(method, data, device=device, **given), data_dir(), torch.device(device), backend)


def data_of(experiment: str) -> str:
    """Return "full" if the real data are prepared here, else "sample"."""
    return "full" if (data_dir() / f"{experiments.get(experiment).source}.npz").is_file() else "sample"


# One epoch: engines that take the same steps still differ by rounding, which training amplifies ---------------------

ENGINES = {"graph": "graph", "float32": FLOAT32, "native": "native", "reference": "reference"}
BASE = "reference"  # the engine the others are compared with


def epoch(options: Namespace) -> Row:
    """Train ACE on digits for one epoch, with its whole learning rate schedule, by each engine with each seed."""
    device, seeds, data = device_of(options.device), read_seeds(options.seeds), data_of("mnist")
    default = "graph,native,reference" if device.type == "cuda" else "native,reference"
    engines = chosen("engine", options.engines or default, ENGINES)
    if device.type != "cuda" and {"graph", "float32"} & set(engines):
        raise UserError("engine graph needs a CUDA device, and there is none: choose from native, reference")
    if options.jobs < 1:
        raise UserError("--jobs must be at least 1")
    threads, rows = max(1, (os.cpu_count() or 1) // options.jobs), list[Row]()
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(options.jobs, len(engines) * len(seeds)), spawned) as pool:
        waiting = {pool.submit(train_epoch, engine, seed, device.type, data, threads): {"engine": engine, "seed": seed}
                   for seed in seeds for engine in engines}
        for done in as_completed(waiting):
            try:
                rows.append(waiting[done] | done.result())
            except Exception as error:
                rows.append(waiting[done] | {"error": error_line(error)})
            progress(f"{len(rows)}/{len(waiting)} {rows[-1]}")
    return {"environment": describe(device), "data": data, "rows": rows, "engines": summarise(engines, rows),
            "notes": "test accuracy after one epoch of ACE on MNIST (sample: the bundled digits), in percent"}


def train_epoch(engine: str, seed: int, device: str, data: str, threads: int) -> Row:
    """Train for an epoch and test; runs in a worker process."""
    torch.set_num_threads(threads)
    evaluations, listener = list[float](), SilentListener()
    listener.on_steps = lambda records: evaluations.extend(  # type: ignore[method-assign]
        float(record["nfe_forward"]) for record in records)
    make = partial(make_task, "mnist", "ace", data, epochs=1, analysis=False)
    with (convolution_precision(ENGINES[engine]),
          trainer_for(make, ENGINES[engine], torch.device(device), seed) as trainer):
        trainer.listener = listener
        trainer.run()
        trainer.task.model.eval()
        return {"accuracy": trainer.task.evaluate("test")["accuracy"], "iterations": len(evaluations),
                "NFE": statistics.mean(evaluations), "seconds": trainer.seconds}


def summarise(engines: list[str], rows: list[Row]) -> list[Row]:
    """Return each engine's accuracies in percent, and their differences from the reference seed by seed."""
    frame = pd.DataFrame(rows, columns=["engine", "seed", "accuracy", "NFE", "seconds"])
    percent = 100 * frame.pivot(index="seed", columns="engine", values="accuracy").astype(float)
    found = []
    for engine in engines:
        own, values = frame[frame["engine"] == engine], percent[engine]
        row = values.agg(["median", "mean", "std", "min"]).round(2).to_dict()
        row |= own[["NFE", "seconds"]].astype(float).mean().to_dict()
        less = (values - percent[BASE]).dropna() if BASE in engines and engine != BASE else values[:0]
        row[f"minus {BASE}"] = f"{less.mean():+.2f} ± {less.sem():.2f} points" if len(less) else None
        found.append({"engine": engine} | {key: None if pd.isna(value) else value for key, value in row.items()})
    return found


# What a run does between its batches --------------------------------------------------------------------------------

CHECKED = (("mnist", "ace"), ("physionet", "latent-ode"), ("physionet", "ace"), ("ushcn", "ace"))
BATCHES = 8  # timed, after one that compiles and records


def validation(options: Namespace) -> Row:
    """Time batches, validation, a checkpoint and a snapshot on the real data where they are prepared."""
    device, rows = device_of(options.device), list[Row]()
    for experiment, method in CHECKED:
        rows.append({"experiment": experiment, "method": method, "data": data_of(experiment)})
        progress(f"{experiment}, {method} on {rows[-1]['data']} data")
        try:
            rows[-1] |= measure_validation(experiment, method, rows[-1]["data"], device, options.repeats)
        except Exception as error:
            rows[-1]["error"] = error_line(error)
    return {"environment": describe(device), "rows": rows, "notes":
            "share: validation / (training + validation). setup: making the task and its first batch, with compiling."}


def measure_validation(experiment: str, method: str, data: str, device: torch.device, repeats: int) -> Row:
    """Return the seconds of an epoch's training, of its validation and of what surrounds them."""
    begun = time.perf_counter()
    make = partial(make_task, experiment, method, data)
    with trainer_for(make, "auto", device) as trainer, tempfile.TemporaryDirectory() as folder:
        task: Any = trainer.task
        iterate(trainer, 1)
        setup = time.perf_counter() - begun
        batch = in_turns({"batch": partial(iterate, trainer, 1)}, BATCHES)["batch"]
        task.model.eval()
        task.evaluate("validation")
        writer = RunWriter(RunStore(Path(folder)).create(task.config, {}))
        writer.checkpoint(trainer.state_dict())
        checks = in_turns({"validation": partial(task.evaluate, "validation"), "snapshot": task.snapshot,
                           "checkpoint": lambda: writer.checkpoint(trainer.state_dict())}, repeats)
        training = batch * task.iterations
        return {"batches": task.iterations, "batch_seconds": batch, "training_seconds": training,
                **{f"{name}_seconds": taken for name, taken in checks.items()},
                "share": checks["validation"] / (training + checks["validation"]), "setup_seconds": setup}


# Several whole runs, one after another, in threads and in processes -------------------------------------------------

WAYS = ("processes", "mps", "one", "threads")  # threads last: they leave memory in this process
MPS = "nvidia-cuda-mps-control"  # of CUDA's multi-process service, which lets kernels of several processes overlap
NOTES = """\
ways: one is one run after another, mps are processes with CUDA's multi-process service. total: time until all runs have
ended, with validation, tests and snapshots. share of one: training time of a run alone divided by its training time in
this way, of the least and the most served run. start: longest time until a run that did not have to wait in the queue
began. memory: highest sum over this process and its workers."""


def together(options: Namespace) -> Row:
    """Train whole runs in several ways, after one epoch of every kind of run, which compiles what is kept on disk.

    Choose epochs with which the runs take about the same time alone, so that all of them compete most of the time.
    """
    device = device_of(options.device)
    configs = configs_of(options.train, options.each, options.data, device.type)
    has_mps = device.type == "cuda" and shutil.which(MPS) is not None
    ways = [way for way in WAYS if way != "mps" or has_mps]
    if options.ways is not None:
        ways = sorted(chosen("way", options.ways, WAYS), key=WAYS.index)
    if "mps" in ways and not has_mps:
        raise UserError(f"mps needs a CUDA device and {MPS}: leave it out of --ways")
    at_a_time = len(configs) if options.jobs is None else options.jobs
    if not 1 <= at_a_time <= 64:
        raise UserError("--jobs must be between 1 and 64")
    first = {(c.experiment, c.method): Config.from_dict(c.to_dict() | {"epochs": 1}) for c in configs}
    runs = list[Row]()
    with tempfile.TemporaryDirectory() as folder:
        progress("one epoch of every kind of run, to compile")
        measure_way("processes", list(first.values()), device.type, len(first), Path(folder) / "compile")
        rows = []
        for way in ways:
            progress(f"{len(configs)} runs: {way}")
            with mps_daemon(Path(folder)) if way == "mps" else nullcontext():
                row, own = measure_way(way, configs, device.type, at_a_time, Path(folder) / way)
            rows.append(row)
            runs += own
    compare_with_one(rows, runs)
    return {"environment": describe(device), "data": options.data, "at a time": at_a_time, "train": options.train,
            "each": options.each, "MPS is running": mps_control("get_server_list"), "ways": rows, "runs": runs,
            "notes": NOTES}


def compare_with_one(rows: list[Row], runs: list[Row]) -> None:
    """Add to the rows of ways what they take and give, compared with one run after another."""
    training = {way: [run["training_seconds"] for run in runs if run["way"] == way] for way in WAYS}
    total = next((row["total_seconds"] for row in rows if row["way"] == "one"), None)
    for row in rows if total is not None else []:
        shares = [alone / own for alone, own in zip(training["one"], training[row["way"]], strict=True)]
        row |= {"total of one": row["total_seconds"] / total, "least share of one": min(shares),
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
    return found


def mps_control(command: str) -> bool:
    """Send a command to CUDA's multi-process service; return True if it answered, so that CUDA programs use it."""
    return shutil.which(MPS) is not None and subprocess.run(
        [MPS], input=command + "\n", text=True, capture_output=True, timeout=30).returncode == 0


@contextmanager
def mps_daemon(folder: Path) -> Iterator[None]:
    """Run a service of our own, for processes that are started in the block."""
    names = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
    before = {name: os.environ.pop(name, None) for name in names}
    os.environ |= dict.fromkeys(names, str(folder))
    try:
        # no pipes: the daemon would hold them open, and waiting for their end would not return
        started = subprocess.run([MPS, "-d"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30)
        if started.returncode:
            raise UserError(f"{MPS} did not start (exit code {started.returncode}): leave mps out of --ways")
        yield
        mps_control("quit")
    finally:
        for name in names:
            del os.environ[name]
        os.environ |= {name: value for name, value in before.items() if value is not None}


def measure_way(way: str, configs: list[Config], device: str, at_a_time: int,
                folder: Path) -> tuple[Row, list[Row]]:
    """Train all runs in one way: total seconds, highest memory, and each run's times since the beginning."""
    gc.collect()
    at_a_time = 1 if way == "one" else at_a_time
    with (launcher_for(way, device, at_a_time, folder) as train, sampled(process_memory, 1.0) as peak,
          sampled(lambda: gpu_state(0, 0, 0).memory_used if device == "cuda" else None, 1.0) as gpu_peak):
        begun = time.time()
        trained = [(run.status(), run.config()) for run in train(configs)]
        seconds = time.time() - begun
    runs = [{"way": way, "run": f"{config.experiment}/{config.method}, seed {config.seed}", "epochs": status["epochs"],
             "training_seconds": status["seconds"], "began_seconds": status["began"] - begun,
             "ended_seconds": status["heartbeat"] - begun} for status, config in trained]
    began = sorted(run["began_seconds"] for run in runs)[:at_a_time]
    return {"way": way, "total_seconds": seconds, "start_seconds": began[-1], **{
        name: None if (most := read()) is None else most / 1e6
        for name, read in (("memory_megabytes", peak), ("GPU memory_megabytes", gpu_peak))}}, runs


def process_memory() -> int | None:
    """Return the bytes that this process and its children use, shared pages counted once; None without /proc."""
    try:
        texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in (os.getpid(), *descendants(os.getpid()))]
        return 1024 * sum(int(line.split()[1]) for text in texts for line in text.splitlines()
                          if line.startswith("Pss:"))
    except OSError:  # also where a child has just ended
        return None
