"""Experiments on named variables: one for every example that comes with the project, and for every imported set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acenode.backend import ACCELERATED, PLAIN, Backend
from acenode.config import Config
from acenode.experiments.base import Experiment
from acenode.experiments.named_methods import METHODS, NamedShape
from acenode.training.task import Metric

if TYPE_CHECKING:
    import torch

    from acenode.data.named_set import NamedSet
    from acenode.experiments.named_task import NamedTask
    from acenode.models.named.model import NamedModel

MSE, AUC = Metric("mse", higher_is_better=False), Metric("auc", tie_breaker="cross_entropy")
COMMON: dict[str, Any] = {
    "epochs": 40, "batch_size": 100, "learning_rate": 3e-3, "weight_decay": 1e-3, "block": 4, "embedding": 6,
    "units": 64, "recognition": 32, "relative_to": "mean", "solver": "midpoint", "step_size": 0.05, "rtol": 1e-4,
    "atol": 1e-5, "max_steps": 10_000, "gradient": "backprop", "seminorm": False, "engine": "auto",
    "attention": "evolving", "coupling": "own", "initial": "correlation", "pull": 2.0, "schedule": "alternating",
    "penalty": "l2", "penalty_weight": 1e-5, "detach_attention": False, "snapshots": 6,
}
CHOICES = {"initial": ("correlation", "learned")}


@dataclass(frozen=True)
class NamedSpec:
    """A set of named variables as an experiment. The set itself is read when a model is built."""

    name: str
    title: str
    summary: str
    about: str
    load: Callable[[Path | None], NamedSet]  # from a data folder; None: the usual one
    task: str
    values: Mapping[str, Any] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    kind: str = "real data"  # what the set consists of, in a few words
    imported: bool = False  # True for a user's own set, which may be replaced by another of the same name

    @property
    def metric(self) -> Metric:
        return AUC if self.task == "classify" else MSE

    def shape(self, source: NamedSet) -> NamedShape:
        classes = len(source.classes) if self.task == "classify" else 0
        return NamedShape(len(source.variables), classes, self.task != "forecast")

    def build(self, source: NamedSet, config: Config, backend: Backend) -> NamedModel:
        """Return the model that a configuration describes, not yet initialised."""
        return METHODS[config.method].build(self.shape(source), config, backend)

    def make(self, config: Config, root: Path, device: torch.device, backend: Backend = ACCELERATED) -> NamedTask:
        from acenode.experiments.named_task import NamedTask

        source = self.load(root)
        task = NamedTask(config, source, self.build(source, config, backend), self.metric, device)
        task.data_fingerprint = source.fingerprint if self.imported else ""
        return task

    def count(self, config: Config) -> int:
        return sum(p.numel() for p in self.build(self.load(None), config, PLAIN).parameters())

    def defaults(self, method: str, data: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**COMMON, **self.values, **METHODS[method].defaults}


def experiment(spec: NamedSpec) -> Experiment:
    """Return the registry entry of a set of named variables."""
    return Experiment(
        name=spec.name, title=spec.title, summary=spec.summary, about_sample=spec.about, sample_title=spec.kind,
        metric=spec.metric, methods=METHODS, defaults=spec.defaults, make=spec.make, count=spec.count,
        classes=spec.classes, allowed_choices=CHOICES,
        other_metrics=("accuracy",) if spec.task == "classify" else ("mae",))


def _example(name: str, title: str, summary: str, about: str, task: str = "forecast", **more: Any) -> NamedSpec:
    def load(root: Path | None) -> NamedSet:
        from acenode.data.named_examples import example

        return example(name)

    return NamedSpec(name, title, summary, about, load, task, **more)


EXAMPLES: dict[str, Experiment] = {spec.name: experiment(spec) for spec in (
    _example("oscillators", "Coupled oscillators", "eight oscillators, each driven by two others: forecast 16 points "
             "from 5, and find who drives whom", "1,300 simulated trajectories whose links are known",
             kind="simulated data", values={"epochs": 80, "learning_rate": 5e-3, "initial": "learned"}),
    _example("predator-prey", "Predators and prey", "three prey and three predators, counted irregularly: forecast "
             "four years from six, and find who eats whom", "600 simulated food webs whose links are known",
             kind="simulated data",
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
