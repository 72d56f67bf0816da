"""Forecasting as a task for the trainer: models, batches, loss, evaluation after the cut, snapshots and report."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from acenode.attention import Correlation, Dense
from acenode.backend import Backend
from acenode.config import Config
from acenode.config import groups as keys
from acenode.data.batches import mixed_seed
from acenode.data.points import pad
from acenode.data.schedule import SporadicBatch
from acenode.data.series import SeriesArrays
from acenode.data.splits import Parts
from acenode.errors import UserError
from acenode.experiments import forecast_report as report
from acenode.experiments.base import recipe_of
from acenode.experiments.forecast_batches import ForecastErrors, ForecastSeries, ObservedTargets, error_report
from acenode.experiments.prediction import SeriesPrediction, checked
from acenode.experiments.recording import FamilyTask
from acenode.models.forecast.baselines import ODEVAE, GRUSimple, RecurrentForecaster, SequentialVAE, TimeLSTM, gru_d
from acenode.models.forecast.gaussian import Forecast, gaussian_nll
from acenode.models.forecast.gru_ode import GRUAttention, MatrixGRU, RowGRU
from acenode.models.forecast.gru_ode_bayes import GRUODEBayes
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe, never_interrupted

EVALUATION_BATCH = 250
DRAWS = 3  # separates the seeds of a model's random draws from those of the order of the series
RATE_DROP_EPOCH = 20  # the learning rate is divided by three after so many epochs
PROBES = 6
TIMES = 41  # at which the correlation of fixed attention keeps its running averages

def _recurrent(make: Callable[[int, int, Backend], Any]) -> Callable[[int, Config, Backend], nn.Module]:
    def build(variables: int, c: Config, backend: Backend) -> nn.Module:
        network = c.part(keys.ForecastNetwork)
        recurrence = make(variables, network.latent, backend)
        return RecurrentForecaster(recurrence, variables, network.units, network.dropout)

    return build


build_gru_simple, build_gru_d, build_t_lstm = _recurrent(GRUSimple), _recurrent(gru_d), _recurrent(TimeLSTM)


def build_seq_vae(variables: int, c: Config, backend: Backend) -> nn.Module:
    network, recognition = c.part(keys.ForecastNetwork), c.part(keys.Recognition).recognition
    return SequentialVAE(variables, network.latent, network.latent, recognition, network.units, network.dropout,
                         backend)


def build_node_vae(variables: int, c: Config, backend: Backend, mask: bool = False) -> nn.Module:
    network, recognition = c.part(keys.ForecastNetwork), c.part(keys.Recognition).recognition
    return ODEVAE(variables, network.latent, network.latent, recognition, network.units, mask=mask,
                  solver=c.part(keys.SolverSettings).to_solver(), dropout=network.dropout, backend=backend)


def build_node_vae_mask(variables: int, c: Config, backend: Backend) -> nn.Module:
    return build_node_vae(variables, c, backend, mask=True)


def build_gru_ode_bayes(variables: int, c: Config, backend: Backend, *, extra: int = 0,
                        attention: GRUAttention | None = None) -> nn.Module:
    network, jumps = c.part(keys.ForecastNetwork), c.part(keys.JumpNetwork)
    return GRUODEBayes(variables, network.latent, network.units, jumps.features, step=jumps.step_size,
                       dropout=network.dropout, mixing=jumps.mixing, minimal=jumps.cell == "minimal",
                       impute=jumps.impute, extra=extra, attention=attention, backend=backend)


def build_augmented(variables: int, c: Config, backend: Backend) -> nn.Module:
    return build_gru_ode_bayes(variables, c, backend, extra=c.part(keys.Augmentation).augment)


def build_ace(variables: int, c: Config, backend: Backend) -> nn.Module:
    d, chosen = c.part(keys.ForecastNetwork).latent, c.part(keys.JumpAttention)
    if chosen.attention == "none":
        return build_gru_ode_bayes(variables, c, backend)
    evolving = chosen.attention == "evolving"
    q = Dense((d,)) if chosen.initial == "dense" else Correlation((d,), bins=1 if evolving else TIMES)
    g = MatrixGRU(d) if chosen.g == "matrix" else RowGRU(d)
    attention = GRUAttention(g if evolving else None, q, every=chosen.attention_every, at_jump=chosen.at_jump,
                             own_feedback=chosen.feedback == "own")
    return build_gru_ode_bayes(variables, c, backend, attention=attention)


class ForecastTask(FamilyTask):
    """Trains a model to predict each observation before reading it; evaluates its forecasts after the cut."""

    def __init__(self, config: Config, arrays: SeriesArrays, parts: Parts, cut: float, model: nn.Module,
                 metric: Metric, device: torch.device, note: str = "") -> None:
        super().__init__(config, model, metric, device)
        step = model.step_size if isinstance(model, GRUODEBayes) else None
        self.data = ForecastSeries(arrays, parts, cut, device, step, note)
        self.size = min(config.part(keys.DecayTraining).batch_size, len(parts.train))
        self.iterations = math.ceil(len(parts.train) / self.size)
        mean = getattr(model.recurrence, "mean", None) if isinstance(model, RecurrentForecaster) else None
        if mean is not None:
            mean.copy_(torch.from_numpy(self.data.observed_mean()))
        self.probes = self.data.longest(parts.validation, PROBES)

    def recipe(self) -> Recipe:
        training = self.config.part(keys.DecayTraining)

        def adam(parameters: Any, lr: float, is_attention: bool) -> torch.optim.Optimizer:
            return torch.optim.Adam(parameters, lr=lr, weight_decay=0.0 if is_attention else training.weight_decay)

        return recipe_of(self.config, adam, lambda p: 1.0 if p * training.epochs < RATE_DROP_EPOCH else 1 / 3)

    def groups(self, detach_attention: bool) -> ParameterGroups:
        attention = self.model.attention if isinstance(self.model, GRUODEBayes) else None
        g, q = (None, None) if attention is None else (attention.g, attention.q)
        return ParameterGroups.split(self.model, [g], q, detach_attention)

    def batch(self, epoch: int, iteration: int) -> SporadicBatch:
        chosen = self.chosen(self.data.parts.train, self.size, epoch, iteration)
        return self.data.training_batch(chosen, mixed_seed(self.config.seed, epoch, iteration, DRAWS))

    def loss(self, batch: SporadicBatch, *, detach_attention: bool) -> Loss:
        predicted: Forecast = self.model(batch, detach_attention=detach_attention)
        target = batch.target
        nll = (gaussian_nll(target.x, predicted.mean, predicted.logvar) * target.m).sum()
        total = nll if predicted.extra is None else nll + predicted.extra
        with torch.no_grad():
            count = target.m.sum().clamp(min=1)
            metrics = {"mse": ((target.x - predicted.mean).square() * target.m).sum() / count, "negll": nll / count}
        return Loss(total / len(target.t), {k: v.detach() for k, v in metrics.items()}, predicted.evaluations)

    def batches(self, split: str, targets: int | None) -> list[SporadicBatch]:
        """Return the batches of a split to evaluate, made at the first call, with so many targets (None: all)."""
        if (split, targets) not in self.cached:
            index = getattr(self.data.parts, split)
            self.cached[split, targets] = [self.data.forecast_batch(index[i:i + EVALUATION_BATCH], targets)
                                           for i in range(0, len(index), EVALUATION_BATCH)]
        return self.cached[split, targets]

    def outputs(self, split: str, interrupted: Callable[[], bool] = never_interrupted) -> ForecastErrors | None:
        targets = self.config.part(keys.ForecastData).targets
        return self.evaluated(ForecastErrors(), self.batches(split, targets), interrupted)

    @torch.no_grad()
    def targets(self, split: str, targets: int | None) -> ObservedTargets:
        """Return the observed targets of a split with their predictions, in the order of series, time and variable."""
        self.model.eval()
        columns, first = [], 0
        for batch in self.batches(split, targets):
            mean, target = self.model(batch).mean, batch.target
            series, point, variable = (target.m > 0).nonzero(as_tuple=True)
            at = series, point, variable
            columns.append((series + first, variable, target.t[series, point], target.x[at], mean[at]))
            first += len(target.t)
        return ObservedTargets(*(torch.cat(column).cpu().numpy() for column in zip(*columns, strict=True)))

    def take_snapshot(self) -> dict[str, np.ndarray]:
        """Return h(t) and a(t) of the probes, which are observed up to the cut and forecast after it."""
        return report.snapshot(self.model, self.data, self.probes)

    @torch.no_grad()
    def report(self) -> dict[str, Any]:
        data = self.data
        edges = torch.linspace(data.cut, data.arrays.horizon, report.BINS + 1, device=data.device)
        out = self.evaluated(ForecastErrors(edges), self.batches("test", None), never_interrupted)
        targets = self.targets("test", self.config.part(keys.ForecastData).targets)
        return {**report.report(self.model, data, out.bins), "errors": error_report(targets, data.arrays.names)}

    def preprocess(self, inputs: Any) -> SporadicBatch:
        """Return series as a batch: rows with a value are read, rows of NaN are forecast."""
        arrays, seen, asked = self.data.arrays, [], []
        for s in checked(inputs, len(arrays.names), arrays.horizon):
            seen.append(s.part(np.flatnonzero(s.m.any(1))))
            asked.append(s.part(np.flatnonzero(~s.m.any(1))))
        if not all(len(s.t) for s in asked):
            raise UserError("there is nothing to forecast: add the times to forecast as rows of NaN")
        return self.data.to_forecast(pad(seen), pad(asked))

    def predict(self, inputs: Any) -> list[SeriesPrediction]:
        batch = self.preprocess(inputs)
        out, found = self.model(batch), []
        for i, valid in enumerate(batch.target.valid):
            mean, logvar = (x[i, valid].cpu().numpy() for x in (out.mean, out.logvar))
            found.append(SeriesPrediction(batch.target.t[i, valid].cpu().numpy(), mean, np.exp(0.5 * logvar)))
        return found
