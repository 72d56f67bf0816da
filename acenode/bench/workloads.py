"""Models of each family at the paper's size with synthetic data, trained as `acenode train` does; `acenode bench gpu`.

An iteration assembles and transfers a batch, runs both phases of Algorithm 1 (one pass for methods without attention)
and updates the parameters. All rows are measured in one process, one after another; five runs at once are in threads.
"""

from __future__ import annotations

import gc
import math
import statistics
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from acenode import experiments
from acenode.backend import ACCELERATED, Backend
from acenode.bench import REPEATS, Row, chosen, measured, progress, seconds_of
from acenode.config import Config
from acenode.data.images import ImageArrays
from acenode.data.points import TimeSeries
from acenode.data.series import SeriesArrays
from acenode.data.splits import Parts
from acenode.data.ushcn import CUT, DAYS, END, VARIABLES
from acenode.errors import UserError
from acenode.execution.engine_choice import EngineChoice, choose_engine
from acenode.execution.environment import describe, run_context
from acenode.experiments.base import LabTask
from acenode.experiments.forecast_task import ForecastTask
from acenode.experiments.image_task import ImageTask
from acenode.experiments.images import MNIST
from acenode.experiments.series_batches import Records, SeriesSplits
from acenode.experiments.series_task import SeriesTask
from acenode.models.latent import SeriesShape
from acenode.training.task import Metric, SilentListener
from acenode.training.trainer import Trainer

IMAGE_BATCH, SERIES_BATCH, SPORADIC_BATCH = 128, 50, 300  # of the protocols
FLOAT32 = "graph, float32"  # convolutions in full single precision; torch's default is TF32


def configured(experiment: str, method: str, device: str, given: Mapping[str, Any]) -> Config:
    """Return the paper's configuration; `engine` is left out where a method has no such setting."""
    entry = experiments.get(experiment)
    uses = entry.methods[method].uses
    return entry.configure(method, "full", device=device,
                           **{key: value for key, value in given.items() if key != "engine" or key in uses})


def image_task(method: str, device: str = "cpu", backend: Backend = ACCELERATED, **given: Any) -> ImageTask:
    """Make a task of MNIST's size on a random pattern per class with noise, so that there is something to learn."""
    config = configured("mnist", method, device, {**given, "batch_size": IMAGE_BATCH})
    rng, count = np.random.default_rng(0), 8 * IMAGE_BATCH + 100
    y = rng.integers(0, 10, count, dtype=np.uint8)
    x = (160 * rng.random((10, 28, 28, 1))[y] + 95 * rng.random((count, 28, 28, 1))).astype(np.uint8)
    images = ImageArrays(x, y, x[:128], y[:128], tuple("0123456789"))
    return ImageTask(config, images, 100, MNIST.build(config, backend), pad=4, device=torch.device(device))


def observed(t: np.ndarray, m: np.ndarray, draw: Callable[..., Any]) -> TimeSeries:
    """Return a series with drawn values where something is observed."""
    return TimeSeries.single(t, draw(m.shape).astype(np.float32) * m, m)


def points(rng: np.random.Generator, times: int, variables: int, share: float) -> np.ndarray:
    """Return which values are observed, at least one at each time."""
    m = rng.random((times, variables)) < share
    m[np.arange(times), rng.integers(0, variables, times)] = True
    return m


def physionet_records(count: int, seed: int = 0) -> Records:
    """Generate records with PhysioNet's number of points, time grid, variables and share of observed values."""
    rng, series, variables, quantum = np.random.default_rng(seed), list[TimeSeries](), 41, 0.016
    for _ in range(count):
        n = int(np.clip(rng.normal(75, 25), 5, 138))
        quanta = np.unique(np.append(0, (rng.uniform(0, 48, n - 1) / quantum).round()))
        series.append(observed((quanta * quantum / 48).clip(0, 1), points(rng, len(quanta), variables, 0.14),
                               partial(rng.uniform, 0, 0.4)))
    labels = [np.asarray(float(rng.random() < 0.14)) for _ in range(count)]
    return Records(series, labels, [str(i) for i in range(count)], 48.0, "h", tuple(map(str, range(variables))))


def activity_windows(count: int, seed: int = 0) -> Records:
    """Generate windows with Human Activity's 50 points of one of four tags each, and two of seven classes."""
    rng, series, labels = np.random.default_rng(seed), list[TimeSeries](), list[np.ndarray]()
    for _ in range(count):
        m = np.repeat(np.eye(4, dtype=np.float32)[rng.integers(0, 4, 50)], 3, 1)  # (points, coordinates of all tags)
        series.append(observed(np.sort(rng.random(50)), m, partial(rng.uniform, 0, 4)))
        labels.append(np.repeat(rng.integers(0, 7, 2), 25))  # one activity, then another
    names = tuple(f"{tag}{axis}" for tag in range(4) for axis in "xyz")
    return Records(series, labels, [str(i) for i in range(count)], 5.4, "s", names)


