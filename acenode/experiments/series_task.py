"""The latent family's experiments as tasks for the trainer: batches, objective, evaluation, probes and report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.config import Config
from acenode.config.groups import Decoder, Normalisation, ODERecurrenceSettings, Reconstruction, Training
from acenode.data.points import SeriesBatch
from acenode.experiments import series_report as report
from acenode.experiments.base import recipe_of
from acenode.experiments.series_batches import Layout, Records, SeriesBatches, SeriesSplits, assemble, cut_of
from acenode.experiments.series_outputs import SeriesOutputs
from acenode.models.latent.latent_ode import (
    POISSON,
    Predictions,
    kl_to_standard_normal,
    log_likelihood,
    negative_elbo,
    squared_error,
)
from acenode.models.layers import initialise
from acenode.training.metrics import batch_auc
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe, never_interrupted

EVALUATION_BATCH = 200
CLASS_WEIGHT = 100.0  # of the cross-entropy of records, relative to the evidence bound
DECAY, FLOOR = 0.999, 0.1  # of the learning rate: factor per iteration, smallest factor
PROBES, FRAMES = 8, 41


class SeriesTask:
    """One series experiment with one model. `kind` is what the model predicts: record (its class), points or vitals."""

    def __init__(self, config: Config, splits: SeriesSplits, model: nn.Module, kind: str, metric: Metric,
                 device: torch.device) -> None:
        self.config, self.splits, self.kind, self.metric = config, splits, kind, metric
        self.interrupted: Callable[[], bool] = never_interrupted
        self.partial = False  # True if only a part of the full data is present
        self.layout = _layout(config, model, kind, device)
        self.batches = SeriesBatches(splits.train, self.layout, config.part(Training).batch_size, config.seed)
        self.iterations = self.batches.iterations
        initialise(model, config.seed)
        self.model = model.to(device)
        recurrence: Any = getattr(model, "recurrence", None)
        if hasattr(recurrence, "mean"):
            recurrence.mean.copy_(torch.from_numpy(observed_mean(splits.train)))
        self.evaluation_batches: dict[str, list[SeriesBatch]] = {}  # cache: they are the same in every epoch
        self.probes = splits.validation.take(report.choose(splits.validation, kind, PROBES))

    # Training -----------------------------------------------------------------------------------------------------

    def recipe(self) -> Recipe:
        total = self.config.part(Training).epochs * self.iterations

        def adamax(parameters: Any, lr: float, is_attention: bool) -> torch.optim.Optimizer:
            return torch.optim.Adamax(parameters, lr=lr)

        return recipe_of(self.config, adamax, lambda p: max(FLOOR, DECAY ** (p * total)))

    def groups(self, detach_attention: bool) -> ParameterGroups:
        """Separate θ_g, in the encoder too if it has one, from θ_f and θ_others."""
        layers = [getattr(self.model, "ode", None), getattr(self.model, "encoder", None)]
        drift = getattr(getattr(layers[1], "recurrence", None), "drift", None)
        nets = [getattr(layers[0], "g", None), getattr(drift, "g", None)]
        return ParameterGroups.split(self.model, nets, getattr(layers[0], "q", None), detach_attention)

    def batch(self, epoch: int, iteration: int) -> SeriesBatch:
        return self.batches.batch(epoch, iteration)

    def loss(self, batch: SeriesBatch, *, detach_attention: bool) -> Loss:
        predicted: Predictions = self.model(batch, detach_attention=detach_attention)
        if self.kind == "points":
            entropy, right = self._point_terms(predicted, batch)
            return Loss(entropy, {"accuracy": right}, predicted.evaluations)
        assert predicted.x is not None
        likelihood = log_likelihood(predicted.x, batch.target, self.config.part(Normalisation).deviation)
        if predicted.posterior is None:
            total = -likelihood.mean()
        else:
            total = negative_elbo(likelihood, kl_to_standard_normal(*predicted.posterior), batch.kl)
        if predicted.times is not None:
            total = total - POISSON * predicted.times.mean()
        with torch.no_grad():
            metrics = {"mse": squared_error(predicted.x, batch.target)}
        if predicted.logits is not None:
            known = ~batch.label.isnan()
            label = torch.where(known, batch.label, 0.0).expand_as(predicted.logits)
            entropies = F.binary_cross_entropy_with_logits(predicted.logits, label, reduction="none") * known
            entropy = entropies.sum() / known.sum().clamp(min=1) / len(predicted.logits)
            total = total + CLASS_WEIGHT * entropy / len(predicted.logits)
            with torch.no_grad():
                metrics |= {"cross_entropy": entropy.detach(), "auc": batch_auc(predicted.logits, batch.label)}
        return Loss(total, metrics, predicted.evaluations)

    @staticmethod
    def _point_terms(predicted: Predictions, batch: SeriesBatch) -> tuple[Tensor, Tensor]:
        """Return cross-entropy and accuracy of the labelled points with an observation, over all trajectories."""
        assert predicted.logits is not None
        counted = ((batch.label >= 0) & batch.target.observed).expand(predicted.logits.shape[:-1])
        label = batch.label.clamp(min=0).expand_as(counted)
        entropy = F.cross_entropy(predicted.logits.flatten(0, -2), label.flatten(), reduction="none").view_as(counted)
        number = counted.sum().clamp(min=1)
        right = (predicted.logits.detach().argmax(-1) == label) & counted
        return (entropy * counted).sum() / number, right.sum() / number

    # Evaluation ---------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def outputs(self, split: str, interrupted: Callable[[], bool] = never_interrupted,
                bins: int = 0) -> SeriesOutputs | None:
        """Evaluate every record of a split; None if interrupted."""
        self.model.eval()
        cut = cut_of(getattr(self.splits, split), self.layout)
        edges = torch.linspace(cut or 0.0, 1.0, bins + 1, device=self.layout.device) if bins else None
        out = SeriesOutputs(self.kind, edges)
        for batch in self.batches_of(split):
            out.add(self.model(batch), batch)
            if interrupted():
                return None
        return out

    def batches_of(self, split: str) -> list[SeriesBatch]:
        """Return the batches of a split to evaluate, made at the first call."""
        if split not in self.evaluation_batches:
            records: Records = getattr(self.splits, split)
            cut, noise = cut_of(records, self.layout), self.noise(split, len(records))
            parts = [range(start, min(start + EVALUATION_BATCH, len(records)))
                     for start in range(0, len(records), EVALUATION_BATCH)]
            self.evaluation_batches[split] = [
                assemble(records.take(chosen), self.layout, noise[:, chosen], 0.0, cut) for chosen in parts]
        return self.evaluation_batches[split]

    def noise(self, split: str, count: int) -> Tensor:
        """Draw the noise of z0 for a split, (K, count, latent); that of a record does not depend on its batch."""
        generator = torch.Generator().manual_seed({"validation": 11, "test": 13}.get(split, 17))
        shape = (count, self.layout.trajectories, self.layout.latent)
        return torch.randn(shape, generator=generator).transpose(0, 1)

    def evaluate(self, split: str) -> dict[str, float]:
        """Return the metrics of a split, or nothing if interrupted before the last record."""
        out = self.outputs(split, self.interrupted)
        return {} if out is None else out.metrics(has_ode=getattr(self.model, "ode", None) is not None)

    # Snapshots and report -----------------------------------------------------------------------------------------

    @torch.no_grad()
    def snapshot(self) -> dict[str, np.ndarray]:
        """Return h(t) and a(t) of the probes from the posterior's mean, over the span of the generative ODE."""
        was_training = self.model.training
        self.model.eval()
        batch = assemble(self.probes, self.layout, None, 0.0, cut_of(self.splits.validation, self.layout))
        t = np.linspace(*batch.span, FRAMES)
        h, a = self.model.trajectory(batch, t.tolist())  # type: ignore[operator]
        acts = report.influence_of(self.model, batch, t.tolist())
        self.model.train(was_training)
        return report.snapshot(t, h, a, self.probes, self.kind) | acts

    @torch.no_grad()
    def report(self) -> dict[str, Any]:
        """Return what the test set shows at the end of training."""
        out = self.outputs("test", bins=report.TIMES if self.kind == "vitals" else 0)
        assert out is not None
        noise = self.noise("shown", min(report.SHOWN, len(self.splits.test)))
        return report.report(self.model, self.splits, self.layout, out, noise)


def _layout(config: Config, model: Any, kind: str, device: torch.device) -> Layout:
    """Return the layout of a model's batches; without the settings, one trajectory and its own times."""
    union = config.get("grid") is not None and config.part(ODERecurrenceSettings).grid == "union"
    trajectories = config.part(Decoder).trajectories if config.get("trajectories") is not None else 1
    chosen = config.part(Reconstruction) if kind == "vitals" else None
    cut = chosen.cut if chosen is not None and chosen.task == "extrapolation" else None
    return Layout(model.backwards, union, trajectories, model.latent, kind == "points", cut, device)


def observed_mean(records: Records) -> np.ndarray:
    """Return the mean of every variable over its observations."""
    total = sum(r.x.sum(0, dtype=np.float64) for r in records.series)
    count = sum(r.m.sum(0, dtype=np.float64) for r in records.series)
    return (total / np.maximum(count, 1)).astype(np.float32)
