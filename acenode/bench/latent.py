"""`acenode bench latent`: a training batch of PhysioNet's shape, every record on its own times, against the union grid.

With `--device cuda` a training batch there, part by part (`acenode.bench.latent_profile`).

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

from acenode.bench import latent_baseline, latent_profile
from acenode.bench.interleave import take_turns
from acenode.bench.latent_workload import BATCH, latent_task
from acenode.execution.environment import describe
from acenode.experiments.series_batches import Layout, assemble
from acenode.experiments.series_task import CLASS_WEIGHT, SeriesTask
from acenode.models.latent.model import LatentODE

LEARNED = 20  # steps before anything is measured


def run(options: Namespace) -> int:
    if options.device == "cuda":
        return latent_profile.run(options)
    result = measure(options.repeats)
    print(json.dumps(result) if options.json else render(result))
    return 0


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

    return {"union grid, plain": lambda: latent_baseline.loss(model, chosen.series, labels, noise, CLASS_WEIGHT),
            "union grid": lambda: product(replace(layout, union=True)),
            "own times": lambda: product(layout)}


def measure(repeats: int) -> dict[str, Any]:
    made = latent_task()
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
