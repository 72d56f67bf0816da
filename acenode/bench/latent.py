"""`acenode bench latent`: a training batch of PhysioNet's shape, every record on its own times, against the union grid.

With `--device cuda` a training batch there, part by part (`acenode.bench.latent_parts`).

Ratios of medians, the contestants taking turns in one process. The three compute the same loss of the same model: on
the union grid to rounding, on their own times with the protocol's Euler steps between them.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acenode import experiments
from acenode.accelerate.dispatch import ACCELERATED, Backend
from acenode.bench import union
from acenode.bench.turns import take_turns
from acenode.data.points import TimeSeries
from acenode.execution.environment import describe
from acenode.experiments.latent_methods import SeriesShape
from acenode.experiments.series_batches import Layout, Records, assemble
from acenode.experiments.series_task import CLASS_WEIGHT, SeriesTask, Splits
from acenode.models.latent.model import LatentODE
from acenode.training.task import Metric

LEARNED = 20  # steps before anything is measured
BATCH, POINTS, QUANTUM, VARIABLES, OBSERVED = 50, (75, 25, 138), 0.016, 41, 0.14  # of the real set's training batches


def run(options: Namespace) -> int:
    if options.device == "cuda":
        from acenode.bench import latent_parts

        return latent_parts.run(options)
    result = measure(options.repeats)
    print(json.dumps(result) if options.json else render(result))
    return 0


def records(count: int = BATCH, seed: int = 0) -> Records:
    """Records with PhysioNet's numbers of points, grid of times, variables and share of observed values."""
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


def task(method: str = "latent-ode", device: str = "cpu", backend: Backend = ACCELERATED, **given: Any) -> SeriesTask:
    """A method of the paper's size, with the same parameters for a seed, on such records."""
    config = experiments.get("physionet").configure(method, "full", device=device, **given)
    model = experiments.get("physionet").methods[method].build(SeriesShape(VARIABLES, "record"), config, backend)
    made = records(3 * BATCH)
    part = Splits(made.take(range(BATCH)), made.take(range(BATCH, 2 * BATCH)), made.take(range(2 * BATCH, 3 * BATCH)),
                  ("survived", "died"))
    return SeriesTask(config, part, model, "record", Metric("auc"), torch.device(device))


def contestants(made: SeriesTask) -> dict[str, Callable[[], Tensor]]:
    """Each makes its batch from the records and gives the loss."""
    chosen, layout = made.splits.train, made.layout
    noise = made.batches.batch(0, 0).noise
    labels = torch.tensor([float(label) for label in chosen.labels])
    model = made.model
    assert isinstance(model, LatentODE)
    assert noise is not None

    def product(layout: Layout) -> Tensor:
        return made.loss(assemble(chosen, layout, noise, 0.0), detach_attention=False).task

    return {"union grid, plain": lambda: union.loss(model, chosen.series, labels, noise, CLASS_WEIGHT),
            "union grid": lambda: product(replace(layout, union=True)),
            "own times": lambda: product(layout)}


def measure(repeats: int) -> dict[str, Any]:
    made = task()
    made.model.train()
    optimiser = torch.optim.Adamax(made.model.parameters(), lr=1e-2)
    for _ in range(LEARNED):  # so that the encoder says something, and a wrong one would show in the loss
        optimiser.zero_grad()
        made.loss(made.batch(0, 0), detach_attention=False).task.backward()
        optimiser.step()
    turns = take_turns({name: (made.model, loss) for name, loss in contestants(made).items()}, repeats)
    medians = turns.seconds
    own = assemble(made.splits.train, made.layout, None, 0.0).schedule
    assert own is not None
    return {"device": describe(torch.device("cpu")), "seconds": medians, "losses": turns.losses, "rows": len(own.dt),
            "union_times": len(np.unique(np.concatenate([r.t for r in made.splits.train.series]))),
            "ratio": medians["union grid, plain"] / medians["own times"]}


def render(result: dict[str, Any]) -> str:
    fastest = result["seconds"]["own times"]
    lines = [f"Latent-ODE, a training batch of {BATCH} records: {result['union_times']} distinct times, "
             f"{result['rows']} rows on their own", ""]
    lines += [f"{name:<20}{s:>9.3f} s   {s / fastest:>6.1f}×   loss {result['losses'][name]:.7g}"
              for name, s in result["seconds"].items()]
    return "\n".join([*lines, "", f"own times against the plain union grid: {result['ratio']:.1f}× (at least 10×)"])
