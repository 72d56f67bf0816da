"""Forecasting experiments: a full data set and several bundled ones, each with its cut, step size and settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acenode.backend import ACCELERATED, PLAIN, Backend
from acenode.config import Config
from acenode.config.groups import ForecastData
from acenode.data.series import SeriesArrays
from acenode.experiments.base import Experiment
from acenode.experiments.forecast_methods import METHODS
from acenode.training.task import Metric

if TYPE_CHECKING:
    import torch
    from torch import nn

    from acenode.experiments.forecast_task import ForecastTask

COMMON: dict[str, Any] = {
    "epochs": 300, "batch_size": 300, "learning_rate": 1e-4, "weight_decay": 1e-4, "dropout": 0.2, "latent": 50,
    "recognition": 50, "units": 25, "features": 10, "mixing": 1e-4, "cell": "full", "impute": False, "augment": 5,
    "fold": 0, "solver": "dopri5", "rtol": 1e-3, "atol": 1e-4, "max_steps": 1000, "gradient": "backprop",
    "seminorm": False, "engine": "auto", "attention": "evolving", "initial": "correlation", "schedule": "alternating",
    "penalty": "l2", "penalty_weight": 1e-2, "detach_attention": False, "g": "rows", "feedback": "attended",
    "at_jump": "keep", "attention_every": 20, "snapshots": 12,
}
SAMPLE: dict[str, Any] = {"latent": 20, "recognition": 20, "units": 25, "features": 8, "dropout": 0.0,
                          "learning_rate": 1e-2, "penalty_weight": 1e-3, "attention_every": 10}


@dataclass(frozen=True)
class SporadicSet:
    """Series that are observed up to the cut and forecast after it."""

    load: Callable[[Path], SeriesArrays]
    variables: int
    cut: float
    values: Mapping[str, Any] = field(default_factory=dict)
    about: str = ""
    note: str = ""  # on the unit of time


@dataclass(frozen=True)
class ForecastSet:
    """A forecasting experiment."""

    name: str
    title: str
    summary: str
    about_sample: str
    sample_title: str
    source: str
    full: SporadicSet
    samples: Mapping[str, SporadicSet]
    is_complete: Callable[[SeriesArrays], bool]
    data_note: Callable[[SeriesArrays], str]  # how the full data was made, if it is not the published file
    metric: Metric = field(default_factory=lambda: Metric("mse", higher_is_better=False, selection="negll"))

    def chosen(self, config: Config) -> SporadicSet:
        return self.full if config.data == "full" else self.samples[config.part(ForecastData).sample]

    def build(self, config: Config, backend: Backend) -> nn.Module:
        """Return the model that a configuration describes, not yet initialised."""
        return METHODS[config.method].build(self.chosen(config).variables, config, backend)

    def make(self, config: Config, root: Path, device: torch.device,
             backend: Backend = ACCELERATED) -> ForecastTask:
        from acenode.data.splits import forecast_parts
        from acenode.experiments.forecast_task import ForecastTask

        chosen, model = self.chosen(config), self.build(config, backend)
        arrays = chosen.load(root)
        parts = forecast_parts(arrays, config.part(ForecastData).fold, chosen.cut)
        task = ForecastTask(config, arrays, parts, chosen.cut, model, self.metric, device, chosen.note)
        if config.data == "full":
            task.partial, task.data_note = not self.is_complete(arrays), self.data_note(arrays)
        return task

    def defaults(self, method: str, data: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        values = {**COMMON, **METHODS[method].defaults}
        if data == "sample":
            first = next(iter(self.samples))
            chosen = self.samples.get(given.get("sample", first), self.samples[first])
            values |= {**SAMPLE, "sample": first, **chosen.values}
        else:
            values |= self.full.values
        if "solver" in METHODS[method].uses:
            values["step_size"] = 0.05  # for an ODE whose time is in units of the horizon
        return values


def experiment(spec: ForecastSet) -> Experiment:
    """Return the registry entry of a forecasting experiment."""
    return Experiment(
        name=spec.name, title=spec.title, summary=spec.summary, about_sample=spec.about_sample,
        sample_title=spec.sample_title, metric=spec.metric,
        other_metrics=("negll",), methods=METHODS, defaults=spec.defaults, make=spec.make, source=spec.source,
        count=lambda config: sum(p.numel() for p in spec.build(config, PLAIN).parameters()),
        allowed_choices={"initial": ("correlation", "dense")},
        is_complete=lambda root: spec.is_complete(spec.full.load(root)),
    )
