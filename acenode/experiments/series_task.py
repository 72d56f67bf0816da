"""The latent family's experiments as tasks for the trainer: models, batches, objective, evaluation, probes, report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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
from acenode.data.variables import unit
from acenode.errors import UserError
from acenode.experiments.base import optimiser_of, recipe_of
from acenode.experiments.recording import (
    FamilyTask,
    SeriesPrediction,
    attention_report,
    checked,
    confusion,
    excess_flow,
    half,
    in_turn,
    over_time,
    record_curves,
    with_attention,
)
from acenode.experiments.series_batches import (
    Layout,
    Records,
    SeriesOutputs,
    SeriesSplits,
    assemble,
    cut_of,
    observed_mean,
)
from acenode.models import latent as latent_ode
from acenode.models.influence import layer_influence
from acenode.models.latent import (
    ODERNN,
    AttentiveDrift,
    Autoregressive,
    Drift,
    ODEEncoder,
    RecurrentVAE,
    RNNEncoder,
    SeriesShape,
)
from acenode.models.layers import MLP, LinearLayer, MissingDataGRU, MLPField, common_times
from acenode.node import ACENODE, NODE, AugmentedNODE
from acenode.training.metrics import batch_auc
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe, never_interrupted

TIMES = 21  # at which the correlation of fixed attention keeps its running averages
LAST_UNITS = 100  # hidden units of the network that predicts from the state of an ODE-RNN
NOISE = 1  # separates the seeds of the noise of z0 from those of the order of the records
CLASS_WEIGHT = 100.0  # of the cross-entropy of records, relative to the evidence bound
DECAY, FLOOR = 0.999, 0.1  # of the learning rate: factor per iteration, smallest factor
PROBES, FRAMES = 8, 41
SHOWN, VARIABLES, GRID = 6, 6, 97  # records in the report, variables of each, times of a curve
INFLUENCE_SIZE = 24  # coordinates of z up to which a snapshot has the influence between them
BINS = 24  # of the errors over time


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


def build_latent_poisson(shape: SeriesShape, c: Config, backend: Backend) -> nn.Module:
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

    evaluation_batch = 200

    def __init__(self, config: Config, splits: SeriesSplits, model: nn.Module, kind: str, metric: Metric,
                 device: torch.device) -> None:
        super().__init__(config, model, metric, device)
        union = config.get("grid") is not None and config.part(keys.ODERecurrenceSettings).grid == "union"
        trajectories = config.part(keys.Decoder).trajectories if config.get("trajectories") is not None else 1
        chosen = config.part(keys.Reconstruction) if kind == "vitals" else None
        cut = chosen.cut if chosen is not None and chosen.task == "extrapolation" else None
        self.splits, self.kind, points = splits, kind, kind == "points"
        self.layout = Layout(self.model.backwards, union, trajectories, self.model.latent, points, cut, device)
        self.size = min(config.part(keys.Training).batch_size, len(splits.train))
        self.iterations = len(splits.train) // self.size  # the last partial batch is left out
        recurrence = getattr(model, "recurrence", None)
        if isinstance(recurrence, MissingDataGRU):
            recurrence.mean.copy_(torch.from_numpy(observed_mean(splits.train)))
        self.probes = splits.validation.take(choose(splits.validation, kind, PROBES))

    def recipe(self) -> Recipe:
        total = self.config.part(keys.Training).epochs * self.iterations
        return recipe_of(self.config, optimiser_of(torch.optim.Adamax), lambda p: max(FLOOR, DECAY ** (p * total)))

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
            return self._point_loss(predicted, batch)
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
    def _point_loss(predicted: latent_ode.Predictions, batch: SeriesBatch) -> Loss:
        """Return cross-entropy and accuracy of the labelled points with an observation, over all trajectories."""
        assert predicted.logits is not None
        counted = ((batch.label >= 0) & batch.target.observed).expand(predicted.logits.shape[:-1])
        label = batch.label.clamp(min=0).expand_as(counted)
        entropy = F.cross_entropy(predicted.logits.flatten(0, -2), label.flatten(), reduction="none").view_as(counted)
        number = counted.sum().clamp(min=1)
        right = (predicted.logits.detach().argmax(-1) == label) & counted
        return Loss((entropy * counted).sum() / number, {"accuracy": right.sum() / number}, predicted.evaluations)

    def outputs(self, split: str, interrupted: Callable[[], bool] = never_interrupted,
                bins: int = 0) -> SeriesOutputs | None:
        cut = cut_of(getattr(self.splits, split), self.layout)
        edges = torch.linspace(cut or 0.0, 1.0, bins + 1, device=self.layout.device) if bins else None
        out = SeriesOutputs(self.kind, isinstance(self.model, latent_ode.LatentODE), edges)
        return self.evaluated(out, self.batches_of(split), interrupted)

    def batches_of(self, split: str) -> list[SeriesBatch]:
        records: Records = getattr(self.splits, split)
        return self.in_parts(split, len(records), lambda chosen: assemble(
            records.take(chosen), self.layout, self.noise(split, len(records))[:, chosen], 0.0,
            cut_of(records, self.layout)))

    def noise(self, split: str, count: int) -> Tensor:
        """Draw the noise of z0 for a split, (K, count, latent); that of a record does not depend on its batch."""
        generator = torch.Generator().manual_seed({"validation": 11, "test": 13}.get(split, 17))
        shape = (count, self.layout.trajectories, self.layout.latent)
        return torch.randn(shape, generator=generator).transpose(0, 1)

    def take_snapshot(self) -> dict[str, np.ndarray]:
        """Return h(t) and a(t) of the probes from the posterior's mean, over the span of the generative ODE.

        The influence |∂ż_i/∂z_j| (F, B, d, d) is added if z has an ODE layer and is not too large.
        """
        model, probes = self.model, self.probes
        batch = assemble(probes, self.layout, None, 0.0, cut_of(self.splits.validation, self.layout))
        t = np.linspace(*batch.span, FRAMES)
        h, a = model.trajectory(batch, t.tolist())
        arrays = {"t": t.astype(np.float32), "h": half(h), "name": np.array(probes.ids),
                  "time_scale": np.array([probes.horizon], np.float32), "time_unit": np.array([probes.unit])}
        if self.kind != "vitals":
            arrays["label"] = np.array([max(0, main_label(own, self.kind)) for own in probes.labels], np.int64)
        layer = model.ode if isinstance(model, latent_ode.LatentODE) else None
        if isinstance(layer, NODE | ACENODE) and not isinstance(layer, latent_ode.PoissonODE):
            z0 = model.encode(batch)[0]
            if z0[0].numel() <= INFLUENCE_SIZE:
                arrays["influence"] = half(layer_influence(layer, z0, t.tolist())[1])
        return with_attention(arrays, a)

    @torch.no_grad()
    def report(self) -> dict[str, Any]:
        """Return what the pages and reports show of the test set, by the keys of result.json."""
        out, model, test = self.outputs("test", bins=BINS if self.kind == "vitals" else 0), self.model, self.splits.test
        assert out is not None
        chosen = test.take(choose(test, self.kind, SHOWN))
        batch = assemble(chosen, self.layout, self.noise("shown", len(chosen)), 0.0, cut_of(test, self.layout))
        found: dict[str, Any] = {}
        if out.kind == "record":
            logits, labels = out.labelled()
            found |= record_curves(logits.ravel(), np.tile(labels, len(logits)))
            found |= confusion((logits.mean(0) > 0).astype(int), labels.astype(int), self.splits.classes)
        if out.kind == "points":
            logits, labels = out.labelled()
            found |= confusion(logits.mean(0).argmax(-1), labels, self.splits.classes)
            found["bands"] = bands(model, chosen, batch)
        else:
            found["records"] = curves(model, chosen, batch)
        if out.bins is not None:
            edges = np.linspace(*batch.span, BINS + 1) * chosen.horizon
            found["over_time"] = over_time(edges, chosen.unit, out.bins[1], 3, mse=out.bins[0])
        _, a = model.trajectory(batch, np.linspace(*batch.span, 21).tolist())
        learned = None  # the emission maps attention on z to the variables if it is one matrix
        if a is not None and isinstance(model.emission, nn.Linear):
            learned = excess_flow(a, model.emission.weight)
        return found | attention_report(a, chosen.names, self.splits.coupling, learned, "the last time", "records",
                                        "the emission's weights")

    def preprocess(self, inputs: Any) -> SeriesBatch:
        """Return series as a batch: values scaled as in training, times in units of the horizon."""
        train = self.splits.train
        if train.scale is None:
            raise UserError("the scale of this experiment's values is not known")
        series = [TimeSeries.single(s.t / train.horizon, train.scale.apply(s.x, s.m > 0), s.m)
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


def choose(records: Records, kind: str, count: int) -> list[int]:
    """Return the indices of `count` records: the classes in turn, those with most points first."""
    longest = sorted(range(len(records)), key=lambda i: -len(records.series[i].t))
    return in_turn([(i, main_label(records.labels[i], kind)) for i in longest])[:count]


def main_label(own: np.ndarray, kind: str) -> int:
    """Return a record's class, or the most frequent class of its points; -1 if it is not known."""
    if kind == "points":
        return int(np.bincount(own[own >= 0]).argmax()) if (own >= 0).any() else -1
    return -1 if np.isnan(own) else int(own)


