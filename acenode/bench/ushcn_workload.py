"""Synthetic series of USHCN's shape, and a task that trains on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from acenode import experiments
from acenode.backend import ACCELERATED, Backend
from acenode.data.points import TimeSeries
from acenode.data.series import SeriesArrays
from acenode.data.splits import ForecastParts, Parts
from acenode.data.ushcn import CUT, DAYS, END, VARIABLES
from acenode.experiments.forecast_task import ForecastTask

BATCH, TIMES = 300, 315  # the protocol's batch size, and the mean number of observation times of a series
DAY_COUNT, MORE = 1_491, 0.04  # days in the data set, and the probability of each further variable at a time
HELD = 6  # series for validation and testing


def ushcn_series(count: int = BATCH, seed: int = 0) -> list[TimeSeries]:
    """Generate series with USHCN's number of observation times and its time grid: days, rounded to tenths of a unit."""
    rng, found = np.random.default_rng(seed), list[TimeSeries]()
    days = np.minimum(np.round(np.arange(DAY_COUNT) / DAYS, 1), END)
    for _ in range(count):
        n = int(np.clip(rng.normal(TIMES, 40), 60, 500))
        t = np.sort(rng.choice(days, n, replace=False))
        m = rng.random((n, len(VARIABLES))) < MORE
        m[np.arange(n), rng.integers(0, len(VARIABLES), n)] = True
        found.append(TimeSeries(t.astype(np.float32), (rng.standard_normal(m.shape) * m).astype(np.float32),
                            m.astype(np.float32)))
    return found


def as_data_set(made: list[TimeSeries]) -> SeriesArrays:
    """Return the series as a data set."""
    lengths = [len(r.t) for r in made]
    return SeriesArrays(
        ids=np.arange(len(made)).astype(str), offsets=np.cumsum([0, *lengths]).astype(np.int64),
        t=np.concatenate([r.t for r in made]), x=np.concatenate([r.x for r in made]),
        m=np.concatenate([r.m for r in made]) > 0, label=np.full(len(made), np.nan, np.float32), names=VARIABLES,
        classes=(), group=np.zeros(len(made), np.int64), unit="", horizon=END)


def ushcn_task(method: str, device: str = "cpu", backend: Backend = ACCELERATED, count: int = BATCH,
               **given: Any) -> ForecastTask:
    """Make a task of the paper's size that trains on one batch of such series."""
    experiment = experiments.get("ushcn")
    if "engine" not in experiment.methods[method].uses:
        given.pop("engine", None)
    config = experiment.configure(method, "full", device=device, **given)
    train, held = np.arange(count), np.arange(count, count + HELD)
    data = as_data_set(ushcn_series(count + HELD))
    model = experiment.methods[method].build(len(VARIABLES), config, backend)
    return ForecastTask(config, data, ForecastParts(Parts(train, held, held), 0), CUT, model, experiment.metric,
                        torch.device(device))
