"""What an experiment and a method are: entries of a registry, each made of parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from acenode.backend import Backend
from acenode.config import KEYS, SETTINGS, Config, resolve
from acenode.config.groups import AttentionTraining, Settings, Training, keys_of
from acenode.config.presets import CHOSEN, check_preset
from acenode.errors import UserError
from acenode.experiments.chosen import chosen_settings
from acenode.training.task import Metric, Recipe, Task

if TYPE_CHECKING:  # type checking only: avoids importing numpy and torch
    import numpy as np
    import torch

Shape = TypeVar("Shape")


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
        """The keys of its settings."""
        return keys_of(*self.groups)


class MakeTask(Protocol):
    """Build the task of a configuration: its data and its model."""

    def __call__(self, config: Config, root: Path, device: torch.device, backend: Backend = ..., /) -> LabTask: ...


@dataclass(frozen=True)
class Experiment:
    """Data, methods, metric and defaults of one experiment of the paper."""

    name: str
    title: str
    summary: str
    about_sample: str
    metric: Metric
    methods: Mapping[str, Method]
    defaults: Callable[[str, str, Mapping[str, Any]], Mapping[str, Any]]  # method, data, given settings -> all settings
    make: MakeTask
    count: Callable[[Config], int]  # parameters of the model a configuration describes
    sample_title: str = "bundled sample"  # what the sample consists of, in a few words
    classes: tuple[str, ...] = ()  # their names, if they have other names than their numbers
    allowed_choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of settings with fewer choices here
    other_metrics: tuple[str, ...] = ()  # that the paper prints besides `metric`
    source: str | None = None  # the name of its full data in the data registry
    is_complete: Callable[[Path], bool] = lambda root: True  # False if the data folder has a part of the full data only

    def method(self, name: str) -> Method:
        if name not in self.methods:
            raise UserError(f"{self.name} has no method {name!r}: choose one of {', '.join(self.methods)}")
        return self.methods[name]

    def configure(self, method: str, data: str = "sample", *, preset: str = CHOSEN, **given: Any) -> Config:
        """Return a complete configuration: this experiment's defaults, overridden by the given settings.

        With `preset="printed"` the defaults are the printed ones also where they do not work (see `chosen`).
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
        """Return the values that a setting can have in this experiment."""
        return self.allowed_choices.get(key) or KEYS[key].choices


def recipe_of(config: Config, optimiser: Callable[..., torch.optim.Optimizer],
              rate: Callable[[float], float]) -> Recipe:
    """Return how a configuration is trained."""
    training, attention = config.part(Training), config.part(AttentionTraining)
    return Recipe(training.epochs, training.learning_rate, optimiser, rate, schedule=attention.schedule,
                  penalty=attention.penalty, penalty_weight=attention.penalty_weight,
                  detach_attention=attention.detach_attention, remedy=_remedy(config))


def _remedy(config: Config) -> str:
    """Say how to make the run's solver more exact, if it has one."""
    if config.get("rtol") is not None:
        return "tighten rtol and atol"
    step = config.get("step_size")
    return f"lower step_size (now {step:g})" if step is not None else ""
