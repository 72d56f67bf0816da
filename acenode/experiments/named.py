"""Experiments on named variables: one for every example that comes with the project, and for every imported set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acenode.backend import ACCELERATED, PLAIN, Backend
from acenode.config import Config
from acenode.config import groups as keys
from acenode.experiments.base import DEFAULTS, Experiment, Method, Spec, later
from acenode.training.task import Metric

if TYPE_CHECKING:  # needs torch, which a list of methods does not
    import torch

    from acenode.data.named_set import NamedSet
    from acenode.experiments.named_task import NamedTask
    from acenode.models.named import NamedModel, NamedShape

MSE, AUC = Metric("mse", higher_is_better=False), Metric("auc", tie_breaker="cross_entropy")
COMMON: dict[str, Any] = DEFAULTS | {
    "epochs": 40, "batch_size": 100, "learning_rate": 3e-3, "weight_decay": 1e-3, "block": 4, "embedding": 6,
    "units": 64, "recognition": 32, "relative_to": "mean", "solver": "midpoint", "step_size": 0.05, "rtol": 1e-4,
    "atol": 1e-5, "max_steps": 10_000, "coupling": "own", "pull": 2.0, "penalty_weight": 1e-5, "snapshots": 6,
}


# exchange through the attention alone, no exchange, and one f on everything
GROUPS = (keys.DecayTraining, keys.NamedNetwork, keys.SolverSettings, keys.SnapshotSettings)
METHODS: dict[str, Method[NamedShape]] = {m.name: m for m in (
    Method("no-attention", "No attention", later("named_task", "build_no_attention"), GROUPS),
    Method("mixed", "ACE, one f on everything", later("named_task", "build_mixed"),
           (*GROUPS, keys.NamedAttention, keys.AttentionTraining)),
    Method("ace", "ACE", later("named_task", "build_ace"),
           (*GROUPS, keys.NamedAttention, keys.NamedCoupling, keys.AttentionTraining)),
)}


@dataclass(frozen=True, kw_only=True)
class NamedSpec(Spec):
    """A set of named variables as an experiment. The set itself is read when a model is built."""

    methods: Mapping[str, Method] = field(default_factory=lambda: METHODS)
    allowed_choices: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: {"initial": ("correlation", "learned")})
    load: Callable[[Path | None], NamedSet]  # from a data folder; None: the usual one
    values: Mapping[str, Any] = field(default_factory=dict)
    imported: bool = False  # True for a user's own set, which may be replaced by another of the same name

    def build_for(self, source: NamedSet, config: Config, backend: Backend) -> NamedModel:
        from acenode.models.named import NamedShape

        classes = len(source.classes) if source.task == "classify" else 0
        shape = NamedShape(len(source.variables), classes, source.task != "forecast")
        return METHODS[config.method].build(shape, config, backend)

    def make(self, config: Config, root: Path, device: torch.device, backend: Backend = ACCELERATED) -> NamedTask:
        from acenode.experiments.named_task import NamedTask

        source = self.load(root)
        task = NamedTask(config, source, self.build_for(source, config, backend), self.metric, device)
        task.data_fingerprint = source.fingerprint if self.imported else ""
        return task

    def build(self, config: Config, backend: Backend = PLAIN) -> NamedModel:
        return self.build_for(self.load(None), config, backend)

    def defaults(self, method: str, data: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**COMMON, **self.values, **METHODS[method].defaults}


def named_spec(name: str, title: str, summary: str, about: str, task: str, **more: Any) -> NamedSpec:
    """Return the experiment of a set whose task is to "forecast", "fill" or "classify"."""
    metric, other = (AUC, "accuracy") if task == "classify" else (MSE, "mae")
    return NamedSpec(name=name, title=title, summary=summary, about_sample=about, metric=metric,
                     other_metrics=(other,), **{"sample_title": "real data", **more})


def _example(name: str, title: str, summary: str, about: str, task: str = "forecast", **more: Any) -> NamedSpec:
    def load(root: Path | None) -> NamedSet:
        from acenode.data.named_set import example

        return example(name)

    return named_spec(name, title, summary, about, task, load=load, **more)


EXAMPLES: dict[str, Experiment] = {spec.name: spec.experiment() for spec in (
    _example("oscillators", "Coupled oscillators", "eight oscillators, each driven by two others: forecast 16 points "
             "from 5, and find who drives whom", "1,300 simulated trajectories whose links are known",
             sample_title="simulated data", values={"epochs": 80, "learning_rate": 5e-3, "initial": "learned"}),
    _example("predator-prey", "Predators and prey", "three prey and three predators, counted irregularly: forecast "
             "four years from six, and find who eats whom", "600 simulated food webs whose links are known",
             sample_title="simulated data",
             values={"epochs": 60, "batch_size": 50, "learning_rate": 5e-3, "initial": "learned"}),
    _example("la-speeds", "Los Angeles speeds", "eight detectors along a road: forecast an hour from the hour before",
             "a week of speeds every five minutes; how near the detectors are is known",
             values={"batch_size": 64}),
    _example("ny-speeds", "New York speeds", "taxi speeds of four boroughs with many gaps: forecast twelve hours from "
             "a day", "median speeds by hour, March 2019", values={"batch_size": 64, "epochs": 60}),
    _example("stocks", "Stock prices", "weekly prices of six companies: forecast four weeks from twelve",
             "prices of 2018 and 2019 relative to the first",
             values={"relative_to": "last", "units": 32, "weight_decay": 0.1, "batch_size": 16, "epochs": 60}),
    _example("liver", "Liver patients", "who of 254 patients dies later, from irregular laboratory values of a year",
             "visits of the first year of patients seen alive after it, seven values with gaps", task="classify",
             classes=("lived", "died"), values={"batch_size": 32, "block": 2, "units": 32, "weight_decay": 1e-2}),
    _example("air-quality", "Air quality", "ozone, sun, wind and temperature: fill in observations that were left out",
             "a summer in New York, 1973, with gaps", task="fill",
             values={"relative_to": "last", "batch_size": 32, "epochs": 150}),
)}
