"""A set of named variables as a task for the trainer: models, batches, loss, evaluation, probes, report."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.backend import Backend
from acenode.config import Config
from acenode.config import groups as keys
from acenode.data.batches import mixed_seed
from acenode.data.named_batches import NamedBatch, ScaledSet, correlation, scaled
from acenode.data.named_set import NamedSet, Record
from acenode.data.points import TimeSeries
from acenode.errors import UserError
from acenode.experiments import named_report as report
from acenode.experiments.base import recipe_of
from acenode.experiments.named_references import SquaredErrors, auc
from acenode.experiments.prediction import SLACK, Series, SeriesPrediction, checked_arrays
from acenode.experiments.recording import FamilyTask
from acenode.models.named.field import CONTROLS, BilinearRate, Embedding, MixedRate, OwnRate
from acenode.models.named.model import InitialAttention, NamedModel, NamedODE, NamedPredictions, NamedShape, OwnEncoder
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe, never_interrupted

EVALUATION_BATCH = 250
FLOOR = 0.05  # of the learning rate at the end, as a share of the first
HIDING = 2  # separates the seeds of what is hidden from those of the order of the series
RANK = 8  # of the bilinear form that moves attention


def build_ace(shape: NamedShape, c: Config, backend: Backend) -> NamedModel:
    return _build(shape, c, c.part(keys.NamedAttention), c.part(keys.NamedCoupling).coupling, backend)


def build_no_attention(shape: NamedShape, c: Config, backend: Backend) -> NamedModel:
    return _build(shape, c, keys.NamedAttention(attention="none"), "own", backend)


def build_mixed(shape: NamedShape, c: Config, backend: Backend) -> NamedModel:
    return _build(shape, c, c.part(keys.NamedAttention), "mixed", backend)


def _build(shape: NamedShape, c: Config, chosen: keys.NamedAttention, coupling: str, backend: Backend) -> NamedModel:
    network, V = c.part(keys.NamedNetwork), shape.variables
    k, units, controls = network.block, network.units, CONTROLS if shape.controlled else 0
    embedding = Embedding(V, network.embedding)
    f: nn.Module = MixedRate(V, k, units, controls)
    if coupling == "own":
        f = OwnRate(k, embedding, units, controls, attends=chosen.attention != "none")
    g = BilinearRate(k, network.embedding, RANK) if chosen.attention == "evolving" else None
    q = InitialAttention(V, chosen.initial) if chosen.attention != "none" else None
    ode = NamedODE(f, g, q, embedding, chosen.attention, chosen.pull, c.part(keys.SolverSettings).to_solver(),
                   backend)
    encoder = OwnEncoder(k, embedding, network.recognition, backwards=shape.controlled)
    return NamedModel(V, k, embedding, encoder, ode, classes=shape.classes, units=units,
                      relative=network.relative_to == "last")


@dataclass
class NamedOutputs:
    sums: np.ndarray
    counts: np.ndarray
    absolute: float = 0.0
    logits: list[np.ndarray] = field(default_factory=list)
    labels: list[np.ndarray] = field(default_factory=list)
    nfe: float = 0.0
    batches: int = 0

    def add(self, predicted: NamedPredictions, batch: NamedBatch) -> None:
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
        return np.concatenate(self.logits), np.concatenate(self.labels)

    def metrics(self) -> dict[str, float]:
        found = {"nfe": self.nfe / max(1, self.batches)}
        if self.logits:
            logits, labels = self.labelled()
            entropy = F.cross_entropy(torch.from_numpy(logits), torch.from_numpy(labels))
            return {"auc": auc(logits, labels), "accuracy": float((logits.argmax(1) == labels).mean()),
                    "cross_entropy": float(entropy), **found}
        return {"mse": self.errors.mse, "mae": self.absolute / max(1.0, float(self.counts.sum())), **found}


class NamedTask(FamilyTask):
    def __init__(self, config: Config, source: NamedSet, model: NamedModel, metric: Metric,
                 device: torch.device) -> None:
        self.correlation = correlation(source)
        super().__init__(config, model, metric, device)
        if model.ode.q is not None:
            model.ode.q.set_correlation(torch.from_numpy(self.correlation).float())
        self.data, self.source = ScaledSet.of(source), source
        self.size = min(config.part(keys.DecayTraining).batch_size, len(source.parts["train"]))
        self.iterations = len(source.parts["train"]) // self.size  # the last partial batch is left out
        self.probed = report.choose(source)
        self.probes = self.data.batch(self.probed).to(device)

    def recipe(self) -> Recipe:
        decay = self.config.part(keys.DecayTraining).weight_decay

        def adam(parameters: Any, lr: float, is_attention: bool) -> torch.optim.Optimizer:
            return torch.optim.AdamW(parameters, lr=lr, weight_decay=0.0 if is_attention else decay)

        return recipe_of(self.config, adam, lambda p: FLOOR + (1 - FLOOR) * (1 + math.cos(math.pi * p)) / 2)

    def groups(self, detach_attention: bool) -> ParameterGroups:
        return ParameterGroups.split(self.model, [self.model.ode.g], self.model.ode.q, detach_attention)

    def batch(self, epoch: int, iteration: int) -> NamedBatch:
        chosen = self.chosen(self.source.parts["train"], self.size, epoch, iteration)
        return self.data.batch(chosen, mixed_seed(self.config.seed, epoch, iteration, HIDING)).to(self.device)

    def loss(self, batch: NamedBatch, *, detach_attention: bool) -> Loss:
        predicted: NamedPredictions = self.model(batch, detach_attention=detach_attention)
        if predicted.logits is not None:
            right = (predicted.logits.detach().argmax(1) == batch.label).float().mean()
            return Loss(F.cross_entropy(predicted.logits, batch.label), {"accuracy": right}, predicted.evaluations)
        assert predicted.x is not None
        mse = masked_mse(predicted.x, batch.target.x, batch.target.m)
        return Loss(mse, {"mse": mse.detach()}, predicted.evaluations)

    def outputs(self, part: str, interrupted: Callable[[], bool] = never_interrupted) -> NamedOutputs | None:
        V = len(self.source.variables)
        return self.evaluated(NamedOutputs(np.zeros(V), np.zeros(V)), self.batches_of(part), interrupted)

    def batches_of(self, part: str) -> list[NamedBatch]:
        if part not in self.cached:
            index = self.source.parts[part]
            self.cached[part] = [self.data.batch(index[i:i + EVALUATION_BATCH]).to(self.device)
                                 for i in range(0, len(index), EVALUATION_BATCH)]
        return self.cached[part]

    def take_snapshot(self) -> dict[str, np.ndarray]:
        """Return what each variable's state reads, a(t) and the influence, for a few series."""
        return report.snapshot(self.model, self.probes, self.probed, self.source)

    def report(self) -> dict[str, Any]:
        out = self.outputs("test")
        assert out is not None
        return report.report(self.model, self.data, out.errors, self.correlation,
                             out.labelled() if out.logits else None, self.device)

    def new_batch(self, given: Sequence[Record], asked: Sequence[np.ndarray]) -> NamedBatch:
        """Return a batch of new records and, for each, the times that are asked for, in the set's unit."""
        source, V, target = self.source, len(self.source.variables), []
        for record, times in zip(given, asked, strict=True):
            t = ((times - record.t[0]) / source.duration).astype(np.float32)
            target.append(TimeSeries(t, np.zeros((len(t), V), np.float32), np.ones((len(t), V), np.float32)))
        made = self.data.assemble([0] * len(given), [scaled(record, source) for record in given], target)
        return replace(made, times=None).to(self.device)  # each series has times of its own

    def new_inputs(self, inputs: Sequence[Series]) -> tuple[list[Record], list[np.ndarray]]:
        """Return what is given of each series, and the times at which its values are asked for."""
        source = self.source
        unit, start = f" {source.time_unit}".rstrip(), self.data.span[0] * source.duration
        given, asked = [], []
        for i, (t, x) in enumerate(checked_arrays(inputs, len(source.variables))):
            known = ~np.isnan(x).all(1)
            if not known.any():
                raise UserError(f"series {i} has no values")
            since = t - t[known][0]
            if since[0] < 0 or since[-1] > source.duration * (1 + SLACK):
                raise UserError(f"series {i} must begin with a value and last at most {source.duration:g}{unit}, as in "
                                "training")
            rows = known if source.task == "forecast" else np.ones(len(t), bool)
            record = Record.from_gaps(t[rows], x[rows])
            if source.task == "forecast":
                if known.all():
                    raise UserError(f"series {i} has no row of NaN, so there is nothing to forecast: replace the "
                                    f"values from {source.given:g}{unit} after its beginning on by NaN, or add rows "
                                    "of NaN at the times to forecast")
                if not record.seen(source.given).all():
                    raise UserError(f"series {i} has values that are not in its first {source.given:g}{unit}, which "
                                    "the forecast is made from: replace them by NaN")
                if since[~known][0] < start - SLACK * source.duration:
                    raise UserError(f"series {i} has a row of NaN less than {start:g}{unit} after its beginning, where "
                                    "the forecast starts: leave it out")
            given.append(record)
            asked.append(t[~known] if source.task == "forecast" else t if source.task == "fill" else t[:0])
        return given, asked

    def preprocess(self, inputs: Any) -> NamedBatch:
        return self.new_batch(*self.new_inputs(inputs))

    def predict(self, inputs: Any) -> list[SeriesPrediction]:
        given, asked = self.new_inputs(inputs)
        out = self.model(self.new_batch(given, asked))
        if out.logits is not None:
            rows = torch.softmax(out.logits.double(), -1).cpu().numpy()
            return [SeriesPrediction(record.t, probabilities=row) for record, row in zip(given, rows, strict=True)]
        x = out.x.double().cpu().numpy() * self.source.std + self.source.mean
        return [SeriesPrediction(t, x[i, :len(t)]) for i, t in enumerate(asked)]


def masked_mse(x: Tensor, target: Tensor, m: Tensor) -> Tensor:
    return ((x - target).square() * m).sum() / m.sum().clamp(min=1)
