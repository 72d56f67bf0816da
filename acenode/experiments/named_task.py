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
from acenode.data.named_batches import NamedBatch, ScaledSet, correlation, references_at, scaled
from acenode.data.named_set import NamedSet
from acenode.data.points import TimeSeries
from acenode.data.series import Record
from acenode.errors import UserError
from acenode.experiments.base import optimiser_of, recipe_of
from acenode.experiments.named_references import SquaredErrors, auc, in_own_units, label_references, value_references
from acenode.experiments.recording import (
    SLACK,
    FamilyTask,
    Series,
    SeriesPrediction,
    checked_arrays,
    confusion,
    half,
    in_turn,
    record_curves,
    row_distance,
    with_attention,
)
from acenode.models.influence import influence
from acenode.models.layers import common_times
from acenode.models.named import (
    CONTROLS,
    BilinearRate,
    Embedding,
    InitialAttention,
    MixedRate,
    NamedModel,
    NamedODE,
    NamedPredictions,
    NamedShape,
    OwnEncoder,
    OwnRate,
)
from acenode.training.metrics import binary_auc
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe, never_interrupted

FLOOR = 0.05  # of the learning rate at the end, as a share of the first
HIDING = 2  # separates the seeds of what is hidden from those of the order of the series
PROBES, FRAMES = 8, 41  # of a snapshot
SHOWN, GRID = 6, 73  # series shown in the report, times of a curve
PREDICTED = 200  # new series at a time
READ, READ_TIMES = 100, 11  # test series and times over which attention and influence are averaged
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


