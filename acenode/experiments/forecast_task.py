"""Forecasting as a task for the trainer: batches, objective, evaluation past the cut, probes and report."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from acenode.config import Config
from acenode.config.groups import DecayTraining, ForecastData
from acenode.data.batches import mixed_seed
from acenode.data.folds import ForecastParts
from acenode.data.points import Points, TimeSeries, pad
from acenode.data.schedule import make_schedule
from acenode.data.series import SeriesArrays
from acenode.data.sporadic import SporadicBatch
from acenode.experiments import forecast_report as report
from acenode.experiments.base import recipe_of
from acenode.models.forecast.gaussian import Forecast, gaussian_nll
from acenode.models.initialise import initialise
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe, never_interrupted

EVALUATION_BATCH = 250
DRAWS = 3  # tells what a model draws for a batch from the order of the series
LOWERED = 20  # epochs, after which the learning rate is a third
PROBES = 6


@dataclass
class Errors:
    """Sums over the observed targets of a split."""

    squared: float = 0.0
    surprise: float = 0.0
    observed: float = 0.0
    nfe: float | None = None  # evaluations of f in the last batch, of a model that has one
    bins: np.ndarray | None = None  # (3, bins): squared errors, surprises and counts over time


class ForecastTask:
    """Sporadic series by one model: each observation is said before it is read; in evaluation, what follows the cut."""

    def __init__(self, config: Config, arrays: SeriesArrays, parts: ForecastParts, cut: float, model: nn.Module,
                 metric: Metric, device: torch.device, note: str = "") -> None:
        self.config, self.arrays, self.parts, self.cut = config, arrays, parts, cut
        self.metric, self.note = metric, note
        self.interrupted: Callable[[], bool] = never_interrupted
        self.partial = False  # whether it is only a part of the full data
        self.device = device
        self.size = min(config.part(DecayTraining).batch_size, len(parts.parts.train))
        self.iterations = math.ceil(len(parts.parts.train) / self.size)
        self.epoch = -1
        initialise(model, config.seed)
        self.model = model.to(device)
        self.step: float | None = getattr(model, "step_size", None)  # of a model that steps from point to point
        recurrence: Any = getattr(model, "recurrence", None)
        if hasattr(recurrence, "mean"):
            recurrence.mean.copy_(torch.from_numpy(self._mean()))
        self.fixed: dict[tuple[str, int], list[SporadicBatch]] = {}  # batches of evaluation, made once
        longest = sorted(parts.parts.validation, key=lambda i: -int(arrays.offsets[i + 1] - arrays.offsets[i]))
        self.probes = longest[:PROBES]

    def _mean(self) -> np.ndarray:
        train = self.arrays.take(self.parts.parts.train)
        return (train.x.sum(0, dtype=np.float64) / np.maximum(train.m.sum(0), 1)).astype(np.float32)

    # Training -----------------------------------------------------------------------------------------------------

    def recipe(self) -> Recipe:
        training = self.config.part(DecayTraining)

        def adam(parameters: Any, lr: float, is_attention: bool) -> torch.optim.Optimizer:
            return torch.optim.Adam(parameters, lr=lr, weight_decay=0.0 if is_attention else training.weight_decay)

        return recipe_of(self.config, adam, lambda p: 1.0 if p * training.epochs < LOWERED else 1 / 3)

    def groups(self, detach_attention: bool) -> ParameterGroups:
        attention = getattr(self.model, "attention", None)
        return ParameterGroups.split(self.model, [getattr(attention, "g", None)], getattr(attention, "q", None),
                                     detach_attention)

    def batch(self, epoch: int, iteration: int) -> SporadicBatch:
        train = self.parts.parts.train
        if epoch != self.epoch:
            self.order = train[np.random.default_rng(mixed_seed(self.config.seed, epoch)).permutation(len(train))]
            self.epoch = epoch
        seen = pad(self.records(self.order[iteration * self.size:(iteration + 1) * self.size]))
        schedule = None if self.step is None else make_schedule(seen, None, self.step)
        seed = mixed_seed(self.config.seed, epoch, iteration, DRAWS)
        return SporadicBatch(seen, seen, self.arrays.horizon, seed, schedule).to(self.device)

    def records(self, index: Sequence[int] | np.ndarray) -> list[TimeSeries]:
        a, found = self.arrays, []
        for i in index:
            here = slice(int(a.offsets[i]), int(a.offsets[i + 1]))
            found.append(TimeSeries(a.t[here], a.x[here], a.m[here].astype(np.float32)))
        return found

    def loss(self, batch: SporadicBatch, *, detach_attention: bool) -> Loss:
        said: Forecast = self.model(batch, detach_attention=detach_attention)
        target = batch.target
        surprises = (gaussian_nll(target.x, said.mean, said.logvar) * target.m).sum()
        total = surprises if said.extra is None else surprises + said.extra
        with torch.no_grad():
            count = target.m.sum().clamp(min=1)
            metrics = {"mse": ((target.x - said.mean).square() * target.m).sum() / count, "negll": surprises / count}
        return Loss(total / len(target.t), {k: v.detach() for k, v in metrics.items()}, said.evaluations)

    # Evaluation ---------------------------------------------------------------------------------------------------

    def forecasts(self, index: Sequence[int] | np.ndarray, targets: int | None = None) -> SporadicBatch:
        """These series up to the cut, and the first rows after it: so many, or all."""
        seen, after = [], []
        for r in self.records(index):
            later = np.flatnonzero(r.t > self.cut)
            seen.append(r.part(r.t <= self.cut))
            after.append(r.part(later[:targets]))
        return self.to_forecast(pad(seen), pad(after))

    def to_forecast(self, seen: Points, target: Points) -> SporadicBatch:
        schedule = None if self.step is None else make_schedule(seen, target, self.step)
        return SporadicBatch(seen, target, self.arrays.horizon, schedule=schedule).to(self.device)

    def batches(self, split: str, targets: int | None) -> list[SporadicBatch]:
        key = split, targets or 0
        if key not in self.fixed:
            index = getattr(self.parts.parts, split)
            self.fixed[key] = [self.forecasts(index[i:i + EVALUATION_BATCH], targets)
                               for i in range(0, len(index), EVALUATION_BATCH)]
        return self.fixed[key]

    @torch.no_grad()
    def errors(self, split: str, targets: int | None, interrupted: Callable[[], bool] = never_interrupted,
               bins: int = 0) -> Errors | None:
        """Over every series of a split in evaluation; None where it was interrupted."""
        self.model.eval()
        out = Errors()
        edges = torch.linspace(self.cut, self.arrays.horizon, bins + 1, device=self.device) if bins else None
        for batch in self.batches(split, targets):
            said, target = self.model(batch), batch.target
            squared = (target.x - said.mean).square() * target.m
            surprises = gaussian_nll(target.x, said.mean, said.logvar) * target.m
            out.squared += float(squared.sum(dtype=torch.float64))
            out.surprise += float(surprises.sum(dtype=torch.float64))
            out.observed += float(target.m.sum())
            out.nfe = None if said.evaluations is None else said.evaluations.forward
            if edges is not None:
                sums = binned(target.t, edges, squared, surprises, target.m)
                out.bins = sums if out.bins is None else out.bins + sums
            if interrupted():
                return None
        return out

    def evaluate(self, split: str) -> dict[str, float]:
        """The split's metrics; none where it was interrupted before the last series."""
        out = self.errors(split, self.config.part(ForecastData).targets, self.interrupted)
        if out is None:
            return {}
        found = {"mse": out.squared / max(1.0, out.observed), "negll": out.surprise / max(1.0, out.observed)}
        return found if out.nfe is None else {**found, "nfe": out.nfe}

    # To look at ---------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def snapshot(self) -> dict[str, np.ndarray]:
        """h(t) and a(t) of the probes, who are observed up to the cut and forecast from there on."""
        was_training = self.model.training
        self.model.eval()
        found = report.snapshot(self)
        self.model.train(was_training)
        return found

    @torch.no_grad()
    def report(self) -> dict[str, Any]:
        self.model.eval()
        return report.report(self)


def binned(t: Tensor, edges: Tensor, *values: Tensor) -> np.ndarray:
    """Values (B, T, D) at times (B, T), summed over variables in the bins between the edges."""
    index = torch.bucketize(t.contiguous(), edges[1:-1], right=True).flatten()
    sums = torch.zeros(len(values), len(edges) - 1, dtype=torch.float64, device=t.device)
    for row, value in zip(sums, values, strict=True):
        row.index_add_(0, index, value.sum(-1).flatten().double())
    return sums.cpu().numpy()
