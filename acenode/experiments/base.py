"""What an experiment and a method are: entries of a registry, each made of parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from acenode.backend import ACCELERATED, PLAIN, Backend
from acenode.config import KEYS, SETTINGS, Config, resolve
from acenode.config.groups import AttentionTraining, Settings, Training, keys_of
from acenode.config.vocabulary import CHOSEN, check_preset
from acenode.errors import UserError
from acenode.training.task import Metric, Recipe, Task

if TYPE_CHECKING:  # type checking only: avoids importing numpy and torch
    import numpy as np
    import torch

Shape = TypeVar("Shape")

# The defaults of all families, unless they say otherwise.
DEFAULTS: dict[str, Any] = {
    "solver": "dopri5", "max_steps": 1000, "gradient": "backprop", "seminorm": False, "engine": "auto", "augment": 5,
    "attention": "evolving", "initial": "correlation", "schedule": "alternating", "penalty": "l2",
    "detach_attention": False, "snapshots": 12,
}


class LabTask(Task, Protocol):
    """A task that also gives snapshots of its probes, and a report when training is done."""

    def recipe(self) -> Recipe: ...
    def snapshot(self) -> dict[str, np.ndarray]: ...
    def report(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Method(Generic[Shape]):
    """A row of the paper's table: how its model is built, the settings that have a meaning for it, its own defaults."""

    name: str
    title: str
    build: Callable[[Shape, Config, Backend], Any]
    groups: tuple[type[Settings], ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def uses(self) -> frozenset[str]:
        return keys_of(*self.groups)


def later(module: str, function: str) -> Callable[..., Any]:
    """Return a function of a module of this package that is imported at the first call, because it needs torch."""
    def call(*given: Any) -> Any:
        return getattr(import_module(f"acenode.experiments.{module}"), function)(*given)

    return call


@dataclass(frozen=True, kw_only=True)
class Description:
    """What an experiment is about: its texts, its metric and its methods."""

    name: str
    title: str
    summary: str = ""
    about_sample: str = ""
    sample_title: str = "bundled sample"  # what the sample consists of, in a few words
    metric: Metric
    methods: Mapping[str, Method]
    classes: tuple[str, ...] = ()  # their names, if they have other names than their numbers
    allowed_choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of settings with fewer choices here
    other_metrics: tuple[str, ...] = ()  # that the paper prints besides `metric`
    source: str | None = None  # the name of its full data in the data registry


@dataclass(frozen=True, kw_only=True)
class Experiment(Description):
    defaults: Callable[[str, str, Mapping[str, Any]], Mapping[str, Any]]  # method, data, given settings -> all settings
    make: Callable[..., LabTask]  # config, data folder, device and, if one is chosen, backend -> task
    count: Callable[[Config], int]  # parameters of the model a configuration describes
    is_complete: Callable[[Path], bool] = lambda root: True  # False if the data folder has a part of the full data only

    def method(self, name: str) -> Method:
        if name not in self.methods:
            raise UserError(f"{self.name} has no method {name!r}: choose one of {', '.join(self.methods)}")
        return self.methods[name]

    def configure(self, method: str, data: str = "sample", *, preset: str = CHOSEN, **given: Any) -> Config:
        """Return a complete configuration: this experiment's defaults, overridden by the given settings.

        With `preset="printed"` the defaults are the printed ones also where they do not work (see `CHOICES`).
        """
        entry = self.method(method)
        if data == "full" and self.source is None:
            raise UserError(f"{self.name} has no other data: leave --data out")
        for key, value in given.items():
            if key in SETTINGS and not any(key in m.uses for m in self.methods.values()):
                raise UserError(f"{key} does not apply to {self.name}: leave it out")
            allowed = self.allowed_choices.get(key)
            if allowed is not None and value not in allowed:
                raise UserError(f"{key}={value} does not apply to {self.name}: choose {' or '.join(allowed)}")
        defaults = {**self.defaults(method, data, given)}
        if check_preset(preset) == CHOSEN and data == "full":
            defaults |= chosen_settings(self.name, method)
        return resolve(self.name, method, uses=entry.uses, defaults=defaults, given={"data": data, **given})

    def choices(self, key: str) -> tuple[str, ...]:
        return self.allowed_choices.get(key) or KEYS[key].choices


@dataclass(frozen=True, kw_only=True)
class Spec(Description):
    """Base of the families of experiments. A family adds its data, and says how a model is built."""

    def build(self, config: Config, backend: Backend) -> Any:
        """Return the model that a configuration describes, not yet initialised."""
        raise NotImplementedError

    def make(self, config: Config, root: Path, device: torch.device, backend: Backend = ACCELERATED) -> LabTask:
        raise NotImplementedError

    def defaults(self, method: str, data: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        raise NotImplementedError

    def complete(self, root: Path) -> bool:
        return True

    def count(self, config: Config) -> int:
        return sum(p.numel() for p in self.build(config, PLAIN).parameters())

    def experiment(self) -> Experiment:
        return Experiment(**{f.name: getattr(self, f.name) for f in fields(Description)}, defaults=self.defaults,
                          make=self.make, count=self.count, is_complete=self.complete)


def optimiser_of(kind: Callable[..., torch.optim.Optimizer], weight_decay: float = 0.0,
                 **options: Any) -> Callable[..., torch.optim.Optimizer]:
    """Return a recipe's optimiser; θ_g has a penalty of its own and no weight decay."""
    return lambda parameters, lr, is_attention: kind(parameters, lr=lr, **options,
                                                     weight_decay=0.0 if is_attention else weight_decay)


def recipe_of(config: Config, optimiser: Callable[..., torch.optim.Optimizer],
              rate: Callable[[float], float]) -> Recipe:
    training, attention = config.part(Training), config.part(AttentionTraining)
    step, remedy = config.get("step_size"), ""  # what makes the run's solver more exact, if it has one
    if config.get("rtol") is not None:
        remedy = "tighten rtol and atol"
    elif step is not None:
        remedy = f"lower step_size (now {step:g})"
    return Recipe(training.epochs, training.learning_rate, optimiser, rate, schedule=attention.schedule,
                  penalty=attention.penalty, penalty_weight=attention.penalty_weight,
                  detach_attention=attention.detach_attention, remedy=remedy)


# The printed settings are the defaults wherever they train a model in the epochs that there is time for. Where they do
# not, these replace them: they are taken from the paper's own grid, and validation data alone decides between them.


@dataclass(frozen=True)
class Choice:
    """Settings of one experiment's full data that replace the printed ones, and why."""

    settings: Mapping[str, Any]
    reason: str
    methods: frozenset[str] | None = None  # all methods if None


CHOICES: dict[str, tuple[Choice, ...]] = {
    "cifar10": (
        Choice({"learning_rate": 5e-2},
               "With the printed 1e-2 the models are far from trained when the schedule is shorter than 160 epochs. "
               "After 20 epochs, validation accuracy is 71.7% (ODE-Net) and 73.0% (augmented) with 1e-2, and 77.3% and "
               "75.9% with 5e-2, which is in the paper's grid."),
    ),
    "ushcn": (
        Choice({"learning_rate": 1e-3},
               "With the printed 1e-4 the models are far from trained: after 100 epochs the last epoch has the best "
               "validation likelihood in all four folds tried. With 1e-3, which is in the paper's grid, the best "
               "validation NegLL of a fold is 0.81 to 1.18 (ACE) and 0.89 to 1.16 (GRU-ODE-Bayes), at epochs 44 to "
               "120.",
               frozenset({"gru-ode-bayes", "augmented", "ace"})),
        Choice({"epochs": 120},
               "With a learning rate of 1e-3, the best validation NegLL of ACE changes by less than 0.03 in the last "
               "20 of 120 epochs; that of GRU-ODE-Bayes is reached by epoch 80 in three of the five folds."),
    ),
}


def chosen_settings(experiment: str, method: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for choice in CHOICES.get(experiment, ()):
        if choice.methods is None or method in choice.methods:
            found |= choice.settings
    return found


def reason_for(experiment: str, key: str) -> str:
    return " ".join(choice.reason for choice in CHOICES.get(experiment, ()) if key in choice.settings)
