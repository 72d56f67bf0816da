"""Whole epochs and whole runs: `acenode bench epoch`, `validation` and `together`."""

from __future__ import annotations

import gc
import math
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
from acenode.bench import (
    Report,
    chosen,
    descendants,
    duration,
    error_line,
    in_turns,
    progress,
    sampled,
    seconds_of,
    size,
    table,
)
from acenode.bench.scale import train_all
from acenode.bench.workloads import FLOAT32, convolution_precision, iterate, trainer_for
from acenode.config import Config, read_seeds
from acenode.data.folder import data_dir
from acenode.errors import UserError
from acenode.execution.devices import gpu_state
from acenode.execution.environment import describe, device_of
from acenode.execution.launcher import Launcher, Place
from acenode.runs.store import RunStore
from acenode.runs.writer import RunWriter
from acenode.training.task import SilentListener

Row = dict[str, Any]


def make_task(experiment: str, method: str, data: str, device: str, backend: Backend, **given: Any) -> Any:
    entry = experiments.get(experiment)
    return entry.make(entry.configure(method, data, device=device, **given), data_dir(), torch.device(device), backend)


def data_of(experiment: str) -> str:
    """Return "full" if the real data are prepared here, else "sample"."""
    return "full" if (data_dir() / f"{experiments.get(experiment).source}.npz").is_file() else "sample"


# One epoch: engines that take the same steps still differ by rounding, which training amplifies ---------------------

ENGINES = {"graph": "graph", "float32": FLOAT32, "native": "native", "reference": "reference"}
BASE = "reference"  # the engine the others are compared with


def epoch(options: Namespace) -> Report:
    """Train ACE on digits for one epoch, with its whole learning rate schedule, by each engine with each seed."""
    device, seeds, data = device_of(options.device), read_seeds(options.seeds), data_of("mnist")
    engines = engines_from(options.engines, device)
    if options.jobs < 1:
        raise UserError("--jobs must be at least 1")
    threads, rows = max(1, (os.cpu_count() or 1) // options.jobs), list[Row]()
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(options.jobs, len(engines) * len(seeds)), spawned) as pool:
        waiting = {pool.submit(train_epoch, engine, seed, device.type, data, threads): {"engine": engine, "seed": seed}
                   for seed in seeds for engine in engines}
        for done in as_completed(waiting):
            try:
                rows.append(done.result())
            except Exception as error:
                rows.append({**waiting[done], "error": error_line(error)})
            outcome = rows[-1].get("error") or f"{rows[-1]['accuracy']:.2%}"
            progress(f"{len(rows)}/{len(waiting)} {rows[-1]['engine']}, seed {rows[-1]['seed']}: {outcome}")
    result = {"environment": describe(device), "data": data, "seeds": seeds, "engines": engines, "rows": rows}
    return Report(result, render_epochs(result))


def engines_from(text: str | None, device: torch.device) -> list[str]:
    """Return the engines named in a comma-separated list; without one, all that the device supports."""
    names = chosen("engine", text or ("graph,native,reference" if device.type == "cuda" else "native,reference"),
                   ENGINES)
    if device.type != "cuda" and {"graph", "float32"} & set(names):
        raise UserError("engine graph needs a CUDA device, and there is none: choose from native, reference")
    return names


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
        return {"engine": engine, "seed": seed, "accuracy": trainer.task.evaluate("test")["accuracy"],
                "iterations": len(evaluations), "evaluations": statistics.mean(evaluations),
                "seconds": trainer.seconds}


def render_epochs(result: Row) -> str:
    """Format the accuracies in percent, and their differences from the reference seed by seed."""
    engines, rows = result["engines"], pd.DataFrame(result["rows"])
    found = {key: rows.pivot(index="seed", columns="engine", values=key).loc[result["seeds"], engines].astype(float)
             for key in ("accuracy", "evaluations", "seconds") if key in rows}
    percent = 100 * found["accuracy"]

    def line(name: str, values: pd.Series, digits: int = 2, missing: str = "—") -> list[str]:
        return [name, *(missing if math.isnan(value) else f"{value:.{digits}f}" for value in values)]

    lines = [line(str(seed), percent.loc[seed], missing="failed") for seed in result["seeds"]]
    lines += [line(name, percent.agg(name.replace("lowest", "min"))) for name in ("median", "mean", "std", "lowest")]
    lines += [line("NFE", found["evaluations"].mean(), 1), line("seconds", found["seconds"].mean(), 0)]
    about = "MNIST" if result["data"] == "full" else "the bundled digits (MNIST is not downloaded)"
    text = [f"Test accuracy after one epoch of ACE on {about}, on {result['environment']['device']}", "",
            table(["seed", *engines], lines), ""]
    for engine in engines if BASE in engines else []:
        less = (percent[engine] - percent[BASE]).dropna()
        if engine != BASE:
            text.append(f"{engine} minus {BASE}, seed by seed: {less.mean():+.2f} ± {less.sem():.2f} points"
                        if len(less) else f"{engine} minus {BASE}: no seed finished with both")
    return "\n".join([*text, *(f"{row['engine']}, seed {row['seed']}: {row['error']}" for row in result["rows"]
                               if "error" in row)])


