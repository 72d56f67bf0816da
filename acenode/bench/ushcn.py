"""`acenode bench ushcn`: a training batch of USHCN's shape, GRU-ODE-Bayes and ACE, against one clock for the batch.

Ratios of medians, the contestants taking turns in one process: loss and gradient of one pass, and of ACE's two, one for
each phase of Algorithm 1. The plain and the fused GRU-ODE-Bayes compute the same loss of the same model; dropout is
off, so that it shows.
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
from acenode.bench.interleave import apart, take_turns
from acenode.bench.ushcn_baseline import Plain
from acenode.bench.ushcn_workload import BATCH, ushcn_series
from acenode.data.points import TimeSeries, pad
from acenode.data.schedule import make_schedule
from acenode.data.sporadic import SporadicBatch
from acenode.data.ushcn import END, VARIABLES
from acenode.execution.environment import backend_of, describe
from acenode.models.forecast.gaussian import gaussian_nll
from acenode.models.forecast.gru_ode_bayes import GRUODEBayes
from acenode.models.initialise import initialise
from acenode.training.passes import train_only

PLAIN, OWN, ACE, PHASES = "gru-ode-bayes, one clock, plain", "gru-ode-bayes", "ace", "ace, both phases"
TARGETS = {OWN: 5.0, ACE: 3.0}  # at least so much faster than plain; a pass at most so many times that


def run(options: Namespace) -> int:
    result = measure(options.repeats)
    print(json.dumps(result) if options.json else render(result))
    return 0


def model_of(method: str) -> GRUODEBayes:
    """Of the paper's size, always with the same parameters."""
    experiment = experiments.get("ushcn")
    config = experiment.configure(method, "full", device="cpu", dropout=0.0)
    model = experiment.methods[method].build(len(VARIABLES), config, backend_of(config.get("engine")))
    initialise(model, 0)
    return model


def contestants(made: list[TimeSeries]) -> dict[str, tuple[GRUODEBayes, Callable[[], Tensor]]]:
    """Each makes its batch from the series and gives the loss."""
    plain, ace = model_of("gru-ode-bayes"), model_of("ace")
    clock = Plain(plain)

    def own(model: GRUODEBayes) -> Tensor:
        seen = pad(made)
        batch = SporadicBatch(seen, seen, END, schedule=make_schedule(seen, None, model.step_size))
        said = model(batch)
        total = (gaussian_nll(seen.x, said.mean, said.logvar) * seen.m).sum()
        assert said.extra is not None
        return (total + said.extra) / len(made)

    def phases() -> Tensor:
        """The first with its gradient, then the loss of the second."""
        assert ace.attention is not None
        g = list(ace.attention.parameters())
        everything, others = apart(ace, g)
        with train_only(others, everything):
            own(ace).backward()
        with train_only(g, everything):
            return own(ace)

    return {PLAIN: (plain, lambda: clock.loss(made, plain.step_size)), OWN: (plain, lambda: own(plain)),
            ACE: (ace, lambda: own(ace)), PHASES: (ace, phases)}


def measure(repeats: int, count: int = BATCH) -> dict[str, Any]:
    made = ushcn_series(count)
    turns = take_turns(contestants(made), repeats)
    plain, own, ace, phases = (turns.seconds[name] for name in (PLAIN, OWN, ACE, PHASES))
    return {"device": describe(torch.device("cpu")), "seconds": turns.seconds, "losses": turns.losses, "series": count,
            "times": len(np.unique(np.concatenate([r.t for r in made]))), "speedup": plain / own,
            "ace": ace / own, "phases": phases / own, "targets": TARGETS}


def render(result: dict[str, Any]) -> str:
    lines = [f"USHCN, passes over a batch of {result['series']} series, {result['times']} distinct times", ""]
    lines += [f"{name:<34}{s:>9.2f} s   loss {result['losses'][name]:.7g}" for name, s in result["seconds"].items()]
    return "\n".join([*lines, "", f"gru-ode-bayes against one clock for the batch: {result['speedup']:.1f}× "
                      f"(at least {TARGETS[OWN]:g}×)",
                      f"a pass of ace against one of gru-ode-bayes: {result['ace']:.1f} times as long (at most "
                      f"{TARGETS[ACE]:g}); both phases: {result['phases']:.1f} times"])
