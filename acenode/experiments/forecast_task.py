"""Forecasting as a task for the trainer: models, batches, loss, evaluation after the cut, snapshots and report.

Targets of weather are heavy-tailed: on most days there is no snow. One heavy snowfall among the test targets can then
weigh more in the mean squared error than a hundred ordinary days. Errors are therefore also reported by variable, and
in ways that a few extreme targets do not decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from acenode.attention import Correlation, Dense
from acenode.backend import Backend
from acenode.config import Config
from acenode.config import groups as keys
from acenode.data.batches import mixed_seed
from acenode.data.points import Points, TimeSeries, pad
from acenode.data.schedule import SporadicBatch, make_schedule
from acenode.data.series import SeriesArrays
from acenode.data.splits import Parts
from acenode.errors import UserError
from acenode.experiments.base import optimiser_of, recipe_of
from acenode.experiments.recording import (
    LIMIT,
    FamilyTask,
    SeriesPrediction,
    attention_report,
    binned,
    checked,
    excess_flow,
    half,
    over_time,
    with_attention,
)
from acenode.models.forecast.baselines import ODEVAE, GRUSimple, RecurrentForecaster, SequentialVAE, TimeLSTM, gru_d
from acenode.models.forecast.gaussian import Forecast, gaussian_nll
from acenode.models.forecast.gru_ode import GRUAttention, MatrixGRU, RowGRU
from acenode.models.forecast.gru_ode_bayes import GRUODEBayes
from acenode.models.layers import common_times
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe, never_interrupted

RATE_DROP_EPOCH = 20  # the learning rate is divided by three after so many epochs
DRAWN = 3  # separates the seeds of a model's random draws from those of the order of the series
TIMES = 41  # at which the correlation of fixed attention keeps its running averages
PROBES, FRAMES = 6, 41  # series of a snapshot, and times
SHOWN, GRID, BINS = 6, 200, 10  # series in the report, times of a curve, bins of the errors over time
BAND = 2.0  # half width of the band of a forecast, in standard deviations
LARGEST = 0.01  # share of the targets whose weight in the squared error is reported
PERCENTILE = 99.0  # at which squared errors are cut off in the winsorised mean
DRAWS = 2_000  # of the bootstrap over series
INTERVAL = (2.5, 97.5)  # percentiles of its interval


def _recurrent(make: Callable[[int, int, Backend], Any]) -> Callable[[int, Config, Backend], nn.Module]:
    def build(variables: int, c: Config, backend: Backend) -> nn.Module:
        network = c.part(keys.ForecastNetwork)
        recurrence = make(variables, network.latent, backend)
        return RecurrentForecaster(recurrence, variables, network.units, network.dropout)

    return build


build_gru_simple, build_gru_d, build_t_lstm = _recurrent(GRUSimple), _recurrent(gru_d), _recurrent(TimeLSTM)


def build_seq_vae(variables: int, c: Config, backend: Backend) -> nn.Module:
    network, recognition = c.part(keys.ForecastNetwork), c.part(keys.Recognition).recognition
    return SequentialVAE(variables, network.latent, network.latent, recognition, network.units, network.dropout)


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


@dataclass(frozen=True, eq=False)
class ForecastSeries:
    """Series with their splits and the time after which they are forecast."""

    arrays: SeriesArrays
    parts: Parts
    cut: float
    device: torch.device
    step: float | None  # of a model that takes steps of its own between observations
    note: str = ""  # on the unit of time

    def records(self, index: Sequence[int] | np.ndarray) -> list[TimeSeries]:
        a = self.arrays
        return [TimeSeries.single(a.t[here], a.x[here], a.m[here]) for here in map(a.points, index)]

    def longest(self, index: Sequence[int] | np.ndarray, count: int) -> list[int]:
        lengths = np.diff(self.arrays.offsets)
        return sorted(index, key=lambda i: -int(lengths[i]))[:count]

    def observed_mean(self) -> np.ndarray:
        train = self.arrays.take(self.parts.train)
        return (train.x.sum(0, dtype=np.float64) / np.maximum(train.m.sum(0), 1)).astype(np.float32)

    def forecast_batch(self, index: Sequence[int] | np.ndarray, targets: int | None = None) -> SporadicBatch:
        """Return series up to the cut, with the first `targets` rows after it (None: all) to be forecast."""
        records = self.records(index)
        after = [r.part(np.flatnonzero(r.t > self.cut)[:targets]) for r in records]
        return self.batch(pad([r.part(r.t <= self.cut) for r in records]), pad(after))

    def batch(self, seen: Points, target: Points | None = None, seed: int = 0) -> SporadicBatch:
        """Return a batch that forecasts the targets, or predicts each observation before it is read."""
        schedule = None if self.step is None else make_schedule(seen, target, self.step)
        return SporadicBatch(seen, target or seen, self.arrays.horizon, seed, schedule).to(self.device)

    def grid(self, count: int) -> np.ndarray:
        """Return times from 0 to the end, on the model's own steps if it has any."""
        t = np.linspace(0.0, self.arrays.horizon, count)
        return t if self.step is None else np.unique((t / self.step).round()) * self.step