# What a run does between its batches --------------------------------------------------------------------------------

CHECKED = (("mnist", "ace"), ("physionet", "latent-ode"), ("physionet", "ace"), ("ushcn", "ace"))
BATCHES = 8  # timed, after one that compiles and records


def validation(options: Namespace) -> Report:
    """Time batches, validation, a checkpoint and a snapshot on the real data where they are prepared."""
    device, rows = device_of(options.device), list[Row]()
    for experiment, method in CHECKED:
        row: Row = {"experiment": experiment, "method": method, "data": data_of(experiment), "error": None}
        progress(f"{experiment}, {method} on {row['data']} data")
        try:
            row |= measure_validation(experiment, method, row["data"], device, options.repeats)
        except Exception as error:
            row["error"] = error_line(error)
        rows.append(row)
    return Report({"environment": describe(device), "rows": rows}, render_validation(device, rows))


def measure_validation(experiment: str, method: str, data: str, device: torch.device, repeats: int) -> Row:
    """Return the seconds of an epoch's training, of its validation and of what surrounds them."""
    begun = time.perf_counter()
    make = partial(make_task, experiment, method, data)
    with trainer_for(make, "auto", device) as trainer, tempfile.TemporaryDirectory() as folder:
        task: Any = trainer.task
        made = time.perf_counter() - begun
        first = seconds_of(partial(iterate, trainer, 1))
        batch = in_turns({"batch": partial(iterate, trainer, 1)}, BATCHES)["batch"]
        task.model.eval()
        first_validation = seconds_of(partial(task.evaluate, "validation"))
        writer = RunWriter(RunStore(Path(folder)).create(task.config, {}))
        writer.checkpoint(trainer.state_dict())
        checks = in_turns({"validation": partial(task.evaluate, "validation"), "snapshot": task.snapshot,
                           "checkpoint": lambda: writer.checkpoint(trainer.state_dict())}, repeats)
        epoch_seconds = batch * task.iterations
        return {"setup": made, "first": first, "iteration": batch, "iterations": task.iterations,
                "training": epoch_seconds, "first_validation": first_validation,
                "share": checks["validation"] / (epoch_seconds + checks["validation"]), **checks}


def render_validation(device: torch.device, rows: list[Row]) -> str:
    """Format a table, and the errors of rows that failed."""
    names = [f"{row['experiment']} {row['method']}{' (sample)' if row['data'] == 'sample' else ''}" for row in rows]
    found = [[name, str(row["iterations"]), f"{row['iteration']:.4f}", f"{row['training']:.2f}",
              f"{row['validation']:.3f}", f"{row['share']:.1%}", f"{row['checkpoint']:.3f}", f"{row['snapshot']:.3f}",
              f"{row['setup'] + row['first']:.1f}"] for name, row in zip(names, rows, strict=True)
             if row["error"] is None]
    lines = [f"{name} failed: {row['error']}" for name, row in zip(names, rows, strict=True) if row["error"]]
    heads = ("", "batches", "a batch", "training", "validation", "share", "checkpoint", "snapshot", "setup")
    return "\n".join([f"An epoch on {describe(device)['device']}, in seconds", "", table(heads, found), *lines, "",
                      "share: validation / (training + validation). setup: making the task and its first batch, with "
                      "compiling."])


# Several whole runs, one after another, in threads and in processes -------------------------------------------------

WAYS = {"processes": "processes", "mps": "processes with MPS", "one": "one after another", "threads": "threads"}
MPS = "nvidia-cuda-mps-control"  # of CUDA's multi-process service, which lets kernels of several processes overlap
NOTES = """\
total: time until all runs have ended, with validation, tests and snapshots. share: training time of a run alone divided
by its training time in this way; lowest/highest compares the least and the most served run. start: longest time until a
run that did not have to wait in the queue began. memory: highest sum over this process and its workers."""


