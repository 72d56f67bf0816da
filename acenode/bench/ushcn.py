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
from acenode.accelerate.dispatch import ACCELERATED, Backend
from acenode.bench.shared_clock import Plain
from acenode.bench.turns import apart, take_turns
from acenode.data.folds import ForecastParts
from acenode.data.points import TimeSeries, pad
from acenode.data.schedule import make_schedule
from acenode.data.series import SeriesArrays
from acenode.data.splits import Parts
from acenode.data.sporadic import SporadicBatch
from acenode.data.ushcn import CUT, DAYS, END, VARIABLES
from acenode.execution.environment import backend_of, describe
from acenode.experiments.forecast_task import ForecastTask
from acenode.models.forecast.gaussian import gaussian_nll
from acenode.models.forecast.gru_ode_bayes import GRUODEBayes
from acenode.models.initialise import initialise
from acenode.training.passes import train_only

BATCH, TIMES = 300, 315  # of the protocol, and the mean number of observation times of a series
DAY_COUNT, MORE = 1_491, 0.04  # days in the set, and the chance of each further variable at a time
HELD = 6  # series beside those of training
PLAIN, OWN, ACE, PHASES = "gru-ode-bayes, one clock, plain", "gru-ode-bayes", "ace", "ace, both phases"
TARGETS = {OWN: 5.0, ACE: 3.0}  # at least so much faster than plain; a pass at most so many times that


def run(options: Namespace) -> int:
    result = measure(options.repeats)
    print(json.dumps(result) if options.json else render(result))
    return 0


def records(count: int = BATCH, seed: int = 0) -> list[TimeSeries]:
    """Series with USHCN's number and grid of times: a time for every day, rounded to tenths."""
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


def model_of(method: str) -> GRUODEBayes:
    """Of the paper's size, always with the same parameters."""
    experiment = experiments.get("ushcn")
    config = experiment.configure(method, "full", device="cpu", dropout=0.0)
    model = experiment.methods[method].build(len(VARIABLES), config, backend_of(config.get("engine")))
    initialise(model, 0)
    return model


def arrays(made: list[TimeSeries]) -> SeriesArrays:
    """The series as a data set."""
    lengths = [len(r.t) for r in made]
    return SeriesArrays(
        ids=np.arange(len(made)).astype(str), offsets=np.cumsum([0, *lengths]).astype(np.int64),
        t=np.concatenate([r.t for r in made]), x=np.concatenate([r.x for r in made]),
        m=np.concatenate([r.m for r in made]) > 0, label=np.full(len(made), np.nan, np.float32), names=VARIABLES,
        classes=(), group=np.zeros(len(made), np.int64), unit="", horizon=END)


def task(method: str, device: str = "cpu", backend: Backend = ACCELERATED, count: int = BATCH,
         **given: Any) -> ForecastTask:
    """A method of the paper's size that trains on such series, one batch of them."""
    experiment = experiments.get("ushcn")
    config = experiment.configure(method, "full", device=device, **given)
    train, held = np.arange(count), np.arange(count, count + HELD)
    return ForecastTask(config, arrays(records(count + HELD)), ForecastParts(Parts(train, held, held), 0), CUT,
                        experiment.methods[method].build(len(VARIABLES), config, backend), experiment.metric,
                        torch.device(device))


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
    made = records(count)
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