@dataclass
class ForecastErrors:
    edges: Tensor | None = None  # of the time bins in which errors are summed
    squared: float = 0.0
    nll: float = 0.0
    observed: float = 0.0
    nfe: float | None = None  # evaluations of f in the last batch, if the model has an f
    bins: np.ndarray | None = None  # (3, bins): squared errors, negative log-likelihoods and counts over time

    def add(self, predicted: Forecast, batch: SporadicBatch) -> None:
        target = batch.target
        squared = (target.x - predicted.mean).square() * target.m
        nll = gaussian_nll(target.x, predicted.mean, predicted.logvar) * target.m
        self.squared += float(squared.sum(dtype=torch.float64))
        self.nll += float(nll.sum(dtype=torch.float64))
        self.observed += float(target.m.sum())
        self.nfe = None if predicted.evaluations is None else predicted.evaluations.forward
        if self.edges is not None:
            sums = binned(target.t, self.edges, squared, nll, target.m)
            self.bins = sums if self.bins is None else self.bins + sums

    def metrics(self) -> dict[str, float]:
        found = {"mse": self.squared / max(1.0, self.observed), "negll": self.nll / max(1.0, self.observed)}
        return found if self.nfe is None else {**found, "nfe": self.nfe}


@dataclass(frozen=True, eq=False)
class ObservedTargets:
    """The observed values among the targets of a split, with their predictions: N of each."""

    series: np.ndarray  # index of the series
    variable: np.ndarray  # index of the variable
    t: np.ndarray  # time
    x: np.ndarray
    mean: np.ndarray

    @property
    def squared(self) -> np.ndarray:
        return np.asarray((self.x - self.mean) ** 2)

    def take(self, chosen: np.ndarray) -> ObservedTargets:
        return ObservedTargets(*(column[chosen] for column in (self.series, self.variable, self.t, self.x, self.mean)))


def error_report(targets: ObservedTargets, names: tuple[str, ...]) -> dict[str, Any]:
    """Return all measures of the targets, and those of every variable, as `errors` of result.json."""
    by_variable = []
    for j, name in enumerate(names):
        own = targets.take(targets.variable == j)
        by_variable.append({"name": name, **measures(own), "share": share(own.squared.sum(), targets.squared.sum())})
    low, high = bootstrap_interval(targets)
    return {**measures(targets), "mse_low": low, "mse_high": high, "by_variable": by_variable,
            "how": f"winsorised: squared errors cut off at their {PERCENTILE:g}th percentile; largest: share of the "
                   f"squared error in the {100 * LARGEST:g}% of targets with the largest one; mse_low, mse_high: 95% "
                   "interval of the MSE, drawing series with replacement"}