def latent_task(method: str = "latent-ode", device: str = "cpu", backend: Backend = ACCELERATED, *,
                experiment: str = "physionet", **given: Any) -> SeriesTask:
    """Make a task of PhysioNet's or Human Activity's size; a seed fixes the parameters."""
    shape, records, classes, metric = {
        "physionet": (SeriesShape(41, "record"), physionet_records, ("survived", "died"), "auc"),
        "activity": (SeriesShape(12, "points", 7), activity_windows, tuple("0123456"), "accuracy")}[experiment]
    config, made = configured(experiment, method, device, given), records(3 * SERIES_BATCH)
    model = experiments.get(experiment).methods[method].build(shape, config, backend)
    train, held, test = (made.take(range(n * SERIES_BATCH, (n + 1) * SERIES_BATCH)) for n in range(3))
    assert shape.classify is not None
    return SeriesTask(config, SeriesSplits(train, held, test, classes), model, shape.classify, Metric(metric),
                      torch.device(device))


def ushcn_series(count: int = SPORADIC_BATCH, seed: int = 0) -> list[TimeSeries]:
    """Generate series with USHCN's number of observation times and its time grid: days, rounded to tenths of a unit."""
    rng, found = np.random.default_rng(seed), list[TimeSeries]()
    days = np.minimum(np.round(np.arange(1_491) / DAYS, 1), END)
    for _ in range(count):
        n = int(np.clip(rng.normal(315, 40), 60, 500))
        found.append(observed(np.sort(rng.choice(days, n, replace=False)), points(rng, n, len(VARIABLES), 0.04),
                              rng.standard_normal))
    return found


def ushcn_task(method: str, device: str = "cpu", backend: Backend = ACCELERATED, count: int = SPORADIC_BATCH,
               **given: Any) -> ForecastTask:
    """Make a task of USHCN's size that trains on one batch of such series."""
    experiment, config = experiments.get("ushcn"), configured("ushcn", method, device, given)
    made = ushcn_series(count + 6)
    data = SeriesArrays(
        ids=np.arange(len(made)).astype(str), offsets=np.cumsum([0, *(len(r.t) for r in made)]).astype(np.int64),
        t=np.concatenate([r.t for r in made]), x=np.concatenate([r.x for r in made]),
        m=np.concatenate([r.m for r in made]) > 0, label=np.full(len(made), np.nan, np.float32), names=VARIABLES,
        classes=(), group=np.zeros(len(made), np.int64), unit="", horizon=END)
    held = np.arange(count, count + 6)
    model = experiment.methods[method].build(len(VARIABLES), config, backend)
    return ForecastTask(config, data, Parts(np.arange(count), held, held), CUT, model,
                        experiment.metric, torch.device(device))


# Families and their training ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Family:
    """Methods that are trained alike, and the engines to compare, the one that `auto` selects last."""

    batch: int
    methods: tuple[str, ...]
    engines: tuple[str, ...]
    make: Callable[..., LabTask]  # (method, device, backend=, engine=, seed=)


FAMILIES: dict[str, Family] = {
    "images": Family(IMAGE_BATCH, ("odenet", "ace"), ("reference", "native", FLOAT32, "graph"), image_task),
    "baselines": Family(IMAGE_BATCH, ("resnet", "rknet", "augmented"), ("native", "graph"), image_task),
    "series": Family(SERIES_BATCH, ("latent-ode", "ace", "gru-d"), ("reference", "auto"), latent_task),
    "windows": Family(SERIES_BATCH, ("latent-ode", "ace"), ("native", "auto"),
                      partial(latent_task, experiment="activity")),
    "sporadic": Family(SPORADIC_BATCH, ("gru-ode-bayes", "ace", "t-lstm"), ("reference", "auto"), ushcn_task),
}


@contextmanager
def trainer_for(make: Callable[..., Any], engine: str, device: torch.device, seed: int = 0) -> Iterator[Trainer]:
    """Set up training as `acenode train` does, on an own stream, with an engine; lines of the log are progress.

    Args:
        make: makes the task from device, backend=, engine= and seed=.
        engine: of the table: reference, native, graph, `FLOAT32` or auto.
        device: where to train.
        seed: of the parameters and batches.

    Raises:
        UserError: the engine could not be used, or not for all the work.
    """
    asked = {"native": "auto", FLOAT32: "graph"}.get(engine, engine)  # native is what auto does without CUDA graphs
    fallbacks = list[str]()
    with run_context(device, engine, progress) as backend:
        task = make(device=device.type, backend=backend, engine=asked, seed=seed)
        choice = EngineChoice("native") if engine == "native" else choose_engine(task, device, asked, backend)
        if asked == "graph" and choice.fallback is not None:
            raise UserError(choice.fallback)
        if choice.engine is not None:
            choice.engine.on_fallback = fallbacks.append
        task.model.train()
        try:
            yield Trainer(task, task.recipe(), SilentListener(), choice.engine)
            if fallbacks:
                raise UserError(fallbacks[0])
        finally:
            if choice.engine is not None:
                choice.engine.close()


