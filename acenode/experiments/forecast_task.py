"""Forecasting as a task for the trainer: batches, loss, evaluation after the cut, snapshots and report."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from acenode.config import Config
from acenode.config.groups import DecayTraining, ForecastData
from acenode.data.batches import mixed_seed
from acenode.data.schedule import SporadicBatch
from acenode.data.series import SeriesArrays
from acenode.data.splits import Parts
from acenode.experiments import forecast_report as report
from acenode.experiments.base import recipe_of
from acenode.experiments.forecast_batches import ForecastSeries
from acenode.experiments.forecast_errors import ObservedTargets, error_report
from acenode.models.forecast.gaussian import Forecast, gaussian_nll
from acenode.models.layers import initialise
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe, never_interrupted

EVALUATION_BATCH = 250
DRAWS = 3  # separates the seeds of a model's random draws from those of the order of the series
RATE_DROP_EPOCH = 20  # the learning rate is divided by three after so many epochs
PROBES = 6


@dataclass
class ForecastErrors:
    """Sums over the observed targets of a split."""

    squared: float = 0.0
    nll: float = 0.0
    observed: float = 0.0
    nfe: float | None = None  # evaluations of f in the last batch, if the model has an f
    bins: np.ndarray | None = None  # (3, bins): squared errors, negative log-likelihoods and counts over time


class ForecastTask:
    """Trains a model to predict each observation before reading it; evaluates its forecasts after the cut."""

    def __init__(self, config: Config, arrays: SeriesArrays, parts: Parts, cut: float, model: nn.Module,
                 metric: Metric, device: torch.device, note: str = "") -> None:
        self.config, self.metric = config, metric
        self.data = ForecastSeries(arrays, parts, cut, device, getattr(model, "step_size", None), note)
        self.interrupted: Callable[[], bool] = never_interrupted
        self.partial = False  # True if only a part of the full data is present
        self.data_note = ""  # how the full data was made, if it is not the published file
        self.size = min(config.part(DecayTraining).batch_size, len(parts.train))
        self.iterations = math.ceil(len(parts.train) / self.size)
        self.epoch = -1
        initialise(model, config.seed)
        self.model = model.to(device)
        recurrence: Any = getattr(model, "recurrence", None)
        if hasattr(recurrence, "mean"):
            recurrence.mean.copy_(torch.from_numpy(self.data.observed_mean()))
        self.evaluation_batches: dict[tuple[str, int], list[SporadicBatch]] = {}  # cache
        self.probes = self.data.longest(parts.validation, PROBES)

    # Training -----------------------------------------------------------------------------------------------------

    def recipe(self) -> Recipe:
        training = self.config.part(DecayTraining)

        def adam(parameters: Any, lr: float, is_attention: bool) -> torch.optim.Optimizer:
            return torch.optim.Adam(parameters, lr=lr, weight_decay=0.0 if is_attention else training.weight_decay)

        return recipe_of(self.config, adam, lambda p: 1.0 if p * training.epochs < RATE_DROP_EPOCH else 1 / 3)

    def groups(self, detach_attention: bool) -> ParameterGroups:
        attention = getattr(self.model, "attention", None)
        return ParameterGroups.split(self.model, [getattr(attention, "g", None)], getattr(attention, "q", None),
                                     detach_attention)

    def batch(self, epoch: int, iteration: int) -> SporadicBatch:
        train = self.data.parts.train
        if epoch != self.epoch:
            self.order = train[np.random.default_rng(mixed_seed(self.config.seed, epoch)).permutation(len(train))]
            self.epoch = epoch
        chosen = self.order[iteration * self.size:(iteration + 1) * self.size]
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

    # Evaluation ---------------------------------------------------------------------------------------------------

    def batches(self, split: str, targets: int | None) -> list[SporadicBatch]:
        key = split, targets or 0
        if key not in self.evaluation_batches:
            index = getattr(self.data.parts, split)
            self.evaluation_batches[key] = [self.data.forecast_batch(index[i:i + EVALUATION_BATCH], targets)
                                            for i in range(0, len(index), EVALUATION_BATCH)]
        return self.evaluation_batches[key]

    @torch.no_grad()
    def errors(self, split: str, targets: int | None, interrupted: Callable[[], bool] = never_interrupted,
               bins: int = 0) -> ForecastErrors | None:
        """Evaluate every series of a split; None if interrupted."""
        self.model.eval()
        out = ForecastErrors()
        data = self.data
        edges = torch.linspace(data.cut, data.arrays.horizon, bins + 1, device=data.device) if bins else None
        for batch in self.batches(split, targets):
            predicted, target = self.model(batch), batch.target
            squared = (target.x - predicted.mean).square() * target.m
            nll = gaussian_nll(target.x, predicted.mean, predicted.logvar) * target.m
            out.squared += float(squared.sum(dtype=torch.float64))
            out.nll += float(nll.sum(dtype=torch.float64))
            out.observed += float(target.m.sum())
            out.nfe = None if predicted.evaluations is None else predicted.evaluations.forward
            if edges is not None:
                sums = binned(target.t, edges, squared, nll, target.m)
                out.bins = sums if out.bins is None else out.bins + sums
            if interrupted():
                return None
        return out

    def evaluate(self, split: str) -> dict[str, float]:
        """Return the metrics of a split, or nothing if interrupted before the last series."""
        out = self.errors(split, self.config.part(ForecastData).targets, self.interrupted)
        if out is None:
            return {}
        found = {"mse": out.squared / max(1.0, out.observed), "negll": out.nll / max(1.0, out.observed)}
        return found if out.nfe is None else {**found, "nfe": out.nfe}

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

    # Snapshots and report -----------------------------------------------------------------------------------------

    @torch.no_grad()
    def snapshot(self) -> dict[str, np.ndarray]:
        """Return h(t) and a(t) of the probes, which are observed up to the cut and forecast after it."""
        was_training = self.model.training
        self.model.eval()
        found = report.snapshot(self.model, self.data, self.probes)
        self.model.train(was_training)
        return found

    @torch.no_grad()
    def report(self) -> dict[str, Any]:
        """Return the report on the test set, by the keys of result.json."""
        errors = self.errors("test", None, bins=report.BINS)
        assert errors is not None
        assert errors.bins is not None
        found = error_report(self.targets("test", self.config.part(ForecastData).targets), self.data.arrays.names)
        return {**report.report(self.model, self.data, errors.bins), "errors": found}


def binned(t: Tensor, edges: Tensor, *values: Tensor) -> np.ndarray:
    """Sum values (B, T, D) at times (B, T) over variables and within the bins between the edges."""
    index = torch.bucketize(t.contiguous(), edges[1:-1], right=True).flatten()
    sums = torch.zeros(len(values), len(edges) - 1, dtype=torch.float64, device=t.device)
    for row, value in zip(sums, values, strict=True):
        row.index_add_(0, index, value.sum(-1).flatten().double())
    return sums.cpu().numpy()
