"""The forecasting experiments: USHCN (table 6, figure 5) and bundled sets beside it, each with its cut and settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acenode.backend import ACCELERATED, Backend
from acenode.config import Config
from acenode.config import groups as keys
from acenode.data import simulated, ushcn
from acenode.data.series import SeriesArrays
from acenode.data.simulated import BRUSSELATOR_CUT, OU_CUT
from acenode.experiments.base import DEFAULTS, Method, Spec, later
from acenode.training.task import Metric

if TYPE_CHECKING:  # type checking only: avoids importing torch
    import torch
    from torch import nn

    from acenode.experiments.forecast_task import ForecastTask

COMMON = (keys.DecayTraining, keys.ForecastNetwork, keys.ForecastData, keys.SnapshotSettings)
JUMPS = (*COMMON, keys.JumpNetwork, keys.EngineSettings)
BASELINE = {"learning_rate": 1e-3}


def _method(name: str, title: str, groups: tuple[type[keys.Settings], ...],
            defaults: Mapping[str, Any] = BASELINE) -> Method[int]:
    return Method(name, title, later("forecast_task", f"build_{name.replace('-', '_')}"), groups, defaults)


METHODS: dict[str, Method[int]] = {m.name: m for m in (
    _method("node-vae", "Neural-ODE-VAE", (*COMMON, keys.SolverSettings, keys.Recognition)),
    _method("node-vae-mask", "Neural-ODE-VAE-Mask", (*COMMON, keys.SolverSettings, keys.Recognition)),
    _method("seq-vae", "Sequential VAE", (*COMMON, keys.Recognition)),
    _method("gru-simple", "GRU-Simple", COMMON),
    _method("gru-d", "GRU-D", COMMON),
    _method("t-lstm", "T-LSTM", COMMON),
    _method("gru-ode-bayes", "GRU-ODE-Bayes", JUMPS, {}),
    _method("augmented", "Augmented-GRU-ODE-Bayes", (*JUMPS, keys.Augmentation), {}),
    _method("ace", "ACE-GRU-ODE-Bayes", (*JUMPS, keys.JumpAttention, keys.AttentionTraining), {}),
)}


@dataclass(frozen=True)
class SporadicSet:
    """Series that are observed up to the cut and forecast after it."""

    load: Callable[[Path], SeriesArrays]
    variables: int
    cut: float
    values: Mapping[str, Any]
    note: str = ""  # on the unit of time


@dataclass(frozen=True, kw_only=True)
class ForecastSet(Spec):
    metric: Metric = field(default_factory=lambda: Metric("mse", higher_is_better=False, selection="negll"))
    methods: Mapping[str, Method] = field(default_factory=lambda: METHODS)
    allowed_choices: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: {"initial": ("correlation", "dense")})
    other_metrics: tuple[str, ...] = ("negll",)
    full: SporadicSet
    samples: Mapping[str, SporadicSet]
    has_all: Callable[[SeriesArrays], bool]
    note: Callable[[SeriesArrays], str]  # how the full data was made, if it is not the published file

    def chosen(self, config: Config) -> SporadicSet:
        return self.full if config.data == "full" else self.samples[config.part(keys.ForecastData).sample]

    def build(self, config: Config, backend: Backend) -> nn.Module:
        return METHODS[config.method].build(self.chosen(config).variables, config, backend)

    def make(self, config: Config, root: Path, device: torch.device, backend: Backend = ACCELERATED) -> ForecastTask:
        from acenode.data.splits import forecast_parts
        from acenode.experiments.forecast_task import ForecastTask

        chosen, model = self.chosen(config), self.build(config, backend)
        arrays = chosen.load(root)
        parts = forecast_parts(arrays, config.part(keys.ForecastData).fold, chosen.cut)
        task = ForecastTask(config, arrays, parts, chosen.cut, model, self.metric, device, chosen.note)
        if config.data == "full":
            task.partial, task.data_note = not self.has_all(arrays), self.note(arrays)
        return task

    def defaults(self, method: str, data: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        values = DEFAULTS | {
            "epochs": 300, "batch_size": 300, "learning_rate": 1e-4, "weight_decay": 1e-4, "dropout": 0.2,
            "latent": 50, "recognition": 50, "units": 25, "features": 10, "mixing": 1e-4, "cell": "full",
            "impute": False, "fold": 0, "rtol": 1e-3, "atol": 1e-4, "penalty_weight": 1e-2, "g": "rows",
            "feedback": "attended", "at_jump": "keep", "attention_every": 20, **METHODS[method].defaults}
        if data == "sample":
            first = next(iter(self.samples))
            values |= {"latent": 20, "recognition": 20, "units": 25, "features": 8, "dropout": 0.0,
                       "learning_rate": 1e-2, "penalty_weight": 1e-3, "attention_every": 10, "sample": first,
                       **self.samples.get(given.get("sample", first), self.samples[first]).values}
        else:
            values |= self.full.values
        if "solver" in METHODS[method].uses:
            values["step_size"] = 0.05  # for an ODE whose time is in units of the horizon
        return values

    def complete(self, root: Path) -> bool:
        return self.has_all(self.full.load(root))


DAYS = f"one unit is {ushcn.DAYS:.2f} days."
USHCN = ForecastSet(
    name="ushcn", title="USHCN climate",
    summary="USHCN daily: forecast five sporadic weather variables, pairwise attention on a state that jumps at "
            "observations",
    about_sample="500 simulated stations whose couplings are known, or two stochastic processes (the setting Sample)",
    sample_title="simulated series", source="ushcn",
    full=SporadicSet(ushcn.USHCN.load, 5, ushcn.CUT, {"step_size": 0.1, "targets": 3}, note=DAYS),
    samples={
        "climate": SporadicSet(lambda root: simulated.climate(), 5, ushcn.CUT, {
            "step_size": 0.5, "attention_every": 4, "targets": 3, "epochs": 20, "batch_size": 50}, note=DAYS),
        "ou": SporadicSet(lambda root: simulated.double_ou(), 2, OU_CUT, {
            "step_size": 0.05, "targets": 1, "epochs": 10, "batch_size": 250, "weight_decay": 5e-4}),
        "brusselator": SporadicSet(lambda root: simulated.brusselator(), 2, BRUSSELATOR_CUT, {
            "step_size": 0.05, "targets": 3, "epochs": 20, "batch_size": 50, "weight_decay": 5e-4}),
    },
    has_all=ushcn.is_complete, note=ushcn.rebuilt_note)
