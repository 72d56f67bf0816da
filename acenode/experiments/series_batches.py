"""Irregular records as batches of a task, and what a model predicts on a whole split with the metrics of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from acenode.data.points import Points, SeriesBatch, TimeSeries, median_time, pad, recurrent_schedule
from acenode.data.series import Scale, SeriesArrays
from acenode.experiments.recording import binned
from acenode.models.latent import Predictions, squared_error
from acenode.training.metrics import binary_auc, macro_auc


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
    """The records of each part; the coupling is that of simulated ones."""

    train: Records
    validation: Records
    test: Records
    classes: tuple[str, ...]
    coupling: np.ndarray | None = None


@dataclass(frozen=True)
class Layout:
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


def records_of(arrays: SeriesArrays, index: np.ndarray, scale: Scale) -> Records:
    series, labels = [], []
    for i in index:
        here = arrays.points(i)
        m = arrays.m[here]
        series.append(TimeSeries.single(arrays.t[here] / arrays.horizon, scale.apply(arrays.x[here], m), m))
        labels.append(arrays.label[here] if arrays.pointwise else np.asarray(arrays.label[i]))
    return Records(series, labels, [str(arrays.ids[i]) for i in index], arrays.horizon, arrays.unit, arrays.names,
                   scale)


def cut_of(records: Records, layout: Layout) -> float | None:
    """Return the time that separates what is read from what is predicted, if there is one."""
    if layout.cut is None:
        return None
    return median_time(records.series) if layout.cut == "half" else 24.0 / records.horizon


def observed_mean(records: Records) -> np.ndarray:
    total = sum(r.x.sum(0, dtype=np.float64) for r in records.series)
    count = sum(r.m.sum(0, dtype=np.float64) for r in records.series)
    return (total / np.maximum(count, 1)).astype(np.float32)


@dataclass
class SeriesOutputs:
    """Logits of a split and the sums that its other metrics need. `kind` is record, points or vitals."""

    kind: str
    has_ode: bool = False
    edges: Tensor | None = None  # of the time bins in which errors are summed
    logits: list[np.ndarray] = field(default_factory=list)
    labels: list[np.ndarray] = field(default_factory=list)
    diluted: float = 0.0  # the published error, which averages per variable before it averages over variables
    squared: float = 0.0
    observed: float = 0.0
    records: int = 0
    nfe: float = 0.0
    batches: int = 0
    bins: np.ndarray | None = None  # (2, bins): squared errors and counts over time

    def add(self, predicted: Predictions, batch: SeriesBatch) -> None:
        B = len(batch.seen.t)
        if predicted.logits is not None and self.kind == "record":
            self.logits.append(predicted.logits.cpu().numpy())
            self.labels.append(batch.label.cpu().numpy())
        elif predicted.logits is not None:
            counted = (batch.label >= 0) & batch.target.observed
            self.logits.append(predicted.logits[:, counted].cpu().numpy())
            self.labels.append(batch.label[counted].cpu().numpy())
        if predicted.x is not None:
            error = (predicted.x - batch.target.x).square() * batch.target.m  # (K, B, T, D)
            self.diluted += float(squared_error(predicted.x, batch.target)) * B
            self.squared += float(error.sum()) / len(predicted.x)
            self.observed += float(batch.target.m.sum())
            if self.edges is not None:
                sums = binned(batch.target.t, self.edges, error.mean(0), batch.target.m)
                self.bins = sums + (0 if self.bins is None else self.bins)
        self.records += B
        self.nfe += 0 if predicted.evaluations is None else predicted.evaluations.forward
        self.batches += 1

    def labelled(self) -> tuple[np.ndarray, np.ndarray]:
        """Return logits (K, N, …) and labels (N,) of everything that has a label."""
        logits, labels = np.concatenate(self.logits, 1), np.concatenate(self.labels)
        known = ~np.isnan(labels)
        return logits[:, known], labels[known]

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the protocol, and plainer ones beside them under their own names."""
        found: dict[str, float] = {}
        if self.kind == "record":
            logits, labels = self.labelled()
            found |= {"auc": binary_auc(logits.ravel(), np.tile(labels, len(logits))),
                      "mean_logit_auc": binary_auc(logits.mean(0), labels)}
        if self.kind == "points":
            logits, labels = self.labelled()
            probability = torch.from_numpy(logits).softmax(-1).mean(0).numpy()
            found |= {"accuracy": float((logits.argmax(-1) == labels).mean()),
                      "macro_auc": macro_auc(probability, labels)}
        else:
            found |= {"mse": self.diluted / max(1, self.records), "micro_mse": self.squared / max(1.0, self.observed)}
        if self.has_ode:
            found["nfe"] = self.nfe / max(1, self.batches)
        return found
