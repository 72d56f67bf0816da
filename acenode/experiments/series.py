"""The experiments of the latent family: they differ in data, in what a model predicts, and in hyperparameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from acenode.backend import ACCELERATED, PLAIN, Backend
from acenode.config import Config
from acenode.config.groups import Normalisation, RecordingSplit
from acenode.data.series import Scale, SeriesArrays
from acenode.data.splits import record_split, trial_split
from acenode.experiments.base import Experiment, Method
from acenode.experiments.latent_methods import SeriesShape
from acenode.training.task import Metric

if TYPE_CHECKING:
    import torch
    from torch import nn

    from acenode.experiments.series_batches import Records
    from acenode.experiments.series_task import SeriesTask

COMMON: dict[str, Any] = {
    "batch_size": 50, "learning_rate": 1e-2, "trajectories": 3, "grid": "own", "bounded": False, "f_maps": 4,
    "classify_from": "start", "augment": 5, "solver": "dopri5", "rtol": 1e-4, "atol": 1e-5, "step_size": 0.05,
    "max_steps": 1000, "gradient": "backprop", "seminorm": False, "engine": "auto", "attention": "evolving",
    "initial": "correlation", "schedule": "alternating", "penalty": "l2", "penalty_weight": 1e-2,
    "detach_attention": False, "attention_in": "generative", "normalisation": "comparable", "deviation": 0.01,
    "split": "window", "task": "interpolation", "cut": "half", "snapshots": 12,
}
SAMPLE: dict[str, Any] = {
    "epochs": 15, "batch_size": 32, "latent": 8, "recognition": 16, "units": 32, "gru_units": 32, "f_maps": 3,
    "encoder_maps": 3, "rtol": 1e-3, "atol": 1e-4, "normalisation": "standard",
}


@dataclass(frozen=True)
class SeriesSet:
    """What differs between these experiments."""

    name: str
    title: str
    summary: str
    about_sample: str
    sample_title: str
    kind: str  # record, points or vitals
    source: str
    metric: Metric
    methods: Mapping[str, Method]
    sample: Callable[[], SeriesArrays]
    full: Callable[[Path], SeriesArrays]
    variables: tuple[int, int]  # of the sample and of the full data
    classes: int
    values: Mapping[str, Any]  # the paper's best
    of_sample: Mapping[str, Any]
    names: tuple[str, ...]  # of the classes
    is_complete: Callable[[SeriesArrays], bool]  # True if no record of the full data is missing

    def shape(self, config: Config) -> SeriesShape:
        classify = None if self.kind == "vitals" else self.kind
        return SeriesShape(self.variables[config.data == "full"], classify, self.classes)

    def build(self, config: Config, backend: Backend) -> nn.Module:
        """Return the model that a configuration describes, not yet initialised."""
        return self.methods[config.method].build(self.shape(config), config, backend)

    def make(self, config: Config, root: Path, device: torch.device,
             backend: Backend = ACCELERATED) -> SeriesTask:
        from acenode.experiments.series_batches import SeriesSplits
        from acenode.experiments.series_task import SeriesTask

        arrays = self.sample() if config.data == "sample" else self.full(root)
        by_recording = config.get("split") is not None and config.part(RecordingSplit).split == "recording"
        parts = trial_split(arrays.group) if by_recording else record_split(len(arrays))
        scale = self.scale(arrays, parts.train, config)
        splits = SeriesSplits(records_of(arrays, parts.train, scale), records_of(arrays, parts.validation, scale),
                        records_of(arrays, parts.test, scale), arrays.classes, arrays.coupling)
        task = SeriesTask(config, splits, self.build(config, backend), self.kind, self.metric, device)
        task.partial = config.data == "full" and not self.is_complete(arrays)
        return task

    def scale(self, arrays: SeriesArrays, train: np.ndarray, config: Config) -> Scale:
        """Return how values are scaled: over all records, as published, over the training records, or not at all."""
        if config.get("normalisation") is None:
            return Scale(np.zeros(arrays.x.shape[1], np.float32), np.ones(arrays.x.shape[1], np.float32))
        if config.part(Normalisation).normalisation == "comparable":
            return Scale.comparable(arrays.x, arrays.m)
        chosen = arrays.take(train)
        return Scale.standard(chosen.x, chosen.m)

    def defaults(self, method: str, data: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        own = {**SAMPLE, **self.of_sample} if data == "sample" else {}
        values = {**COMMON, **self.values, **own, **self.methods[method].defaults}
        if given.get("normalisation", values["normalisation"]) == "standard":
            values["deviation"] = 0.3  # for values of standard deviation 1
        return values


def records_of(arrays: SeriesArrays, index: np.ndarray, scale: Scale) -> Records:
    """Return these records, normalised, with times in units of the horizon."""
    from acenode.data.points import TimeSeries
    from acenode.experiments.series_batches import Records

    series, labels = [], []
    for i in index:
        here = slice(int(arrays.offsets[i]), int(arrays.offsets[i + 1]))
        m = arrays.m[here]
        t = (arrays.t[here] / arrays.horizon).astype(np.float32)
        series.append(TimeSeries(t, scale.apply(arrays.x[here], m), m.astype(np.float32)))
        labels.append(arrays.label[here] if arrays.pointwise else np.asarray(arrays.label[i]))
    return Records(series, labels, [str(arrays.ids[i]) for i in index], arrays.horizon, arrays.unit, arrays.names,
                   scale)


def experiment(spec: SeriesSet) -> Experiment:
    """Return the registry entry of a series experiment."""
    return Experiment(
        name=spec.name, title=spec.title, summary=spec.summary, about_sample=spec.about_sample,
        sample_title=spec.sample_title, metric=spec.metric,
        methods=spec.methods, defaults=spec.defaults, make=spec.make, source=spec.source,
        count=lambda config: sum(p.numel() for p in spec.build(config, PLAIN).parameters()),
        allowed_choices={"initial": ("correlation", "dense")}, classes=spec.names,
        is_complete=lambda root: spec.is_complete(spec.full(root)),
    )
