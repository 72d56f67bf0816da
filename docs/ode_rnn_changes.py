"""Train ODE-RNN on PhysioNet with one thing changed, for the table in results.md.

    python docs/ode_rnn_changes.py CHANGE [--seed N] [--epochs N] [--device cuda]

Prints the AUC on validation and test data after every epoch. Only the validation AUC chooses; the test AUC shows how
far the choice of an epoch can move a result. These changes explain a number and are not settings of the lab.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from acenode import experiments
from acenode.data import points
from acenode.data.folder import data_dir
from acenode.execution.environment import device_of
from acenode.experiments import series, series_task
from acenode.models.latent import baselines
from acenode.training.task import SilentListener
from acenode.training.trainer import Trainer

DESCRIPTORS = ("Age", "Gender", "Height", "ICUType", "Weight")  # of a stay, observed at its first time


def descriptors() -> None:
    """Let every point repeat the descriptors of the stay."""
    original = series.records_of

    def records_of(arrays: Any, index: np.ndarray, scale: Any) -> Any:
        found = original(arrays, index, scale)
        for r in found.series:
            for j in map(list(found.names).index, DESCRIPTORS):
                if len(r.t) and r.m[0, j] > 0:
                    r.x[:, j], r.m[:, j] = r.x[0, j], 1.0
        return found

    series.records_of = records_of


def weight() -> None:
    """Weigh the cross-entropy by 100/3, as the models with three trajectories do."""
    series_task.CLASS_WEIGHT = 100 / 3


def gate() -> None:
    """Let the update gate start at σ(3) = 0.95: at first the state keeps what it has read."""
    original = series_task.initialise

    def initialise(model: Any, seed: int) -> None:
        original(model, seed)
        model.recurrence.cell.update[-1].bias.data.fill_(3.0)

    series_task.initialise = initialise


def intervals() -> None:
    """Use the published code's intervals: the previous gap, reversed, and before the second point the whole span."""
    def steps(t: np.ndarray, *, backwards: bool, read: np.ndarray | None = None) -> points.EulerSteps:
        gaps = np.full(len(t), -points.FIRST_GAP)
        gaps[1:2] = t[-1] - t[0]
        gaps[2:] = -np.diff(t.astype(np.float64))[:-1]
        counts = points.step_counts(gaps, abs(float(t[-1] - t[0])) / points.STEPS_PER_SPAN)
        counts[:2] = 1
        point = np.full(counts.sum(), -1, np.int64)
        point[np.cumsum(counts) - 1] = np.arange(len(t)) if read is None else read
        return points.EulerSteps(np.repeat(gaps / counts, counts).astype(np.float32), point)

    points.euler_steps = steps


def backwards() -> None:
    """Read from the last point to the first, as the encoders of the latent models do."""
    original = baselines.Autoregressive.__init__

    def start(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.backwards = True

    def forward(self: Any, batch: Any, *, detach_attention: bool = False) -> baselines.Predictions:
        h = self.states(batch)
        x = torch.cat((self.output(h[:, 1:]), batch.seen.x[:, -1:]), 1)
        return baselines.Predictions(x[None], self.classifier(h[:, 0]).squeeze(-1)[None])

    baselines.Autoregressive.__init__ = start  # type: ignore[assignment]
    baselines.Autoregressive.forward = forward  # type: ignore[method-assign]


def all_records() -> None:
    """Train on the validation records too, as the published code does. The validation AUC then means nothing."""
    original = series.record_split

    def split(count: int) -> Any:
        parts = original(count)
        return type(parts)(np.concatenate((parts.train, parts.validation)), parts.validation, parts.test)

    series.record_split = split


CHANGES: dict[str, Callable[[], None] | dict[str, Any]] = {
    "none": {}, "descriptors": descriptors, "weight": weight, "gate": gate, "intervals": intervals,
    "backwards": backwards, "all-records": all_records, "maps": {"encoder_maps": 5}, "union": {"grid": "union"},
    "hidden": {"latent": 40}, "rate": {"learning_rate": 3e-3}, "batch": {"batch_size": 100},
    "deviation": {"deviation": 0.05}}


class Printer(SilentListener):
    """Prints both AUCs after every epoch."""

    def __init__(self, task: series_task.SeriesTask) -> None:
        self.task = task

    def on_epoch(self, record: dict[str, Any]) -> None:
        print(f"{record['epoch']:3d}  validation {record['validation_auc']:.4f}  "
              f"test {self.task.evaluate('test')['auc']:.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("change", choices=CHANGES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    change = CHANGES[given.change]
    if callable(change):
        change()
    experiment = experiments.get("physionet")
    config = experiment.configure("ode-rnn", "full", seed=given.seed, epochs=given.epochs, device=given.device,
                                  **({} if callable(change) else change))
    task: Any = experiment.make(config, data_dir(), device_of(given.device))
    Trainer(task, task.recipe(), Printer(task)).run()


if __name__ == "__main__":
    main()
