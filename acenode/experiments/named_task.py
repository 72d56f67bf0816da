"""A set of named variables as a task for the trainer: batches, loss, evaluation, probes and report."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from acenode.config import Config
from acenode.config.groups import DecayTraining
from acenode.data.batches import mixed_seed
from acenode.data.named_batches import NamedBatch, ScaledSet, correlation
from acenode.data.named_set import NamedSet
from acenode.experiments import named_report as report
from acenode.experiments.base import recipe_of
from acenode.experiments.named_references import SquaredErrors, auc
from acenode.models.layers import initialise
from acenode.models.named.model import NamedModel, NamedPredictions
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe, never_interrupted

EVALUATION_BATCH = 250
FLOOR = 0.05  # of the learning rate at the end, as a share of the first
HIDING = 2  # separates the seeds of what is hidden from those of the order of the series


@dataclass
class NamedOutputs:
    """What a model predicts on a whole part: summed errors, or logits."""

    sums: np.ndarray
    counts: np.ndarray
    absolute: float = 0.0
    logits: list[np.ndarray] = field(default_factory=list)
    labels: list[np.ndarray] = field(default_factory=list)
    nfe: float = 0.0
    batches: int = 0

    def add(self, predicted: NamedPredictions, batch: NamedBatch) -> None:
        """Add the predictions of one batch."""
        if predicted.logits is not None:
            self.logits.append(predicted.logits.double().cpu().numpy())
            self.labels.append(batch.label.cpu().numpy())
        if predicted.x is not None:
            m = batch.target.m.double()
            error = (predicted.x.double() - batch.target.x.double()) * m
            self.sums += error.square().sum((0, 1)).cpu().numpy()
            self.counts += m.sum((0, 1)).cpu().numpy()
            self.absolute += float(error.abs().sum())
        self.nfe += predicted.evaluations.forward
        self.batches += 1

    @property
    def errors(self) -> SquaredErrors:
        return SquaredErrors(self.sums, self.counts)

    def labelled(self) -> tuple[np.ndarray, np.ndarray]:
        """Return logits (N, classes) and labels (N,)."""
        return np.concatenate(self.logits), np.concatenate(self.labels)

    def metrics(self) -> dict[str, float]:
        found = {"nfe": self.nfe / max(1, self.batches)}
        if self.logits:
            logits, labels = self.labelled()
            entropy = F.cross_entropy(torch.from_numpy(logits), torch.from_numpy(labels))
            return {"auc": auc(logits, labels), "accuracy": float((logits.argmax(1) == labels).mean()),
                    "cross_entropy": float(entropy), **found}
        return {"mse": self.errors.mse, "mae": self.absolute / max(1.0, float(self.counts.sum())), **found}


class NamedTask:
    """One set of named variables with one model."""

    def __init__(self, config: Config, source: NamedSet, model: NamedModel, metric: Metric,
                 device: torch.device) -> None:
        self.config, self.metric, self.device = config, metric, device
        self.data, self.source = ScaledSet.of(source), source
        self.data_fingerprint = ""  # of an imported set; kept with the run
        self.interrupted: Callable[[], bool] = never_interrupted
        self.size = min(config.part(DecayTraining).batch_size, len(source.parts["train"]))
        self.iterations = len(source.parts["train"]) // self.size  # the last partial batch is left out
        self.epoch = -1
        self.correlation = correlation(source)
        initialise(model, config.seed)
        if model.ode.q is not None:
            model.ode.q.set_correlation(torch.from_numpy(self.correlation).float())
        self.model = model.to(device)
        self.evaluation_batches: dict[str, list[NamedBatch]] = {}  # cache: they are the same in every epoch
        self.probed = report.choose(source)
        self.probes = self.data.batch(self.probed).to(device)

    # Training -----------------------------------------------------------------------------------------------------

    def recipe(self) -> Recipe:
        decay = self.config.part(DecayTraining).weight_decay

        def adam(parameters: Any, lr: float, is_attention: bool) -> torch.optim.Optimizer:
            return torch.optim.AdamW(parameters, lr=lr, weight_decay=0.0 if is_attention else decay)

        return recipe_of(self.config, adam, lambda p: FLOOR + (1 - FLOOR) * (1 + math.cos(math.pi * p)) / 2)

    def groups(self, detach_attention: bool) -> ParameterGroups:
        return ParameterGroups.split(self.model, [self.model.ode.g], self.model.ode.q, detach_attention)

    def batch(self, epoch: int, iteration: int) -> NamedBatch:
        train, seed = self.source.parts["train"], self.config.seed
        if epoch != self.epoch:
            self.order = train[np.random.default_rng(mixed_seed(seed, epoch)).permutation(len(train))]
            self.epoch = epoch
        chosen = self.order[iteration * self.size:(iteration + 1) * self.size]
        return self.data.batch(chosen, mixed_seed(seed, epoch, iteration, HIDING)).to(self.device)

    def loss(self, batch: NamedBatch, *, detach_attention: bool) -> Loss:
        predicted: NamedPredictions = self.model(batch, detach_attention=detach_attention)
        if predicted.logits is not None:
            right = (predicted.logits.detach().argmax(1) == batch.label).float().mean()
            return Loss(F.cross_entropy(predicted.logits, batch.label), {"accuracy": right}, predicted.evaluations)
        assert predicted.x is not None
        mse = masked_mse(predicted.x, batch.target.x, batch.target.m)
        return Loss(mse, {"mse": mse.detach()}, predicted.evaluations)

    # Evaluation ---------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def outputs(self, part: str, interrupted: Callable[[], bool] = never_interrupted) -> NamedOutputs | None:
        """Evaluate every series of a part; None if interrupted."""
        self.model.eval()
        V = len(self.source.variables)
        out = NamedOutputs(np.zeros(V), np.zeros(V))
        for batch in self.batches_of(part):
            out.add(self.model(batch), batch)
            if interrupted():
                return None
        return out

    def batches_of(self, part: str) -> list[NamedBatch]:
        """Return the batches of a part to evaluate, made at the first call."""
        if part not in self.evaluation_batches:
            index = self.source.parts[part]
            self.evaluation_batches[part] = [self.data.batch(index[i:i + EVALUATION_BATCH]).to(self.device)
                                             for i in range(0, len(index), EVALUATION_BATCH)]
        return self.evaluation_batches[part]

    def evaluate(self, split: str) -> dict[str, float]:
        """Return the metrics of a part, or nothing if interrupted before the last series."""
        out = self.outputs(split, self.interrupted)
        return {} if out is None else out.metrics()

    # Snapshots and report -----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, np.ndarray]:
        """Return what each variable's state reads, a(t) and the influence, for a few series."""
        was_training = self.model.training
        self.model.eval()
        found = report.snapshot(self.model, self.probes, self.probed, self.source)
        self.model.train(was_training)
        return found

    def report(self) -> dict[str, Any]:
        """Return what the test part shows at the end of training."""
        out = self.outputs("test")
        assert out is not None
        return report.report(self.model, self.data, out.errors, self.correlation,
                             out.labelled() if out.logits else None, self.device)


def masked_mse(x: Tensor, target: Tensor, m: Tensor) -> Tensor:
    """Return the mean squared error where m is one."""
    return ((x - target).square() * m).sum() / m.sum().clamp(min=1)
