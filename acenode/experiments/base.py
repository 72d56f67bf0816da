"""What an experiment and a method are: entries of a registry, each made of parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from acenode.accelerate.dispatch import Backend
from acenode.config import FIELDS, SETTINGS, Config, resolve
from acenode.errors import UserError
from acenode.training.task import Metric, Recipe, Task

if TYPE_CHECKING:
    import numpy as np
    import torch

Shape = TypeVar("Shape")


class LabTask(Task, Protocol):
    """A task that can also be looked at: probes to watch, and a report when training is done."""

    def recipe(self) -> Recipe: ...
    def snapshot(self) -> dict[str, np.ndarray]: ...
    def report(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Method(Generic[Shape]):
    """A row of the paper's table: how it is built, the settings that have a meaning for it, its own defaults."""

    name: str
    title: str
    build: Callable[[Shape, Config, Backend], Any]
    uses: frozenset[str]
    defaults: Mapping[str, Any] = field(default_factory=dict)


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
    defaults: Callable[[str, str, Mapping[str, Any]], Mapping[str, Any]]  # method, data, what is given -> settings
    make: MakeTask
    count: Callable[[Config], int]  # parameters of the model a configuration describes
    classes: tuple[str, ...] = ()  # their names, where they have any but their numbers
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # choices of a setting that there are here
    also: tuple[str, ...] = ()  # other metrics that the paper prints
    source: str | None = None  # the name of its full data in the catalogue of data sets

    def method(self, name: str) -> Method:
        if name not in self.methods:
            raise UserError(f"{self.name} has no method {name!r}: choose one of {', '.join(self.methods)}")
        return self.methods[name]

    def configure(self, method: str, data: str = "sample", **given: Any) -> Config:
        """A complete configuration: this experiment's defaults with what was given."""
        entry = self.method(method)
        for key, value in given.items():
            if key in SETTINGS and not any(key in m.uses for m in self.methods.values()):
                raise UserError(f"{key} has no meaning in {self.name}: leave it out")
            if key in self.only and value not in self.only[key]:
                raise UserError(f"{key}={value} has no meaning in {self.name}: choose {' or '.join(self.only[key])}")
        defaults = self.defaults(method, data, given)
        return resolve(self.name, method, uses=entry.uses, defaults=defaults, given={"data": data, **given})

    def choices(self, key: str) -> tuple[str, ...]:
        """What a setting can be here."""
        return self.only.get(key) or FIELDS[key].metadata["choices"]


def recipe_of(config: Config, optimiser: Callable[..., torch.optim.Optimizer],
              rate: Callable[[float], float]) -> Recipe:
    """How a configuration is trained."""
    return Recipe(config.epochs or 1, config.learning_rate or 0.0, optimiser, rate,
                  schedule=config.schedule or "alternating", penalty=config.penalty or "none",
                  penalty_weight=config.penalty_weight or 0.0, detach_attention=bool(config.detach_attention),
                  remedy=_remedy(config))


def _remedy(config: Config) -> str:
    """How a run's solver is made more exact, where it has one."""
    if config.rtol is not None:
        return "tighten rtol and atol"
    return f"lower step_size (now {config.step_size:g})" if config.step_size is not None else ""
