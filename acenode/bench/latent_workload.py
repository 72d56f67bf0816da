"""Synthetic records of PhysioNet's shape and windows of Human Activity's, and tasks that train on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from acenode import experiments
from acenode.backend import ACCELERATED, Backend
from acenode.data.points import TimeSeries
from acenode.experiments.latent_methods import SeriesShape
from acenode.experiments.series_batches import Records, SeriesSplits
from acenode.experiments.series_task import SeriesTask
from acenode.training.task import Metric

# as in training batches of the real set: records, points per record (mean, deviation, most), hours between possible
# times, variables, and the share of values observed at a point
BATCH, POINTS, QUANTUM, VARIABLES, OBSERVED = 50, (75, 25, 138), 0.016, 41, 0.14


# windows of Human Activity: points, tags of which one is read at a point, coordinates of a tag, classes, seconds
WINDOW_POINTS, TAGS, COORDINATES, CLASSES, SECONDS = 50, 4, 3, 7, 5.4


def physionet_records(count: int = BATCH, seed: int = 0) -> Records:
    """Generate records with PhysioNet's number of points, time grid, variables and share of observed values."""
    rng, series = np.random.default_rng(seed), list[TimeSeries]()
    mean, spread, most = POINTS
    for _ in range(count):
        n = int(np.clip(rng.normal(mean, spread), 5, most))
        quanta = np.unique(np.append(0, (rng.uniform(0, 48, n - 1) / QUANTUM).round()))
        m = rng.random((len(quanta), VARIABLES)) < OBSERVED
        m[np.arange(len(m)), rng.integers(0, VARIABLES, len(m))] = True
        t = (quanta * QUANTUM / 48).clip(0, 1).astype(np.float32)
        series.append(TimeSeries(t, (rng.uniform(0, 0.4, m.shape) * m).astype(np.float32), m.astype(np.float32)))
    labels = [np.asarray(float(rng.random() < 0.14)) for _ in range(count)]
    return Records(series, labels, [str(i) for i in range(count)], 48.0, "h", tuple(map(str, range(VARIABLES))))


def latent_task(method: str = "latent-ode", device: str = "cpu", backend: Backend = ACCELERATED,
                **given: Any) -> SeriesTask:
    """Make a task of the paper's size on such records; a seed fixes the parameters."""
    experiment = experiments.get("physionet")
    if "engine" not in experiment.methods[method].uses:
        given.pop("engine", None)
    config = experiment.configure(method, "full", device=device, **given)
    model = experiment.methods[method].build(SeriesShape(VARIABLES, "record"), config, backend)
    made = physionet_records(3 * BATCH)
    train, validation, test = (made.take(range(n * BATCH, (n + 1) * BATCH)) for n in range(3))
    part = SeriesSplits(train, validation, test, ("survived", "died"))
    return SeriesTask(config, part, model, "record", Metric("auc"), torch.device(device))


def activity_windows(count: int = BATCH, seed: int = 0) -> Records:
    """Generate windows with Human Activity's number of points, tags and classes."""
    rng, series, labels = np.random.default_rng(seed), list[TimeSeries](), list[np.ndarray]()
    for _ in range(count):
        tag = rng.integers(0, TAGS, WINDOW_POINTS)
        m = np.repeat(np.eye(TAGS, dtype=np.float32)[tag], COORDINATES, 1)  # (points, coordinates of all tags)
        t = np.sort(rng.random(WINDOW_POINTS)).astype(np.float32)
        series.append(TimeSeries(t, rng.uniform(0, 4, m.shape).astype(np.float32) * m, m))
        labels.append(np.repeat(rng.integers(0, CLASSES, 2), WINDOW_POINTS // 2))  # one activity, then another
    names = tuple(f"{tag}{axis}" for tag in range(TAGS) for axis in "xyz")
    return Records(series, labels, [str(i) for i in range(count)], SECONDS, "s", names)


def activity_task(method: str = "latent-ode", device: str = "cpu", backend: Backend = ACCELERATED,
                  **given: Any) -> SeriesTask:
    """Make a task of the paper's size on such windows; a seed fixes the parameters."""
    experiment = experiments.get("activity")
    config = experiment.configure(method, "full", device=device, **given)
    model = experiment.methods[method].build(SeriesShape(TAGS * COORDINATES, "points", CLASSES), config, backend)
    made = activity_windows(3 * BATCH)
    train, validation, test = (made.take(range(n * BATCH, (n + 1) * BATCH)) for n in range(3))
    part = SeriesSplits(train, validation, test, tuple(map(str, range(CLASSES))))
    return SeriesTask(config, part, model, "points", Metric("accuracy"), torch.device(device))