def bands(model: nn.Module, chosen: Records, batch: SeriesBatch) -> list[dict[str, Any]]:
    classes = model(batch).logits.mean(0).argmax(-1).cpu().numpy()  # (B, T)
    found = []
    for b, (r, own) in enumerate(zip(chosen.series, chosen.labels, strict=True)):
        found.append({"id": chosen.ids[b], "unit": chosen.unit, "t": (r.t * chosen.horizon).round(4).tolist(),
                      "true": [int(v) if v >= 0 else None for v in own], "predicted": classes[b, :len(r.t)].tolist()})
    return found


def curves(model: nn.Module, chosen: Records, batch: SeriesBatch) -> list[dict[str, Any]]:
    """Return predictions for a few records on a grid of times: mean and range over the samples of z0."""
    if isinstance(model, Autoregressive):
        return []  # it predicts at a record's own times only
    start, end = batch.span
    grid = np.linspace(start, end, GRID)
    predicted = model(replace(batch, target=common_times(batch.seen, grid))).x  # (K, B, GRID, D)
    low, mean, high = (q.cpu().numpy() for q in (predicted.amin(0), predicted.mean(0), predicted.amax(0)))
    found = []
    for b, r in enumerate(chosen.series):
        seen = r.t < start if start > 0 else np.ones(len(r.t), bool)
        variables = []
        for j in np.argsort(-r.m.sum(0), kind="stable")[:VARIABLES]:
            here = r.m[:, j] > 0
            points = {"t": r.t[here & seen], "target_t": r.t[here & ~seen], "grid": grid}
            values = {"x": r.x[here & seen, j], "target_x": r.x[here & ~seen, j], "mean": mean[b, :, j],
                      "low": low[b, :, j], "high": high[b, :, j]}
            in_unit = {} if chosen.scale is None else {  # shift and scale convert normalised values to the unit
                "unit": unit(chosen.names[j]), "shift": float(chosen.scale.shift[j]),
                "scale": float(chosen.scale.scale[j])}
            variables.append({"name": chosen.names[j], **in_unit,
                              **{k: (v * chosen.horizon).round(3).tolist() for k, v in points.items()},
                              **{k: v.astype(float).round(5).tolist() for k, v in values.items()}})
        found.append({"id": chosen.ids[b], "unit": chosen.unit, "cut": start * chosen.horizon if start > 0 else None,
                      "variables": variables})
    return found
