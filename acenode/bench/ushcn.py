"""`acenode bench ushcn`: one USHCN-sized training batch on the CPU, against one time grid for the batch.

Reports the median time of loss and gradient of one pass of GRU-ODE-Bayes and of ACE, and of ACE's two passes of
Algorithm 1, timed in turns in one process. Baseline and GRU-ODE-Bayes compute the same loss; dropout is off, so that
the losses can be compared.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acenode import experiments
from acenode.bench.interleave import split_parameters, time_interleaved
from acenode.bench.ushcn_baseline import DirectGRUODEBayes
from acenode.bench.ushcn_workload import BATCH, ushcn_series
from acenode.data.points import TimeSeries, pad
from acenode.data.schedule import SporadicBatch, make_schedule
from acenode.data.ushcn import END, VARIABLES
from acenode.execution.environment import backend_of, describe
from acenode.models.forecast.gaussian import gaussian_nll
from acenode.models.forecast.gru_ode_bayes import GRUODEBayes
from acenode.models.layers import initialise
from acenode.training.passes import train_only

BASELINE, OURS, ACE, PHASES = "gru-ode-bayes, baseline", "gru-ode-bayes", "ace", "ace, both phases"
TARGETS = {OURS: 5.0, ACE: 3.0}  # least speedup over the baseline; longest pass of ACE, in passes of OURS


def run(options: Namespace) -> int:
    """Measure and print."""
    result = measure(options.repeats)
    print(json.dumps(result) if options.json else render(result))
    return 0


def model_of(method: str) -> GRUODEBayes:
    """Build a model of the paper's size, always with the same parameters."""
    experiment = experiments.get("ushcn")
    config = experiment.configure(method, "full", device="cpu", dropout=0.0)
    model = experiment.methods[method].build(len(VARIABLES), config, backend_of(config.get("engine")))
    initialise(model, 0)
    return model


def implementations(made: list[TimeSeries]) -> dict[str, tuple[GRUODEBayes, Callable[[], Tensor]]]:
    """Return models with functions that assemble the batch from the series and compute the loss."""
    plain, ace = model_of("gru-ode-bayes"), model_of("ace")
    baseline = DirectGRUODEBayes(plain)

    def loss_of(model: GRUODEBayes) -> Tensor:
        seen = pad(made)
        batch = SporadicBatch(seen, seen, END, schedule=make_schedule(seen, None, model.step_size))
        forecast = model(batch)
        total = (gaussian_nll(seen.x, forecast.mean, forecast.logvar) * seen.m).sum()
        assert forecast.extra is not None
        return (total + forecast.extra) / len(made)

    def phases() -> Tensor:
        """Compute the first phase's gradient, then return the second phase's loss."""
        assert ace.attention is not None
        g = list(ace.attention.parameters())
        everything, others = split_parameters(ace, g)
        with train_only(others, everything):
            loss_of(ace).backward()
        with train_only(g, everything):
            return loss_of(ace)

    return {BASELINE: (plain, lambda: baseline.loss(made, plain.step_size)), OURS: (plain, lambda: loss_of(plain)),
            ACE: (ace, lambda: loss_of(ace)), PHASES: (ace, phases)}


def measure(repeats: int, count: int = BATCH) -> dict[str, Any]:
    """Time every implementation on one batch of `count` series."""
    made = ushcn_series(count)
    timings = time_interleaved(implementations(made), repeats)
    baseline, ours, ace, phases = (timings.seconds[name] for name in (BASELINE, OURS, ACE, PHASES))
    return {"device": describe(torch.device("cpu")), "seconds": timings.seconds, "losses": timings.losses,
            "series": count, "times": len(np.unique(np.concatenate([r.t for r in made]))), "speedup": baseline / ours,
            "ace": ace / ours, "phases": phases / ours, "targets": TARGETS}


def render(result: dict[str, Any]) -> str:
    """Format the result as a table."""
    lines = [f"USHCN, loss and gradient of a batch of {result['series']} series, {result['times']} distinct times", ""]
    lines += [f"{name:<34}{s:>9.2f} s   loss {result['losses'][name]:.7g}" for name, s in result["seconds"].items()]
    return "\n".join([*lines, "", f"gru-ode-bayes, speedup over the baseline: {result['speedup']:.1f}× "
                      f"(target ≥ {TARGETS[OURS]:g}×)",
                      f"one pass of ace / one pass of gru-ode-bayes: {result['ace']:.1f} (target ≤ {TARGETS[ACE]:g}); "
                      f"both phases: {result['phases']:.1f}"])
