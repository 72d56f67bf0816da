"""`acenode bench latent`: one PhysioNet-sized training batch, each record on its own times, against a union time grid.

Reports the median time and the loss of three implementations of one model, timed in turns in one process. The two on
the union grid have the same loss up to rounding; on own times the encoder takes other Euler steps between points.
With `--device cuda`, `latent_profile` times the parts of a batch on the GPU instead.
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

from acenode.bench import latent_baseline, latent_profile
from acenode.bench.interleave import time_interleaved
from acenode.bench.latent_workload import BATCH, latent_task
from acenode.execution.environment import describe
from acenode.experiments.series_batches import Layout, assemble
from acenode.experiments.series_task import CLASS_WEIGHT, SeriesTask
from acenode.models.latent.latent_ode import LatentODE

TRAINING_STEPS = 20  # before anything is measured


def run(options: Namespace) -> int:
    """Measure and print."""
    if options.device == "cuda":
        return latent_profile.run(options)
    result = measure(options.repeats)
    print(json.dumps(result) if options.json else render(result))
    return 0


def implementations(made: SeriesTask) -> dict[str, Callable[[], Tensor]]:
    """Return functions that assemble the batch from the records and compute the loss."""
    chosen, layout = made.splits.train, made.layout
    noise = made.batches.batch(0, 0).noise
    labels = torch.tensor([float(label) for label in chosen.labels])
    model = made.model
    assert isinstance(model, LatentODE)
    assert noise is not None

    def ours(layout: Layout) -> Tensor:
        return made.loss(assemble(chosen, layout, noise, 0.0), detach_attention=False).task

    return {"union grid, baseline": lambda: latent_baseline.loss(model, chosen.series, labels, noise, CLASS_WEIGHT),
            "union grid": lambda: ours(replace(layout, union=True)),
            "own times": lambda: ours(layout)}


def measure(repeats: int) -> dict[str, Any]:
    """Train for a few steps, then time every implementation."""
    made = latent_task()
    made.model.train()
    optimiser = torch.optim.Adamax(made.model.parameters(), lr=1e-2)
    for _ in range(TRAINING_STEPS):  # a trained encoder matters to the loss, so that a wrong implementation would show
        optimiser.zero_grad()
        made.loss(made.batch(0, 0), detach_attention=False).task.backward()
        optimiser.step()
    timings = time_interleaved({name: (made.model, loss) for name, loss in implementations(made).items()}, repeats)
    medians = timings.seconds
    own = assemble(made.splits.train, made.layout, None, 0.0).schedule
    assert own is not None
    return {"device": describe(torch.device("cpu")), "seconds": medians, "losses": timings.losses, "rows": len(own.dt),
            "union_times": len(np.unique(np.concatenate([r.t for r in made.splits.train.series]))),
            "ratio": medians["union grid, baseline"] / medians["own times"]}


def render(result: dict[str, Any]) -> str:
    """Format the result as a table."""
    fastest = result["seconds"]["own times"]
    lines = [f"Latent-ODE, a training batch of {BATCH} records: {result['union_times']} distinct times, "
             f"{result['rows']} steps on own times", ""]
    lines += [f"{name:<20}{s:>9.3f} s   {s / fastest:>6.1f}×   loss {result['losses'][name]:.7g}"
              for name, s in result["seconds"].items()]
    return "\n".join([*lines, "", f"own times, speedup over the baseline: {result['ratio']:.1f}× (target ≥ 10×)"])