def iterate(trainer: Trainer, count: int = 1) -> list[Row]:
    """Train `count` iterations, wait for the GPU, and return their records."""
    records = []
    for _ in range(count):
        trainer.iteration = (trainer.iteration + 1) % trainer.task.iterations
        records.append(trainer.train_batch())
    if torch.cuda.is_available():
        torch.cuda.current_stream().synchronize()
    return records


# Every family with each engine, alone and beside others -------------------------------------------------------------

THREADS = 5  # runs at once
WARM, GROUP = 3, 5  # warm-up iterations, and iterations per timing
SLOW = 1.0  # seconds; a slower iteration is timed once, and not beside other runs
BUDGET, MOST = 3.0, 40  # seconds and iterations of each run, with several at once
PATIENCE = 300.0  # seconds for the other runs
NOTES = f"""\
1 run: median seconds of one training iteration (both phases of Algorithm 1 for ace). {THREADS} runs: runs in threads of
one process, wall time divided by all their iterations. NFE: evaluations of f per forward pass. memory MB: peak GPU
memory of torch. setup: seconds to build the model and for the first iteration, with compiling and recording not done by
an earlier row. Engines: reference uses torchdiffeq and plain torch; native uses our Runge–Kutta steps; graph records
CUDA graphs, with convolutions in TF32 (torch's default) or float32; auto uses our own kernels and recorded steps."""


def gpu(options: Namespace) -> Row:
    """Measure the chosen families."""
    names = chosen("family", options.families, FAMILIES)
    if not torch.cuda.is_available():
        raise UserError("bench gpu needs a CUDA device, and there is none here")
    device = torch.device("cuda")
    rows = [measure_row(name, method, engine, device) for name in names
            for method in FAMILIES[name].methods for engine in FAMILIES[name].engines]
    return {"environment": describe(device), "rows": rows, "notes": NOTES}


def measure_row(name: str, method: str, engine: str, device: torch.device) -> Row:
    """Measure one method with one engine, alone and, if that is quick, beside other runs."""
    family = FAMILIES[name]
    train = partial(trainer_for, partial(family.make, method), engine, device)

    def measure() -> Row:
        with torch.backends.cudnn.flags(enabled=True, deterministic=device.type == "cuda",
                                        allow_tf32=engine != FLOAT32):
            row = measure_alone(train, device, family.batch)
            if engine != "reference" and row["1 run"] < SLOW:
                row[f"{THREADS} runs"] = measure_at_once(train, row["1 run"])
        return row

    return measured({"family": name, "method": method, "engine": engine}, measure)


def measure_alone(train: Callable[..., Any], device: torch.device, batch: int) -> Row:
    """Measure the median time of an iteration, the evaluations and memory of one run, and its setup time."""
    gc.collect()  # free what the row before left
    held = 0
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_reserved()
    begun, records = time.perf_counter(), list[Row]()

    def seconds(count: int = 1) -> float:
        return seconds_of(lambda: records.extend(iterate(trainer, count))) / count

    with train() as trainer:
        seconds()
        ready, times = time.perf_counter() - begun, [seconds()]
        if times[0] < SLOW:
            seconds(WARM)
            times = [seconds(GROUP) for _ in range(REPEATS)]
        peak = (torch.cuda.max_memory_reserved() - held) / 1e6 if device.type == "cuda" else None  # with graph pools
    if not math.isfinite(float(records[-1]["L_h"])):
        raise UserError(f"the loss became {float(records[-1]['L_h'])}")
    evaluations = [r["nfe_forward"] for r in records[1:][-GROUP:] if "nfe_forward" in r]  # none without a solver
    median = statistics.median(times)
    return {"1 run": median, f"{THREADS} runs": None, "NFE": statistics.mean(evaluations) if evaluations else None,
            "samples/s": batch / median, "memory MB": peak, "setup": ready}


def measure_at_once(train: Callable[..., Any], seconds: float) -> float:
    """Train several runs, in a thread each with a seed of its own; return wall time divided by all their iterations.

    Args:
        train: returns a context with a trainer, from seed=.
        seconds: the time of an iteration of one run alone, which decides how many iterations are measured.
    """
    count, together = max(2, min(MOST, int(BUDGET / (THREADS * seconds)))), threading.Barrier(THREADS, timeout=PATIENCE)

    def run(seed: int) -> tuple[float, float]:
        try:
            with train(seed=seed) as trainer:
                iterate(trainer, WARM)
                together.wait()
                begun = time.perf_counter()
                iterate(trainer, count)
                ended = time.perf_counter()
                together.wait()
                return begun, ended
        except Exception:
            together.abort()  # the others need not wait for this one
            raise

    gc.collect()
    with ThreadPoolExecutor(THREADS) as pool:
        begun, ended = zip(*pool.map(run, range(THREADS)), strict=True)
    return (max(ended) - min(begun)) / (THREADS * count)
