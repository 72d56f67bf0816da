"""The latent family's experiments as tasks for the trainer: batches, objective, evaluation, probes and report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
from acenode.experiments.series_batches import Layout, Records, SeriesBatches, assemble, cut_of
from acenode.models.initialise import initialise
from acenode.models.latent.elbo import POISSON, divergence, evidence_bound, log_likelihood, squared_error
from acenode.models.latent.model import Predictions
from acenode.training.metrics import batch_auc, binary_auc, macro_auc
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe, never_interrupted

EVALUATION_BATCH = 200
CLASS_WEIGHT = 100.0  # of the cross-entropy of records beside the evidence bound
DECAY, FLOOR = 0.999, 0.1  # of the learning rate, every iteration
PROBES, FRAMES = 8, 41


@dataclass(frozen=True)
class Splits:
    """Records for training, validation and test, and the names of the classes."""

    train: Records
    validation: Records
    test: Records
    classes: tuple[str, ...]
    coupling: np.ndarray | None = None


@dataclass
class Outputs:
    """What the model makes of a split: the sums that its metrics are made of, and the logits themselves."""

    logits: list[np.ndarray]
    labels: list[np.ndarray]
    diluted: float = 0.0
    squared: float = 0.0
    observed: float = 0.0
    records: int = 0
    nfe: float = 0.0
    batches: int = 0
    bins: np.ndarray | None = None  # (2, bins): squared errors and counts over time

    def known(self) -> tuple[np.ndarray, np.ndarray]:
        """Logits (K, N, …) and labels (N,) of all that has one."""
        logits, labels = np.concatenate(self.logits, 1), np.concatenate(self.labels)
        there = ~np.isnan(labels)
        return logits[:, there], labels[there]


class SeriesTask:
    """One series experiment by one model. `kind` is record, points or vitals: what is asked of the model."""

    def __init__(self, config: Config, splits: Splits, model: nn.Module, kind: str, metric: Metric,
                 device: torch.device) -> None:
        self.config, self.splits, self.kind, self.metric = config, splits, kind, metric
        self.interrupted: Callable[[], bool] = never_interrupted
        self.partial = False  # whether it is only a part of the full data
        self.layout = _layout(config, model, kind, device)
        self.batches = SeriesBatches(splits.train, self.layout, config.part(Training).batch_size, config.seed)
        self.iterations = self.batches.iterations
        initialise(model, config.seed)
        self.model = model.to(device)
        recurrence: Any = getattr(model, "recurrence", None)
        if hasattr(recurrence, "mean"):
            recurrence.mean.copy_(torch.from_numpy(observed_mean(splits.train)))
        self.probes = splits.validation.take(report.choose(splits.validation, kind, PROBES))

    # Training -----------------------------------------------------------------------------------------------------

    def recipe(self) -> Recipe:
        total = self.config.part(Training).epochs * self.iterations

        def adamax(parameters: Any, lr: float, is_attention: bool) -> torch.optim.Optimizer:
            return torch.optim.Adamax(parameters, lr=lr)

        return recipe_of(self.config, adamax, lambda p: max(FLOOR, DECAY ** (p * total)))

    def groups(self, detach_attention: bool) -> ParameterGroups:
        """θ_g, in the encoder too where it has one, apart from θ_f and θ_others."""
        layers = [getattr(self.model, "ode", None), getattr(self.model, "encoder", None)]
        drift = getattr(getattr(layers[1], "recurrence", None), "drift", None)
        nets = [getattr(layers[0], "g", None), getattr(drift, "g", None)]
        return ParameterGroups.split(self.model, nets, getattr(layers[0], "q", None), detach_attention)

    def batch(self, epoch: int, iteration: int) -> SeriesBatch:
        return self.batches.batch(epoch, iteration)

    def loss(self, batch: SeriesBatch, *, detach_attention: bool) -> Loss:
        said: Predictions = self.model(batch, detach_attention=detach_attention)
        if self.kind == "points":
            entropy, right = self._point_terms(said, batch)
            return Loss(entropy, {"accuracy": right}, said.evaluations)
        assert said.x is not None
        likelihood = log_likelihood(said.x, batch.target, self.config.part(Normalisation).deviation)
        if said.posterior is None:
            total = -likelihood.mean()
        else:
            total = evidence_bound(likelihood, divergence(*said.posterior), batch.kl)
        if said.times is not None:
            total = total - POISSON * said.times.mean()
        with torch.no_grad():
            metrics = {"mse": squared_error(said.x, batch.target)}
        if said.logits is not None:
            known = ~batch.label.isnan()
            label = torch.where(known, batch.label, 0.0).expand_as(said.logits)
            entropies = F.binary_cross_entropy_with_logits(said.logits, label, reduction="none") * known
            entropy = entropies.sum() / known.sum().clamp(min=1) / len(said.logits)
            total = total + CLASS_WEIGHT * entropy / len(said.logits)
            with torch.no_grad():
                metrics |= {"cross_entropy": entropy.detach(), "auc": batch_auc(said.logits, batch.label)}
        return Loss(total, metrics, said.evaluations)

    @staticmethod
    def _point_terms(said: Predictions, batch: SeriesBatch) -> tuple[Tensor, Tensor]:
        """Cross-entropy and accuracy over labelled points where something was observed, all trajectories."""
        assert said.logits is not None
        counted = ((batch.label >= 0) & batch.target.observed).expand(said.logits.shape[:-1])
        label = batch.label.clamp(min=0).expand_as(counted)
        entropy = F.cross_entropy(said.logits.flatten(0, -2), label.flatten(), reduction="none").view_as(counted)
        number = counted.sum().clamp(min=1)
        right = (said.logits.detach().argmax(-1) == label) & counted
        return (entropy * counted).sum() / number, right.sum() / number

    # Evaluation ---------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def outputs(self, split: str, interrupted: Callable[[], bool] = never_interrupted, bins: int = 0) -> Outputs | None:
        """Every record of a split in evaluation; None where it was interrupted."""
        self.model.eval()
        records: Records = getattr(self.splits, split)
        out = Outputs([], [])
        cut, noise = cut_of(records, self.layout), self.noise(split, len(records))
        edges = torch.linspace(cut or 0.0, 1.0, bins + 1, device=self.layout.device) if bins else None
        for start in range(0, len(records), EVALUATION_BATCH):
            chosen = range(start, min(start + EVALUATION_BATCH, len(records)))
            batch = assemble(records.take(chosen), self.layout, noise[:, chosen], 0.0, cut)
            self._gather(out, self.model(batch), batch, edges)
            if interrupted():
                return None
        return out

    def noise(self, split: str, count: int) -> Tensor:
        """The draws of z0 of a split: a record's do not depend on how it is batched."""
        generator = torch.Generator().manual_seed({"validation": 11, "test": 13}.get(split, 17))
        shape = (count, self.layout.trajectories, self.layout.latent)
        return torch.randn(shape, generator=generator).transpose(0, 1)

    def _gather(self, out: Outputs, said: Predictions, batch: SeriesBatch, edges: Tensor | None) -> None:
        B = len(batch.seen.t)
        if said.logits is not None and self.kind == "record":
            out.logits.append(said.logits.cpu().numpy())
            out.labels.append(batch.label.cpu().numpy())
        elif said.logits is not None:
            counted = (batch.label >= 0) & batch.target.observed
            out.logits.append(said.logits[:, counted].cpu().numpy())
            out.labels.append(batch.label[counted].cpu().numpy())
        if said.x is not None:
            error = (said.x - batch.target.x).square() * batch.target.m  # (K, B, T, D)
            out.diluted += float(squared_error(said.x, batch.target)) * B
            out.squared += float(error.sum()) / len(said.x)
            out.observed += float(batch.target.m.sum())
            if edges is not None:
                index = (torch.bucketize(batch.target.t, edges[1:-1], right=True)).flatten()
                sums = torch.zeros(2, len(edges) - 1, dtype=torch.float64, device=index.device)
                sums[0].index_add_(0, index, error.mean(0).sum(-1).flatten().double())
                sums[1].index_add_(0, index, batch.target.m.sum(-1).flatten().double())
                out.bins = sums.cpu().numpy() + (0 if out.bins is None else out.bins)
        out.records += B
        out.nfe += said.evaluations.forward if said.evaluations is not None else 0
        out.batches += 1

    def evaluate(self, split: str) -> dict[str, float]:
        """The split's metrics; none where it was interrupted before the last record."""
        out = self.outputs(split, self.interrupted)
        return {} if out is None else self.measures(out)

    def measures(self, out: Outputs) -> dict[str, float]:
        """The protocol's numbers, and the plain ones beside them under their own names."""
        found: dict[str, float] = {}
        if self.kind == "record":
            logits, labels = out.known()
            found |= {"auc": binary_auc(logits.ravel(), np.tile(labels, len(logits))),
                      "mean_logit_auc": binary_auc(logits.mean(0), labels)}
        if self.kind == "points":
            logits, labels = out.known()
            probability = torch.from_numpy(logits).softmax(-1).mean(0).numpy()
            found |= {"accuracy": float((logits.argmax(-1) == labels).mean()),
                      "macro_auc": macro_auc(probability, labels)}
        else:
            found |= {"mse": out.diluted / max(1, out.records), "micro_mse": out.squared / max(1.0, out.observed)}
        if getattr(self.model, "ode", None) is not None:
            found["nfe"] = out.nfe / max(1, out.batches)
        return found

    # To look at ---------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def snapshot(self) -> dict[str, np.ndarray]:
        """h(t) and a(t) of the probes from the posterior's mean, over the span of the generative ODE."""
        was_training = self.model.training
        self.model.eval()
        batch = assemble(self.probes, self.layout, None, 0.0, cut_of(self.splits.validation, self.layout))
        t = np.linspace(*batch.span, FRAMES)
        h, a = self.model.trajectory(batch, t.tolist())  # type: ignore[operator]
        self.model.train(was_training)
        return report.snapshot(t, h, a, self.probes, self.kind)

    @torch.no_grad()
    def report(self) -> dict[str, Any]:
        self.model.eval()
        return report.report(self)


def _layout(config: Config, model: Any, kind: str, device: torch.device) -> Layout:
    """Return the layout of a model's batches; without the settings, one trajectory and its own times."""
    union = config.get("grid") is not None and config.part(ODERecurrenceSettings).grid == "union"
    trajectories = config.part(Decoder).trajectories if config.get("trajectories") is not None else 1
    chosen = config.part(Reconstruction) if kind == "vitals" else None
    cut = chosen.cut if chosen is not None and chosen.task == "extrapolation" else None
    return Layout(model.backwards, union, trajectories, model.latent, kind == "points", cut, device)


def observed_mean(records: Records) -> np.ndarray:
    total = sum(r.x.sum(0, dtype=np.float64) for r in records.series)
    count = sum(r.m.sum(0, dtype=np.float64) for r in records.series)
    return (total / np.maximum(count, 1)).astype(np.float32)