def choose(source: NamedSet, part: str = "validation", count: int = PROBES) -> np.ndarray:
    """Return `count` series of a part: the classes in turn, those with most observations first."""
    index = sorted(source.parts[part].tolist(), key=lambda i: -int(source.series[i].m.sum()))
    labels = [0] * len(index) if source.labels is None else source.labels[index].tolist()
    if source.task == "forecast" and len(index) > count:  # windows of one series: spread over its time
        index = [sorted(index)[i] for i in np.linspace(0, len(index) - 1, count).astype(int)]
        return np.array(index)
    return np.array(in_turn(list(zip(index, labels, strict=True)))[:count])


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
        self.probed = choose(source)
        self.probes = self.data.batch(self.probed).to(device)

    def recipe(self) -> Recipe:
        adam = optimiser_of(torch.optim.AdamW, self.config.part(keys.DecayTraining).weight_decay)
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
        target = batch.target
        mse = ((predicted.x - target.x).square() * target.m).sum() / target.m.sum().clamp(min=1)
        return Loss(mse, {"mse": mse.detach()}, predicted.evaluations)

    def outputs(self, part: str, interrupted: Callable[[], bool] = never_interrupted) -> NamedOutputs | None:
        V = len(self.source.variables)
        return self.evaluated(NamedOutputs(np.zeros(V), np.zeros(V)), self.batches_of(part), interrupted)

    def batches_of(self, part: str) -> list[NamedBatch]:
        index = self.source.parts[part]
        return self.in_parts(part, len(index), lambda chosen: self.data.batch(index[chosen]).to(self.device))

    def take_snapshot(self) -> dict[str, np.ndarray]:
        """Return what each variable's state reads (F, B, V), a(t) and the influence (F, B, V, V), for a few series."""
        source, batch = self.source, self.probes
        t = np.linspace(*batch.span, FRAMES)
        h, a, acts = course(self.model, batch, t.tolist())
        arrays = {"t": t.astype(np.float32), "h": half(self.model.read_out(h).squeeze(-1).detach()),
                  "influence": half(acts), "coordinate": np.array(source.variables),
                  "name": np.array([source.ids[i] for i in self.probed]),
                  "time_scale": np.array([source.duration], np.float32), "time_unit": np.array([source.time_unit])}
        if source.labels is not None:
            arrays["label"] = batch.label.cpu().numpy()
        return with_attention(arrays, a)

    def report(self) -> dict[str, Any]:
        source, out = self.source, self.outputs("test")
        assert out is not None
        found: dict[str, Any] = {"variables": list(source.variables), "units": list(source.units)}
        failed: dict[str, str] = {}  # references that cannot be computed, which must not cost a run its results
        if out.logits:
            logits, labels = out.labelled()
            found |= confusion(logits.argmax(1), labels, source.classes)
            if len(source.classes) == 2:
                found |= record_curves(logits[:, 1] - logits[:, 0], labels.astype(float))
            found["references"] = label_references(self.data, failed)
        else:
            references = value_references(self.data, failed)
            found["references"] = {name: {"mse": r.mse} for name, r in references.items()}
            found["own_units"] = {"variables": list(source.variables), "units": list(source.units),
                                  "rmse": {name: in_own_units(e, source.std)
                                           for name, e in {"model": out.errors, **references}.items()}}
            found["records"] = self.curves()
        found["references"] |= {name: {"failure": reason} for name, reason in failed.items()}
        return found | self.coupling()

    def coupling(self) -> dict[str, Any]:
        """Return attention and influence averaged over test series and time, and how well they tell known links."""
        source, names = self.source, list(self.source.variables)
        batch = self.data.batch(source.parts["test"][:READ]).to(self.device)
        _, a, acts = course(self.model, batch, np.linspace(*batch.span, READ_TIMES).tolist())
        acting = acts.mean((0, 1)).cpu().numpy()
        shown = acting.round(4).tolist()
        found: dict[str, Any] = {"influence": {"names": names, "mean": shown}}
        attention = None if a is None else torch.softmax(a, -1).mean((0, 1)).detach().cpu().numpy()
        if a is not None and attention is not None:
            found["attention"] = {"names": names, "mean": attention.round(4).tolist()}
            found["coupling"] = {"names": names, "learned": (attention - 1 / len(names)).round(4).tolist(),
                                 "influence": shown,
                                 "how": "softmax(a(t)) averaged over series and time, relative to uniform attention"}
            found["row_distance"] = {"value": round(row_distance(a), 5)}
        if source.links is not None:
            found.setdefault("coupling", {"names": names, "influence": shown})["known"] = source.links.round(4).tolist()
            scores = {"attention": attention, "influence": acting, "correlation": np.abs(self.correlation)}
            found["links"] = {name: round(link_auroc(s, source.links), 4) for name, s in scores.items()
                              if s is not None}
        return found

    def curves(self) -> list[dict[str, Any]]:
        """Return predictions for a few test series on a grid of times, in own units."""
        source = self.source
        index = choose(source, "test", SHOWN)
        batch = self.data.batch(index)
        grid = np.linspace(*batch.span, GRID)
        predicted = at_times(self.model, self.data, batch, grid, self.device) * source.std + source.mean
        cut = source.given if source.task == "forecast" else None
        found = []
        for b, i in enumerate(index):
            record, target = source.series[i], batch.target.m[b].numpy() > 0
            seen = record.seen(source.given)[:, None] & record.m if source.task == "forecast" else record.m & ~target
            later, since = record.m & ~seen, record.t - record.t[0]  # times are shown from the start of each series
            variables = []
            for v, name in enumerate(source.variables):
                points = {"t": since[seen[:, v]], "target_t": since[later[:, v]], "grid": grid * source.duration}
                values = {"x": record.x[seen[:, v], v], "target_x": record.x[later[:, v], v],
                          "mean": predicted[b, :, v]}
                variables.append({"name": name, "unit": source.units[v],
                                  **{k: t.round(4).tolist() for k, t in points.items()},
                                  **{k: [float(f"{y:.6g}") for y in x] for k, x in values.items()}})
            found.append({"id": source.ids[i], "unit": source.time_unit, "cut": cut, "variables": variables})
        return found

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
        return self.predict_records(*self.new_inputs(inputs))

    @torch.no_grad()
    def predict_records(self, given: Sequence[Record], asked: Sequence[np.ndarray]) -> list[SeriesPrediction]:
        """Predict new records at the times that are asked for of each, or their classes, in the set's units."""
        found = []
        for i in range(0, len(given), PREDICTED):
            records, times = given[i:i + PREDICTED], asked[i:i + PREDICTED]
            out = self.model(self.new_batch(records, times))
            if out.logits is not None:
                rows = torch.softmax(out.logits.double(), -1).cpu().numpy()
                found += [SeriesPrediction(one.t, probabilities=row) for one, row in zip(records, rows, strict=True)]
            else:
                x = out.x.double().cpu().numpy() * self.source.std + self.source.mean
                found += [SeriesPrediction(t, row[:len(t)]) for t, row in zip(times, x, strict=True)]
        return found


def course(model: NamedModel, batch: NamedBatch, t: list[float]) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return h (F, B, V, k), a (F, B, V, V) and the influence |∂ḣ_i/∂h_j| (F, B, V, V) at common times."""
    with torch.no_grad():
        h0, control = model.start(batch)
        path = model.ode(h0, t, control)
        field, _ = model.ode.system(h0, control)
    states = (path.h,) if path.a is None or model.ode.g is None else (path.h, path.a)
    return path.h, path.a, influence(field, t, states, path.h.shape[-1])


def link_auroc(score: np.ndarray, links: np.ndarray) -> float:
    """Return how well scores (V, V) tell linked pairs from others: the AUROC over entries off the diagonal."""
    off = ~np.eye(len(links), dtype=bool)
    return binary_auc(score[off], links[off] > 0)


@torch.no_grad()
def at_times(model: NamedModel, data: ScaledSet, batch: NamedBatch, t: np.ndarray,
             device: torch.device) -> np.ndarray:
    """Return standardised predictions of a batch at common times within its span, (B, T, V)."""
    reference = references_at(batch.seen, t, data.source.task)
    wanted = replace(batch, target=common_times(batch.seen, t), times=None, reference=reference)
    x = model(wanted.to(device)).x
    assert x is not None
    return x.double().cpu().numpy()
