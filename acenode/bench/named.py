"""`acenode bench named`: training iterations of ACE on named variables, with and without C, and of a large set.

An iteration has both phases of Algorithm 1 and the updates. The two implementations take turns in one process. The
large set has 50 variables, of which 100 points are seen and 100 forecast; an epoch of 5,000 series is projected from
its iterations. With `--device cuda`, torch's operations on the GPU are measured instead.
"""

from __future__ import annotations

import json
import statistics
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from acenode.backend import ACCELERATED, PLAIN, Backend
from acenode.bench.memory import peak_megabytes
from acenode.data.named_set import NamedSet, Record
from acenode.errors import UserError
from acenode.execution.environment import describe, device_of
from acenode.experiments.base import Experiment
from acenode.experiments.named import EXAMPLES, NamedSpec, experiment
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer

VARIABLES, TIMES, SERIES = 50, 200, 5_000
PLAIN_STEPS, FAST_STEPS = "torch's operations", "as trained"


def large_set(variables: int = VARIABLES, times: int = TIMES, count: int = 200) -> NamedSet:
    """Generate noisy oscillations, the first half of which is seen."""
    rng, t = np.random.default_rng(0), np.arange(float(times))
    frequency = rng.uniform(1, 3, variables)
    series = [Record.from_gaps(t, np.sin(6 * frequency * t[:, None] / times + rng.uniform(0, 6, variables))
                               + 0.1 * rng.normal(size=(times, variables))) for _ in range(count + 40)]
    index = np.arange(count + 40)
    return NamedSet(
        name="large", title="", note="", variables=tuple(f"v{i}" for i in range(variables)), units=("",) * variables,
        time_unit="h", time_origin="", ids=tuple(map(str, index)), series=tuple(series), task="forecast",
        given=times / 2, parts={"train": index[:count], "validation": index[count:-20], "test": index[-20:]},
        labels=None, classes=())


def large_experiment(source: NamedSet) -> Experiment:
    return experiment(NamedSpec(source.name, "", "", "", lambda root: source, "forecast"))


def trainer_of(entry: Experiment, device: torch.device, backend: Backend) -> Trainer:
    """Return a trainer of ACE with the default settings."""
    task = entry.make(entry.configure("ace", seed=0, device=device.type), Path(), device, backend)
    task.model.train()
    return Trainer(task, task.recipe(), SilentListener())


def seconds_of(trainer: Trainer, iteration: int, device: torch.device) -> float:
    """Train on one batch; return the seconds that it took."""
    trainer.iteration = iteration % trainer.task.iterations
    begun = time.perf_counter()
    trainer.train_batch()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begun


def run(options: Namespace) -> int:
    """Measure and print."""
    result = measure(options.repeats, device_of(options.device))
    print(json.dumps(result) if options.json else render(result))
    return 0


def measure(repeats: int, device: torch.device, source: NamedSet | None = None) -> dict[str, Any]:
    """Time iterations of the oscillators and of the large set; with `source`, of that set instead."""
    if repeats < 1:
        raise UserError("--repeats must be at least 1")
    backends = {PLAIN_STEPS: PLAIN} if device.type == "cuda" else {PLAIN_STEPS: PLAIN, FAST_STEPS: ACCELERATED}
    small = {name: trainer_of(EXAMPLES["oscillators"], device, backend) for name, backend in backends.items()}
    source = large_set() if source is None else source
    large = trainer_of(large_experiment(source), device, ACCELERATED)
    seconds: dict[str, list[float]] = {name: [] for name in small}
    for i in range(repeats + 1):  # the first one warms up
        for name, trainer in small.items():
            seconds[name].append(seconds_of(trainer, i, device))
    megabytes = peak_megabytes(lambda: seconds_of(large, 0, device), device)
    found = [seconds_of(large, i, device) for i in range(repeats)]
    batch = len(source.parts["train"]) // large.task.iterations
    return {"device": describe(device), "seconds": {name: statistics.median(s[1:]) for name, s in seconds.items()},
            "large": {"variables": len(source.variables), "batch": batch, "seconds": statistics.median(found),
                      "memory_megabytes": megabytes, "epoch_seconds": statistics.median(found) * SERIES / batch}}


def render(result: dict[str, Any]) -> str:
    """Format the result as a table."""
    lines = ["oscillators, one iteration of ace", ""]
    lines += [f"{name:<24}{1e3 * s:>9.0f} ms" for name, s in result["seconds"].items()]
    large, times = result["large"], result["seconds"]
    if FAST_STEPS in times:
        lines += ["", f"speedup: {times[PLAIN_STEPS] / times[FAST_STEPS]:.1f}×"]
    return "\n".join([*lines, "", f"{large['variables']} variables, batch {large['batch']}: {large['seconds']:.2f} s "
                      f"an iteration, {large['memory_megabytes']:.0f} MB; an epoch of {SERIES:,} series: "
                      f"{large['epoch_seconds'] / 60:.1f} minutes"])
