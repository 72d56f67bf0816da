"""Irregular records as batches of a task: a batch is a pure function of (seed, epoch, iteration)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from acenode.data.batches import mixed_seed
from acenode.data.points import Points, SeriesBatch, TimeSeries, median_time, pad, recurrent_schedule
from acenode.data.series import Scale
from acenode.models.latent.latent_ode import kl_weight

NOISE = 1  # separates the seeds of the noise of z0 from those of the order of the records


@dataclass(frozen=True, eq=False)
class Records:
    """Normalised records with their labels: one each, or one for every point (a list of arrays)."""

    series: list[TimeSeries]
    labels: list[np.ndarray]
    ids: list[str]
    horizon: float
    unit: str
    names: tuple[str, ...]
    scale: Scale | None = None  # how the values were normalised

    def __len__(self) -> int:
        return len(self.series)

    def take(self, index: Sequence[int] | np.ndarray) -> Records:
        pick = [int(i) for i in index]
        return Records([self.series[i] for i in pick], [self.labels[i] for i in pick], [self.ids[i] for i in pick],
                       self.horizon, self.unit, self.names, self.scale)


@dataclass(frozen=True)
class SeriesSplits:
    """Records for training, validation and test, the names of the classes, and the known coupling of simulated ones."""

    train: Records
    validation: Records
    test: Records
    classes: tuple[str, ...]
    coupling: np.ndarray | None = None


@dataclass(frozen=True)
class Layout:
    """What the batches of a model contain."""

    backwards: bool | None  # direction in which the encoder reads a record; None if it does not read step by step
    union: bool
    trajectories: int
    latent: int
    points: bool  # True if every point has a label
    cut: str | None  # "half" or "24h" if the second half is predicted from the first
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))


def assemble(records: Records, layout: Layout, noise: Tensor | None, kl: float,
             cut: float | None = None) -> SeriesBatch:
    """Return a batch of these records; with `cut`, earlier points are read and later ones are targets."""
    series = records.series
    if cut is None:
        seen = target = pad(series)
        seen_records, span = series, (0.0, 1.0)
    else:
        seen_records = [r.part(r.t < cut) for r in series]
        seen = pad(seen_records)
        target = pad([r.part(r.t >= cut) for r in series])
        target = Points(target.t.clamp(min=cut), target.x, target.m, target.valid)  # for records without a target
        span = (cut, 1.0)
    steps = None
    if layout.backwards is not None:
        steps = recurrent_schedule(seen_records, seen, backwards=layout.backwards, union=layout.union)
    return SeriesBatch(seen, target, _labels(records, target, layout), span, steps, noise, kl).to(layout.device)


def _labels(records: Records, target: Points, layout: Layout) -> Tensor:
    if not layout.points:
        return torch.tensor([float(label) for label in records.labels])
    label = np.full(target.t.shape, -1, np.int64)
    for b, own in enumerate(records.labels):
        label[b, :len(own)] = own
    return torch.from_numpy(label)


class SeriesBatches:
    """Shuffled mini-batches of the training records with their noise of z0."""

    def __init__(self, records: Records, layout: Layout, batch_size: int, seed: int) -> None:
        self.records, self.layout, self.size, self.seed = records, layout, min(batch_size, len(records)), seed
        self.iterations = len(records) // self.size  # the last partial batch is left out
        self.epoch = -1

    def batch(self, epoch: int, iteration: int) -> SeriesBatch:
        if epoch != self.epoch:
            self.order = np.random.default_rng(mixed_seed(self.seed, epoch)).permutation(len(self.records))
            self.epoch = epoch
        chosen = self.records.take(self.order[iteration * self.size:(iteration + 1) * self.size])
        generator = torch.Generator().manual_seed(mixed_seed(self.seed, epoch, iteration, NOISE))
        noise = torch.randn(self.layout.trajectories, self.size, self.layout.latent, generator=generator)
        return assemble(chosen, self.layout, noise, kl_weight(epoch), cut_of(chosen, self.layout))


def cut_of(records: Records, layout: Layout) -> float | None:
    """Return the time that separates what is read from what is predicted, if there is one."""
    if layout.cut is None:
        return None
    return median_time(records.series) if layout.cut == "half" else 24.0 / records.horizon