def measures(targets: ObservedTargets) -> dict[str, Any]:
    """Return the number of targets and the summaries of their errors, None without targets."""
    squared = targets.squared.astype(np.float64)
    if not len(squared):
        return {"count": 0, "mse": None, "mae": None, "median": None, "winsorised": None, "largest": None}
    top = np.sort(squared)[-max(1, round(LARGEST * len(squared))):]
    return {"count": len(squared), "mse": float(squared.mean()), "mae": float(np.sqrt(squared).mean()),
            "median": float(np.median(squared)),
            "winsorised": float(np.minimum(squared, np.percentile(squared, PERCENTILE)).mean()),
            "largest": share(top.sum(), squared.sum())}


def share(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0


def bootstrap_interval(targets: ObservedTargets, draws: int = DRAWS, seed: int = 0) -> tuple[float, float]:
    """Return the 95% interval of the mean squared error if the series are drawn again with replacement."""
    _, own = np.unique(targets.series, return_inverse=True)
    if not len(own):
        return float("nan"), float("nan")
    sums, counts = np.bincount(own, targets.squared), np.bincount(own)
    drawn = np.random.default_rng(seed).integers(0, len(sums), (draws, len(sums)))
    low, high = np.percentile(sums[drawn].sum(1) / counts[drawn].sum(1), INTERVAL)
    return float(low), float(high)


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
        return recipe_of(self.config, optimiser_of(torch.optim.Adam, training.weight_decay),
                         lambda p: 1.0 if p * training.epochs < RATE_DROP_EPOCH else 1 / 3)

    def groups(self, detach_attention: bool) -> ParameterGroups:
        attention = self.model.attention if isinstance(self.model, GRUODEBayes) else None
        g, q = (None, None) if attention is None else (attention.g, attention.q)
        return ParameterGroups.split(self.model, [g], q, detach_attention)

    def batch(self, epoch: int, iteration: int) -> SporadicBatch:
        chosen = self.chosen(self.data.parts.train, self.size, epoch, iteration)
        seed = mixed_seed(self.config.seed, epoch, iteration, DRAWN)
        return self.data.batch(pad(self.data.records(chosen)), seed=seed)

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
        """Return the batches of a split to evaluate, with so many targets (None: all)."""
        index = getattr(self.data.parts, split)
        return self.in_parts((split, targets), len(index),
                             lambda chosen: self.data.forecast_batch(index[chosen], targets))

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
        data, model = self.data, self.model
        d = int(model.latent)
        attentive = isinstance(model, GRUODEBayes) and model.attention is not None
        size = FRAMES * 2 * (d + (d * d if attentive else 0))
        chosen = self.probes[:max(1, min(len(self.probes), LIMIT // size))]  # as many as fit into a snapshot
        t = data.grid(FRAMES)
        h, a = model.trajectory(data.forecast_batch(chosen, 0), t.tolist())
        jumps = [r.t[r.t <= data.cut] for r in data.records(chosen)]
        marks = np.full((len(chosen), max(len(j) for j in jumps)), np.nan, np.float32)
        for row, times in zip(marks, jumps, strict=True):
            row[:len(times)] = times
        return with_attention({"t": t.astype(np.float32), "h": half(h), "jumps": marks,
                               "name": data.arrays.ids[chosen]}, a)

    @torch.no_grad()
    def report(self) -> dict[str, Any]:
        """Return the results on the test set that pages and exports show, by the keys of result.json.

        Errors over time are those after the cut, where the model reads no values.
        """
        data, a, model = self.data, self.data.arrays, self.model
        edges = torch.linspace(data.cut, a.horizon, BINS + 1, device=data.device)
        squared, nll, count = self.evaluated(ForecastErrors(edges), self.batches("test", None), never_interrupted).bins
        targets = self.targets("test", self.config.part(keys.ForecastData).targets)
        batch = data.forecast_batch(data.parts.test[:SHOWN * 4], 0)
        attention, learned = model.trajectory(batch, data.grid(21).tolist())[1], None
        if attention is not None:  # on h, mapped by the weights from h to the means
            learned = excess_flow(attention, model.p.out.weight[:len(a.names)].abs() @ model.p.hidden.weight.abs())
        over = over_time(np.linspace(data.cut, a.horizon, BINS + 1), a.unit, count, mse=squared, negll=nll)
        coupling = attention_report(attention, a.names, a.coupling, learned, "the end of the series", "series",
                                    "the weights of p")
        return {"over_time": over, "cut": data.cut, "records": self.records(),
                "errors": error_report(targets, a.names), **coupling}

    def records(self) -> list[dict[str, Any]]:
        """Return a few series: the observations before and after the cut, and the forecast over time."""
        data, a, found = self.data, self.data.arrays, []
        chosen = data.longest(data.parts.test, SHOWN)
        lines = self.curves(data.forecast_batch(chosen, 0))
        for i, r, (t, mean, deviation) in zip(chosen, data.records(chosen), lines, strict=True):
            seen = r.t <= data.cut
            variables = []
            for j, name in enumerate(a.names):
                observed = r.m[:, j] > 0
                values = {"t": r.t[observed & seen], "x": r.x[observed & seen, j], "target_t": r.t[observed & ~seen],
                          "target_x": r.x[observed & ~seen, j], "grid": t, "mean": mean[:, j],
                          "low": mean[:, j] - BAND * deviation[:, j], "high": mean[:, j] + BAND * deviation[:, j]}
                variables.append({"name": name,
                                  **{k: np.asarray(v, float).round(4).tolist() for k, v in values.items()}})
            jumps = r.t[seen].astype(float).round(4).tolist() if isinstance(self.model, GRUODEBayes) else []
            found.append({"id": str(a.ids[i]), "unit": a.unit, "unit_note": data.note, "cut": data.cut, "jumps": jumps,
                          "band": "two standard deviations", "variables": variables})
        return found

    def curves(self, batch: SporadicBatch) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Return times, means and standard deviations of each series; at a jump both before and after it."""
        data, model, seen = self.data, self.model, batch.seen
        if isinstance(model, GRUODEBayes):
            before, after, between, times = model.predict_around_jumps(batch, data.grid(GRID).tolist())
            parts = [(times, between), (seen, before), (seen, after)]
        else:
            later = common_times(seen, np.linspace(data.cut, data.arrays.horizon, GRID // 4 + 1)[1:])
            parts = [(points, model(SporadicBatch(seen, points, batch.horizon))) for points in (seen, later)]
        found = []
        for b in range(len(seen.t)):
            columns = [(points.t[b][points.valid[b]], predicted.mean[b][points.valid[b]],
                        (0.5 * predicted.logvar[b][points.valid[b]]).exp()) for points, predicted in parts]
            t, mean, deviation = (torch.cat(column).double().cpu().numpy() for column in zip(*columns, strict=True))
            order = np.argsort(t, kind="stable")  # at equal times: between jumps, before a jump, after it
            found.append((t[order], mean[order], deviation[order]))
        return found

    def preprocess(self, inputs: Any) -> SporadicBatch:
        """Return series as a batch: rows with a value are read, rows of NaN are forecast."""
        series = checked(inputs, len(self.data.arrays.names), self.data.arrays.horizon)
        if any(s.m.any(1).all() for s in series):
            raise UserError("there is nothing to forecast: add the times to forecast as rows of NaN")
        return self.data.batch(pad([s.part(s.m.any(1)) for s in series]), pad([s.part(~s.m.any(1)) for s in series]))

    def predict(self, inputs: Any) -> list[SeriesPrediction]:
        batch = self.preprocess(inputs)
        out, found = self.model(batch), []
        for i, valid in enumerate(batch.target.valid):
            mean, logvar = (x[i, valid].cpu().numpy() for x in (out.mean, out.logvar))
            found.append(SeriesPrediction(batch.target.t[i, valid].cpu().numpy(), mean, np.exp(0.5 * logvar)))
        return found
