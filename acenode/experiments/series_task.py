"""The latent family's experiments as tasks for the trainer: models, batches, objective, evaluation, probes, report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acenode.attention import Correlation, Dense
from acenode.backend import Backend
from acenode.config import Config
from acenode.config import groups as keys
from acenode.data.batches import mixed_seed
from acenode.data.points import SeriesBatch, TimeSeries
from acenode.errors import UserError
from acenode.experiments import series_report as report
from acenode.experiments.base import recipe_of
from acenode.experiments.prediction import SeriesPrediction, checked
from acenode.experiments.recording import FamilyTask
from acenode.experiments.series_batches import (
    Layout,
    Records,
    SeriesOutputs,
    SeriesSplits,
    assemble,
    cut_of,
    observed_mean,
)
from acenode.models.latent import latent_ode
from acenode.models.latent.latent_ode import SeriesShape
from acenode.models.latent.ode_rnn import (
    ODERNN,
    AttentiveDrift,
    Autoregressive,
    Drift,
    ODEEncoder,
    RecurrentVAE,
    RNNEncoder,
)
from acenode.models.layers import MLP, LinearLayer, MissingDataGRU, MLPField
from acenode.node import ACENODE, NODE, AugmentedNODE
from acenode.training.metrics import batch_auc
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe, never_interrupted

TIMES = 21  # at which the correlation of fixed attention keeps its running averages
LAST_UNITS = 100  # hidden units of the network that predicts from the state of an ODE-RNN
NOISE = 1  # separates the seeds of the noise of z0 from those of the order of the records
EVALUATION_BATCH = 200
CLASS_WEIGHT = 100.0  # of the cross-entropy of records, relative to the evidence bound
DECAY, FLOOR = 0.999, 0.1  # of the learning rate: factor per iteration, smallest factor
PROBES, FRAMES = 8, 41

def _classifier(shape: SeriesShape, inputs: int, backend: Backend, *, linear: bool = True) -> nn.Module | None:
    if shape.classify is None:
        return None
    if linear and shape.classify == "points":
        return LinearLayer(inputs, shape.classes, backend=backend)
    return latent_ode.classifier(inputs, shape.classes, backend)


def _where(shape: SeriesShape, config: Config) -> str:
    """Return which state is classified: "points" (each), "start" or "end"."""
    if shape.classify == "points":
        return "points"
    return config.part(keys.RecordClassification).classify_from if config.get("classify_from") is not None else "start"


def _encoder(shape: SeriesShape, c: Config, latent: int, backend: Backend, *, attentive: bool = False) -> nn.Module:
    chosen, units = c.part(keys.ODERecognition), c.part(keys.SeriesNetwork).units
    r, maps = chosen.recognition, chosen.encoder_maps
    f = MLPField(r, r, units, maps, backend=backend)
    g = MLPField(r, r * r, units, maps, square=True, backend=backend) if attentive else None
    drift = Drift(f) if g is None else AttentiveDrift(f, g)
    return ODEEncoder(latent, ODERNN(2 * shape.variables, r, chosen.gru_units, drift, backend))


def _latent(shape: SeriesShape, c: Config, encoder: nn.Module, ode: nn.Module, size: int,
            backend: Backend) -> nn.Module:
    """Return a model that decodes z of `size` coordinates, and classifies all of them if it classifies points."""
    latent = c.part(keys.SeriesNetwork).latent
    classified = size if shape.classify == "points" else latent
    emission = LinearLayer(size, shape.variables, backend=backend)
    classes = _classifier(shape, classified, backend)
    return latent_ode.LatentODE(encoder, ode, emission, classes, latent, _where(shape, c))


def _field(c: Config, size: int, backend: Backend) -> nn.Module:
    decoder = c.part(keys.Decoder)
    return MLPField(size, size, c.part(keys.SeriesNetwork).units, decoder.f_maps, bounded=decoder.bounded,
                    backend=backend)


def build_latent_ode(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    d, solver = c.part(keys.SeriesNetwork).latent, c.part(keys.SolverSettings).to_solver()
    return _latent(shape, c, _encoder(shape, c, d, backend), NODE(_field(c, d, backend), solver), d, backend)


def build_augmented(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    d, extra = c.part(keys.SeriesNetwork).latent, c.part(keys.Augmentation).augment
    solver = c.part(keys.SolverSettings).to_solver()
    ode = AugmentedNODE(_field(c, d + extra, backend), extra, solver=solver)
    return _latent(shape, c, _encoder(shape, c, d, backend), ode, d + extra, backend)


def build_ace(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    network, decoder, chosen = c.part(keys.SeriesNetwork), c.part(keys.Decoder), c.part(keys.LatentAttention)
    d, attention = network.latent, chosen.attention
    g: nn.Module | None = None
    if attention == "evolving":
        g = MLPField(d, d * d, network.units, decoder.f_maps, square=True, backend=backend)
    q: nn.Module | None = None
    if attention != "none":
        bins = TIMES if attention == "fixed" else 1
        q = Dense((d,)) if chosen.initial == "dense" else Correlation((d,), bins=bins)
        q = latent_ode.PerTrajectory(q, decoder.trajectories)
    ode = ACENODE(_field(c, d, backend), g, q, attention=attention, solver=c.part(keys.SolverSettings).to_solver())
    return _latent(shape, c, _encoder(shape, c, d, backend, attentive=chosen.attention_in == "both"), ode, d, backend)


def build_poisson(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    network, solver = c.part(keys.SeriesNetwork), c.part(keys.SolverSettings).to_solver()
    d, D = network.latent, shape.variables
    ode = latent_ode.PoissonODE(_field(c, 2 * d, backend), MLP(d, D, network.units, 3, backend=backend), d, D, solver)
    encoder, classes = _encoder(shape, c, 2 * d, backend), _classifier(shape, 2 * d, backend)
    return latent_ode.LatentPoisson(encoder, ode, LinearLayer(d, D, backend=backend), classes, 2 * d, _where(shape, c))


def build_latent_rnn(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    d, chosen = c.part(keys.SeriesNetwork).latent, c.part(keys.GatedRecognition)
    encoder = RNNEncoder(shape.variables, d, chosen.recognition, chosen.gru_units, backend)
    return _latent(shape, c, encoder, NODE(_field(c, d, backend), c.part(keys.SolverSettings).to_solver()), d, backend)


def build_rnn_vae(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    network = c.part(keys.SeriesNetwork)
    d, units = network.latent, network.units
    encoder = RNNEncoder(shape.variables, d, c.part(keys.Recognition).recognition, units, backend)
    return RecurrentVAE(encoder, shape.variables, d, units, _classifier(shape, d, backend), _where(shape, c), backend)


def _recurrent(*, gap: bool, impute: bool, decay: bool) -> Callable[[SeriesShape, Config, Backend], nn.Module]:
    """Return a builder of recurrent networks with these treatments of missing values."""
    def build(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
        network = c.part(keys.SeriesNetwork)
        d = network.latent
        gru = MissingDataGRU(shape.variables, d, gap=gap, impute=impute, decay=decay, backend=backend)
        return Autoregressive(gru, shape.variables, d, network.units, _classifier(shape, d, backend), _where(shape, c),
                              backend)

    return build


build_rnn_dt = _recurrent(gap=True, impute=False, decay=False)
build_rnn_impute = _recurrent(gap=True, impute=True, decay=False)
build_rnn_decay = _recurrent(gap=False, impute=False, decay=True)
build_gru_d = _recurrent(gap=False, impute=True, decay=True)


def build_ode_rnn(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
    network, chosen = c.part(keys.SeriesNetwork), c.part(keys.ODERecurrenceSettings)
    d = network.latent
    drift = Drift(MLPField(d, d, network.units, chosen.encoder_maps, backend=backend))
    recurrence = ODERNN(2 * shape.variables, d, chosen.gru_units, drift, backend)
    return Autoregressive(recurrence, shape.variables, d, LAST_UNITS, _classifier(shape, d, backend, linear=False),
                          _where(shape, c), backend)


class SeriesTask(FamilyTask):
    """One series experiment with one model. `kind` is what the model predicts: record (its class), points or vitals."""

    def __init__(self, config: Config, splits: SeriesSplits, model: nn.Module, kind: str, metric: Metric,
                 device: torch.device) -> None:
        super().__init__(config, model, metric, device)
        self.splits, self.kind, self.layout = splits, kind, _layout(config, model, kind, device)
        self.size = min(config.part(keys.Training).batch_size, len(splits.train))
        self.iterations = len(splits.train) // self.size  # the last partial batch is left out
        recurrence = getattr(model, "recurrence", None)
        if isinstance(recurrence, MissingDataGRU):
            recurrence.mean.copy_(torch.from_numpy(observed_mean(splits.train)))
        self.probes = splits.validation.take(report.choose(splits.validation, kind, PROBES))

    def recipe(self) -> Recipe:
        total = self.config.part(keys.Training).epochs * self.iterations

        def adamax(parameters: Any, lr: float, is_attention: bool) -> torch.optim.Optimizer:
            return torch.optim.Adamax(parameters, lr=lr)

        return recipe_of(self.config, adamax, lambda p: max(FLOOR, DECAY ** (p * total)))

    def groups(self, detach_attention: bool) -> ParameterGroups:
        """Separate θ_g, in the encoder too if it has one, from θ_f and θ_others."""
        if not isinstance(self.model, latent_ode.LatentODE):
            return ParameterGroups.split(self.model, [], None, detach_attention)
        ode, encoder = self.model.ode, self.model.encoder
        drift = encoder.recurrence.drift if isinstance(encoder, ODEEncoder) else None
        nets = [getattr(ode, "g", None), drift.g if isinstance(drift, AttentiveDrift) else None]
        return ParameterGroups.split(self.model, nets, getattr(ode, "q", None), detach_attention)

    def batch(self, epoch: int, iteration: int) -> SeriesBatch:
        train, layout = self.splits.train, self.layout
        records = train.take(self.chosen(np.arange(len(train)), self.size, epoch, iteration))
        generator = torch.Generator().manual_seed(mixed_seed(self.config.seed, epoch, iteration, NOISE))
        noise = torch.randn(layout.trajectories, self.size, layout.latent, generator=generator)
        return assemble(records, layout, noise, latent_ode.kl_weight(epoch), cut_of(records, layout))

    def loss(self, batch: SeriesBatch, *, detach_attention: bool) -> Loss:
        predicted: latent_ode.Predictions = self.model(batch, detach_attention=detach_attention)
        if self.kind == "points":
            entropy, right = self._point_terms(predicted, batch)
            return Loss(entropy, {"accuracy": right}, predicted.evaluations)
        assert predicted.x is not None
        deviation = self.config.part(keys.Normalisation).deviation
        likelihood = latent_ode.log_likelihood(predicted.x, batch.target, deviation)
        if predicted.posterior is None:
            total = -likelihood.mean()
        else:
            kl = latent_ode.kl_to_standard_normal(*predicted.posterior)
            total = latent_ode.negative_elbo(likelihood, kl, batch.kl)
        if predicted.times is not None:
            total = total - latent_ode.POISSON * predicted.times.mean()
        with torch.no_grad():
            metrics = {"mse": latent_ode.squared_error(predicted.x, batch.target)}
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
    def _point_terms(predicted: latent_ode.Predictions, batch: SeriesBatch) -> tuple[Tensor, Tensor]:
        """Return cross-entropy and accuracy of the labelled points with an observation, over all trajectories."""
        assert predicted.logits is not None
        counted = ((batch.label >= 0) & batch.target.observed).expand(predicted.logits.shape[:-1])
        label = batch.label.clamp(min=0).expand_as(counted)
        entropy = F.cross_entropy(predicted.logits.flatten(0, -2), label.flatten(), reduction="none").view_as(counted)
        number = counted.sum().clamp(min=1)
        right = (predicted.logits.detach().argmax(-1) == label) & counted
        return (entropy * counted).sum() / number, right.sum() / number

    def outputs(self, split: str, interrupted: Callable[[], bool] = never_interrupted,
                bins: int = 0) -> SeriesOutputs | None:
        cut = cut_of(getattr(self.splits, split), self.layout)
        edges = torch.linspace(cut or 0.0, 1.0, bins + 1, device=self.layout.device) if bins else None
        out = SeriesOutputs(self.kind, isinstance(self.model, latent_ode.LatentODE), edges)
        return self.evaluated(out, self.batches_of(split), interrupted)

    def batches_of(self, split: str) -> list[SeriesBatch]:
        if split not in self.cached:
            records: Records = getattr(self.splits, split)
            cut, noise = cut_of(records, self.layout), self.noise(split, len(records))
            parts = [range(start, min(start + EVALUATION_BATCH, len(records)))
                     for start in range(0, len(records), EVALUATION_BATCH)]
            self.cached[split] = [assemble(records.take(chosen), self.layout, noise[:, chosen], 0.0, cut)
                                  for chosen in parts]
        return self.cached[split]

    def noise(self, split: str, count: int) -> Tensor:
        """Draw the noise of z0 for a split, (K, count, latent); that of a record does not depend on its batch."""
        generator = torch.Generator().manual_seed({"validation": 11, "test": 13}.get(split, 17))
        shape = (count, self.layout.trajectories, self.layout.latent)
        return torch.randn(shape, generator=generator).transpose(0, 1)

    def take_snapshot(self) -> dict[str, np.ndarray]:
        """Return h(t) and a(t) of the probes from the posterior's mean, over the span of the generative ODE."""
        batch = assemble(self.probes, self.layout, None, 0.0, cut_of(self.splits.validation, self.layout))
        t = np.linspace(*batch.span, FRAMES)
        h, a = self.model.trajectory(batch, t.tolist())
        return report.snapshot(t, h, a, self.probes, self.kind) | report.influence_of(self.model, batch, t.tolist())

    @torch.no_grad()
    def report(self) -> dict[str, Any]:
        out = self.outputs("test", bins=report.TIMES if self.kind == "vitals" else 0)
        assert out is not None
        chosen = self.splits.test.take(report.choose(self.splits.test, self.kind, report.SHOWN))
        batch = assemble(chosen, self.layout, self.noise("shown", len(chosen)), 0.0,
                         cut_of(self.splits.test, self.layout))
        return report.report(self.model, self.splits, out, chosen, batch)

    def preprocess(self, inputs: Any) -> SeriesBatch:
        """Return series as a batch: values scaled as in training, times in units of the horizon."""
        train = self.splits.train
        if train.scale is None:
            raise UserError("the scale of this experiment's values is not known")
        series = [TimeSeries((s.t / train.horizon).astype(np.float32), train.scale.apply(s.x, s.m > 0), s.m)
                  for s in checked(inputs, len(train.names), train.horizon)]
        labels = [np.full(len(s.t), -1) if self.layout.points else np.asarray(np.nan) for s in series]
        records = Records(series, labels, [str(i) for i in range(len(series))], train.horizon, train.unit,
                          train.names, train.scale)
        return assemble(records, self.layout, None, 0.0, cut_of(train, self.layout))

    def predict(self, inputs: Any) -> list[SeriesPrediction]:
        batch = self.preprocess(inputs)
        scale, out = self.splits.train.scale, self.model(batch)
        assert scale is not None
        found = []
        for i, valid in enumerate(batch.target.valid):
            t = batch.target.t[i, valid].cpu().numpy() * self.splits.train.horizon
            x = None if out.x is None else scale.invert(out.x.mean(0)[i, valid].cpu().numpy())
            probabilities = None
            if out.logits is not None and self.layout.points:
                probabilities = torch.softmax(out.logits.mean(0)[i, valid], -1).cpu().numpy()
            elif out.logits is not None:
                yes = float(torch.sigmoid(out.logits[:, i]).mean())
                probabilities = np.array([1 - yes, yes])
            found.append(SeriesPrediction(t, x, probabilities=probabilities))
        return found


def _layout(config: Config, model: Any, kind: str, device: torch.device) -> Layout:
    """Return the layout of a model's batches; without the settings, one trajectory and its own times."""
    union = config.get("grid") is not None and config.part(keys.ODERecurrenceSettings).grid == "union"
    trajectories = config.part(keys.Decoder).trajectories if config.get("trajectories") is not None else 1
    chosen = config.part(keys.Reconstruction) if kind == "vitals" else None
    cut = chosen.cut if chosen is not None and chosen.task == "extrapolation" else None
    return Layout(model.backwards, union, trajectories, model.latent, kind == "points", cut, device)
