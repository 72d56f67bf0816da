"""The experiments of the latent family: PhysioNet mortality and vitals (tables 7 and 8), Human Activity (table 9).

They differ in data, in what a model predicts, and in hyperparameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from acenode.backend import ACCELERATED, Backend
from acenode.config import Config
from acenode.config import groups as keys
from acenode.data import activity, physionet, simulated
from acenode.data.series import Scale, SeriesArrays
from acenode.data.splits import record_split, trial_split
from acenode.experiments.base import DEFAULTS, Method, Spec, later
from acenode.training.task import Metric

if TYPE_CHECKING:
    import torch
    from torch import nn

    from acenode.experiments.series_task import SeriesTask
    from acenode.models.latent import SeriesShape


COMMON = (keys.Training, keys.SeriesNetwork, keys.SnapshotSettings)
DECODER = (keys.Decoder, keys.SolverSettings)
LATENT = (*DECODER, keys.ODERecognition)


def _method(name: str, title: str, *groups: type[keys.Settings]) -> Method[SeriesShape]:
    return Method(name, title, later("series_task", f"build_{name.replace('-', '_')}"), (*COMMON, *groups))


_METHODS = (
    _method("rnn-dt", "RNN Δt"),
    _method("rnn-impute", "RNN-Impute"),
    _method("rnn-decay", "RNN-Decay"),
    _method("gru-d", "GRU-D"),
    _method("rnn-vae", "RNN-VAE", keys.Recognition),
    _method("latent-rnn", "Latent-ODE (RNN enc.)", *DECODER, keys.GatedRecognition),
    _method("ode-rnn", "ODE-RNN", keys.ODERecurrenceSettings, keys.EngineSettings),
    _method("latent-poisson", "Latent-ODE + Poisson", *LATENT),
    _method("latent-ode", "Latent-ODE (ODE enc.)", *LATENT),
    _method("augmented", "Augmented-Latent-ODE", *LATENT, keys.Augmentation),
    _method("ace", "ACE-Latent-ODE", *LATENT, keys.LatentAttention, keys.AttentionTraining),
)
GENERATIVE = ("rnn-vae", "latent-rnn", "latent-poisson", "latent-ode", "augmented", "ace")  # in the vitals table


def methods(names: tuple[str, ...] | None, *extra: type[keys.Settings], record: bool = False) -> dict[str, Method]:
    """Return the methods of these names (None: all), each with an experiment's own groups of settings.

    With `record` the experiment classifies whole records, and a method with a solver can do that at either end of z.
    """
    ends = {m.name: (keys.RecordClassification,) if record and keys.SolverSettings in m.groups else ()
            for m in _METHODS}
    return {m.name: replace(m, groups=(*m.groups, *extra, *ends[m.name]))
            for m in _METHODS if names is None or m.name in names}


@dataclass(frozen=True, kw_only=True)
class SeriesSet(Spec):
    allowed_choices: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: {"initial": ("correlation", "dense")})
    kind: str  # record, points or vitals
    sample: Callable[[], SeriesArrays]
    full: Callable[[Path], SeriesArrays]
    variables: tuple[int, int]  # of the sample and of the full data
    outputs: int = 1  # of a classifier
    values: Mapping[str, Any]  # the paper's best
    of_sample: Mapping[str, Any] = field(default_factory=dict)
    has_all: Callable[[SeriesArrays], bool]  # True if no record of the full data is missing

    def shape(self, config: Config) -> SeriesShape:
        from acenode.models.latent import SeriesShape

        classify = None if self.kind == "vitals" else self.kind
        return SeriesShape(self.variables[config.data == "full"], classify, self.outputs)

    def build(self, config: Config, backend: Backend) -> nn.Module:
        return self.methods[config.method].build(self.shape(config), config, backend)

    def make(self, config: Config, root: Path, device: torch.device, backend: Backend = ACCELERATED) -> SeriesTask:
        from acenode.experiments.series_batches import SeriesSplits, records_of
        from acenode.experiments.series_task import SeriesTask

        arrays = self.sample() if config.data == "sample" else self.full(root)
        by_recording = config.get("split") is not None and config.part(keys.RecordingSplit).split == "recording"
        parts = trial_split(arrays.group) if by_recording else record_split(len(arrays))
        scale = self.scale(arrays, parts.train, config)
        train, validation, test = (records_of(arrays, part, scale) for part in parts)
        splits = SeriesSplits(train, validation, test, arrays.classes, arrays.coupling)
        task = SeriesTask(config, splits, self.build(config, backend), self.kind, self.metric, device)
        task.partial = config.data == "full" and not self.has_all(arrays)
        return task

    def scale(self, arrays: SeriesArrays, train: np.ndarray, config: Config) -> Scale:
        """Return how values are scaled: over all records, as published, over the training records, or not at all."""
        if config.get("normalisation") is None:
            return Scale(np.zeros(arrays.x.shape[1], np.float32), np.ones(arrays.x.shape[1], np.float32))
        if config.part(keys.Normalisation).normalisation == "comparable":
            return Scale.comparable(arrays.x, arrays.m)
        chosen = arrays.take(train)
        return Scale.standard(chosen.x, chosen.m)

    def defaults(self, method: str, data: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        values = DEFAULTS | {
            "batch_size": 50, "learning_rate": 1e-2, "trajectories": 3, "grid": "own", "bounded": False, "f_maps": 4,
            "classify_from": "start", "rtol": 1e-4, "atol": 1e-5, "step_size": 0.05, "penalty_weight": 1e-2,
            "attention_in": "generative", "normalisation": "comparable", "deviation": 0.01, "split": "window",
            "task": "interpolation", "cut": "half", **self.values}
        if data == "sample":
            values |= {"epochs": 15, "batch_size": 32, "latent": 8, "recognition": 16, "units": 32, "gru_units": 32,
                       "f_maps": 3, "encoder_maps": 3, "rtol": 1e-3, "atol": 1e-4, "normalisation": "standard",
                       **self.of_sample}
        values |= self.methods[method].defaults
        if given.get("normalisation", values["normalisation"]) == "standard":
            values["deviation"] = 0.3  # for values of standard deviation 1
        return values

    def complete(self, root: Path) -> bool:
        return self.has_all(self.full(root))


PATIENTS: dict[str, Any] = {
    "about_sample": "480 simulated stays of 12 variables, whose couplings are known",
    "sample_title": "simulated patients", "source": "physionet2012", "sample": simulated.icu, "variables": (12, 41),
    "values": {"epochs": 30, "latent": 20, "recognition": 40, "units": 50, "gru_units": 50, "encoder_maps": 4},
}
PHYSIONET = SeriesSet(
    name="physionet", title="PhysioNet mortality", kind="record", metric=Metric("auc"), classes=physionet.CLASSES,
    summary="PhysioNet 2012: death in hospital from 48 irregular hours of 41 variables, pairwise attention "
            "on the latent state (z)",
    methods=methods(None, keys.Normalisation, record=True), full=physionet.load_labelled,
    has_all=lambda arrays: len(arrays) == 4000, **PATIENTS)
VITALS = SeriesSet(
    name="physionet-vitals", title="PhysioNet vitals", kind="vitals", metric=Metric("mse", higher_is_better=False),
    summary="PhysioNet 2012: reconstruct 48 hours of 41 variables, or predict the second half",
    methods=methods(GENERATIVE, keys.Normalisation, keys.Reconstruction),
    full=physionet.PHYSIONET.load, has_all=lambda arrays: len(arrays) == 8000, **PATIENTS)
ACTIVITY = SeriesSet(
    name="activity", title="Human Activity", kind="points", metric=Metric("accuracy"), classes=activity.CLASSES,
    summary="Human Activity: seven activities at every moment from four irregularly read tags, pairwise attention "
            "on the latent state (z)",
    about_sample="400 simulated windows of movement, whose couplings are known", sample_title="simulated movement",
    source="activity", methods=methods(None, keys.RecordingSplit), sample=simulated.movement,
    full=activity.ACTIVITY.load, variables=(12, 12), outputs=7,
    values={"epochs": 70, "latent": 15, "recognition": 100, "units": 500, "gru_units": 50, "encoder_maps": 6},
    of_sample={"units": 64, "latent": 15, "recognition": 32, "epochs": 20, "learning_rate": 0.03, "batch_size": 20},
    has_all=lambda arrays: activity.recordings(arrays) >= activity.RECORDINGS)