def together(options: Namespace) -> Report:
    """Train whole runs in several ways, after one epoch of every kind of run, which compiles what is kept on disk.

    Choose epochs with which the runs take about the same time alone, so that all of them compete most of the time.
    """
    device = device_of(options.device)
    configs = configs_of(options.train, options.each, options.data, device.type)
    ways, at_a_time = ways_of(options.ways, device), len(configs) if options.jobs is None else options.jobs
    if not 1 <= at_a_time <= 64:
        raise UserError("--jobs must be between 1 and 64")
    first = {(c.experiment, c.method): Config.from_dict(c.to_dict() | {"epochs": 1}) for c in configs}
    arms = list[Row]()
    with tempfile.TemporaryDirectory() as folder:
        progress("one epoch of every kind of run, to compile")
        measure_arm("processes", list(first.values()), device.type, len(first), Path(folder) / "compile")
        for way in ways:  # threads last: they leave memory in this process
            progress(f"{len(configs)} runs: {WAYS[way]}")
            with mps_daemon(Path(folder)) if way == "mps" else nullcontext():
                arms.append(measure_arm(way, configs, device.type, at_a_time, Path(folder) / way))
            progress("\n".join(f"  {run['name']}: {run['began']:.1f} s to {run['ended']:.1f} s, "
                               f"{run['training']:.1f} s training" for run in arms[-1]["runs"]))
    result = {"environment": describe(device), "data": options.data, "at_a_time": at_a_time, "runs": len(configs),
              "train": options.train, "each": options.each, "mps_running": mps_control("get_server_list"), "arms": arms}
    return Report(result, render_arms(result))


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


def ways_of(text: str | None, device: torch.device) -> list[str]:
    """Return the ways named in a comma-separated list; without one, all but mps, and mps on a GPU that has it."""
    has_mps = device.type == "cuda" and shutil.which(MPS) is not None
    names = [w for w in WAYS if w != "mps" or has_mps] if text is None else chosen("way", text, WAYS)
    if "mps" in names and not has_mps:
        raise UserError(f"mps needs a CUDA device and {MPS}: leave it out of --ways")
    return [way for way in WAYS if way in names]


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


def measure_arm(way: str, configs: list[Config], device: str, at_a_time: int, folder: Path) -> Row:
    """Train all runs in one way: total seconds, highest memory, and each run's times since the beginning."""
    gc.collect()
    place: Place = "thread" if way in ("one", "threads") else "process"
    launcher = Launcher(RunStore(folder), data_dir(), {device: place})
    try:
        launcher.set_workers(device, 1 if way == "one" else at_a_time)
        with (sampled(process_memory, 1.0) as peak,
              sampled(lambda: gpu_state(0, 0, 0).memory_used if device == "cuda" else None, 1.0) as gpu_peak):
            begun = time.time()
            runs = train_all(launcher, configs)
            seconds = time.time() - begun
    finally:
        launcher.close()
    trained = [(run.status(), run.config()) for run in runs]
    return {"way": way, "seconds": seconds, "memory": peak(), "gpu_memory": gpu_peak(),
            "runs": [{"name": f"{config.experiment}/{config.method}, seed {config.seed}", "epochs": status["epochs"],
                      "training": status["seconds"], "began": status["began"] - begun,
                      "ended": status["heartbeat"] - begun} for status, config in trained]}


def process_memory() -> int | None:
    """Return the bytes that this process and its children use, shared pages counted once; None without /proc."""
    try:
        texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in (os.getpid(), *descendants(os.getpid()))]
        return 1024 * sum(int(line.split()[1]) for text in texts for line in text.splitlines()
                          if line.startswith("Pss:"))
    except OSError:  # also where a child has just ended
        return None


def render_arms(result: Row) -> str:
    """Format a table that compares every way with one after another."""
    alone, rows = next((arm for arm in result["arms"] if arm["way"] == "one"), None), list[list[str]]()
    for arm in sorted(result["arms"], key=lambda arm: arm["way"] != "one"):
        compared = ["—", "—", "—"]
        if alone is not None:
            share = [a["training"] / b["training"] for a, b in zip(alone["runs"], arm["runs"], strict=True)]
            compared = [f"{arm['seconds'] / alone['seconds']:.0%}", f"{min(share):.2f} to {max(share):.2f}",
                        f"{min(share) / max(share):.2f}"]
        began = sorted(run["began"] for run in arm["runs"])[:1 if arm["way"] == "one" else result["at_a_time"]]
        rows.append([WAYS[arm["way"]], f"{arm['seconds']:.1f} s", *compared, duration(began[-1]),
                     *(size(None if arm[key] is None else arm[key] / 1e6) for key in ("memory", "gpu_memory"))])
    service = "; CUDA's multi-process service is running, so processes use it" if result["mps_running"] else ""
    heads = ("", "total", "of one by one", "share of each", "lowest/highest", "start", "memory", "GPU memory")
    return "\n".join([f"{result['each']} × ({result['train']}), data={result['data']}, {result['at_a_time']} at a "
                      f"time, {result['environment']['threads']} torch threads, on "
                      f"{result['environment']['device']}{service}", "", table(heads, rows), "", NOTES])
