"""Apply the model of a task to new inputs: preprocess them as in training, and return predictions in their own units.

Images are arrays; a series is a pair (t, x) of times and values, with NaN where nothing was observed. A row of NaN
alone is a time to predict. A task of another kind defines `preprocess(inputs)` and `predict(inputs)` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acenode.data.named_batches import NamedBatch, scaled
from acenode.data.named_set import Record
from acenode.data.points import SeriesBatch, TimeSeries, pad
from acenode.data.schedule import SporadicBatch, make_schedule
from acenode.errors import UserError
from acenode.experiments.forecast_task import ForecastTask
from acenode.experiments.image_task import EVALUATION_BATCH, ImageTask
from acenode.experiments.named_task import NamedTask
from acenode.experiments.series_batches import Records, assemble, cut_of
from acenode.experiments.series_task import SeriesTask

SLACK = 1e-6  # of the longest time, for rounding
Series = tuple[np.ndarray, np.ndarray]  # times (n,) and values (n, D), NaN where unobserved


@dataclass(frozen=True, eq=False)
class ImagePredictions:
    """Class probabilities of N images, (N, classes), and the name of the likeliest class of each."""

    probabilities: np.ndarray
    labels: list[str]


@dataclass(frozen=True, eq=False)
class SeriesPrediction:
    """What a model predicts of one series; None for what it does not predict."""

    t: np.ndarray  # (n,), in the unit of the inputs
    x: np.ndarray | None = None  # (n, D), in the unit of the inputs
    deviation: np.ndarray | None = None  # (n, D), standard deviation of x
    probabilities: np.ndarray | None = None  # (classes,) of the series, or (n, classes) of its points


def preprocess(task: Any, inputs: Any) -> Any:
    """Return inputs as the batch that the task's model takes; raise a UserError if they do not fit the model."""
    for kind, make_batch, _ in FAMILIES:
        if isinstance(task, kind):
            return make_batch(task, inputs)
    if hasattr(task, "preprocess"):
        return task.preprocess(inputs)
    raise UserError("this experiment does not say how new inputs are preprocessed: give its task a method preprocess")


@torch.no_grad()
def predict(task: Any, inputs: Any) -> Any:
    """Predict new inputs with the task's model in evaluation mode."""
    task.model.eval()
    for kind, _, predict_inputs in FAMILIES:
        if isinstance(task, kind):
            return predict_inputs(task, inputs)
    if hasattr(task, "predict"):
        return task.predict(inputs)
    raise UserError("this experiment does not say how new inputs are predicted: give its task a method predict")


# Images ---------------------------------------------------------------------------------------------------------------


def image_batch(task: ImageTask, images: Any) -> Tensor:
    """Return images (N, H, W) or (N, H, W, C), integers up to 255 or numbers up to 1, as (N, C, H, W) in [0, 1]."""
    x, (C, H, W) = np.asarray(images), task.splits["test"].x.shape[1:]
    x = x[..., None] if x.ndim == 3 else x
    if x.shape[1:] != (H, W, C) or not len(x):
        raise UserError(f"the model takes images of ({H}, {W}, {C}), at least one, not {x.shape}")
    scale = 255.0 if x.dtype.kind in "iu" else 1.0
    x = x.astype(np.float32) / scale
    if not (x.min() >= 0 and x.max() <= 1):  # False for NaN
        raise UserError("pixels are integers from 0 to 255 or numbers from 0 to 1")
    return torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2))).to(task.splits["test"].x.device)


def _predict_images(task: ImageTask, images: Any) -> ImagePredictions:
    parts = [task.model.read_out(task.model.evolve(task.model.encode(part)).h[-1])
             for part in image_batch(task, images).split(EVALUATION_BATCH)]
    probabilities = torch.softmax(torch.cat(parts), -1).cpu().numpy()
    return ImagePredictions(probabilities, [str(task.classes[i]) for i in probabilities.argmax(1)])


# Series ---------------------------------------------------------------------------------------------------------------


def series_batch(task: SeriesTask, inputs: Sequence[Series]) -> SeriesBatch:
    """Return series as a batch: values scaled as in training, times in units of the horizon."""
    train = task.splits.train
    if train.scale is None:
        raise UserError("the scale of this experiment's values is not known")
    series = [TimeSeries((s.t / train.horizon).astype(np.float32), train.scale.apply(s.x, s.m > 0), s.m)
              for s in _checked(inputs, len(train.names), train.horizon)]
    labels = [np.full(len(s.t), -1) if task.layout.points else np.asarray(np.nan) for s in series]
    records = Records(series, labels, [str(i) for i in range(len(series))], train.horizon, train.unit, train.names,
                      train.scale)
    return assemble(records, task.layout, None, 0.0, cut_of(train, task.layout))


def _predict_series(task: SeriesTask, inputs: Sequence[Series]) -> list[SeriesPrediction]:
    batch = series_batch(task, inputs)
    scale, out = task.splits.train.scale, task.model(batch)
    assert scale is not None
    found = []
    for i, valid in enumerate(batch.target.valid):
        t = batch.target.t[i, valid].cpu().numpy() * task.splits.train.horizon
        x = None if out.x is None else scale.invert(out.x.mean(0)[i, valid].cpu().numpy())
        probabilities = None
        if out.logits is not None and task.layout.points:
            probabilities = torch.softmax(out.logits.mean(0)[i, valid], -1).cpu().numpy()
        elif out.logits is not None:
            yes = float(torch.sigmoid(out.logits[:, i]).mean())
            probabilities = np.array([1 - yes, yes])
        found.append(SeriesPrediction(t, x, probabilities=probabilities))
    return found


def forecast_batch(task: ForecastTask, inputs: Sequence[Series]) -> SporadicBatch:
    """Return series as a batch: rows with a value are read, rows of NaN are forecast."""
    data = task.data
    checked = _checked(inputs, len(data.arrays.names), data.arrays.horizon)
    seen, asked = zip(*((s.part(np.flatnonzero(s.m.any(1))), s.part(np.flatnonzero(~s.m.any(1)))) for s in checked),
                      strict=True)
    if not all(len(s.t) for s in asked):
        raise UserError("there is nothing to forecast: add the times to forecast as rows of NaN")
    read, target = pad(list(seen)), pad(list(asked))
    schedule = None if data.step is None else make_schedule(read, target, data.step)
    return SporadicBatch(read, target, data.arrays.horizon, schedule=schedule).to(data.device)


def _forecast(task: ForecastTask, inputs: Sequence[Series]) -> list[SeriesPrediction]:
    batch = forecast_batch(task, inputs)
    out = task.model(batch)
    found = []
    for i, valid in enumerate(batch.target.valid):
        mean, logvar = (x[i, valid].cpu().numpy() for x in (out.mean, out.logvar))
        found.append(SeriesPrediction(batch.target.t[i, valid].cpu().numpy(), mean, np.exp(0.5 * logvar)))
    return found


def _checked(inputs: Sequence[Series], variables: int, horizon: float) -> list[TimeSeries]:
    """Return series with their masks; raise a UserError that names the first series that does not fit the model."""
    found = []
    for i, (t, x) in enumerate(_arrays(inputs, variables)):
        if not (t[0] >= 0 and t[-1] <= horizon * (1 + SLACK)):
            raise UserError(f"the times of series {i} must increase within 0 to {horizon:g}")
        m = ~np.isnan(x)
        found.append(TimeSeries(t.astype(np.float32), np.where(m, x, 0).astype(np.float32), m.astype(np.float32)))
    return found


def _arrays(inputs: Sequence[Series], variables: int) -> list[Series]:
    """Return times (n,) that increase and values (n, variables); a UserError names the first series that is not so."""
    if not len(inputs):
        raise UserError("there are no series to predict")
    found = []
    for i, one in enumerate(inputs):
        if not isinstance(one, tuple | list) or len(one) != 2:
            raise UserError(f"series {i} is not a pair (t, x) of times and values")
        t, x = (np.asarray(a, np.float64) for a in one)
        if x.ndim != 2 or t.shape != x.shape[:1] or x.shape[1] != variables or not len(t):
            raise UserError(f"series {i} has times {t.shape} and values {x.shape}: the model takes (n,) and "
                            f"(n, {variables})")
        if not np.isfinite(t).all() or not (np.diff(t) > 0).all():
            raise UserError(f"the times of series {i} must increase")
        if np.isinf(x).any():
            raise UserError(f"series {i} has an infinite value")
        found.append((t, x))
    return found


# Named variables ------------------------------------------------------------------------------------------------------


def named_batch(task: NamedTask, given: Sequence[Record], asked: Sequence[np.ndarray]) -> NamedBatch:
    """Return a batch of new records and, for each, the times that are asked for, in the set's unit."""
    source, V = task.source, len(task.source.variables)
    times = [((t - record.t[0]) / source.duration).astype(np.float32) for record, t in zip(given, asked, strict=True)]
    target = [TimeSeries(t, np.zeros((len(t), V), np.float32), np.ones((len(t), V), np.float32)) for t in times]
    made = task.data.assemble([0] * len(given), [scaled(record, source) for record in given], target)
    return replace(made, times=None).to(task.device)  # each series has times of its own


def _named_inputs(task: NamedTask, inputs: Sequence[Series]) -> tuple[list[Record], list[np.ndarray]]:
    """Return what is given of each series, and the times at which its values are asked for."""
    source = task.source
    unit, start = f" {source.time_unit}".rstrip(), task.data.span[0] * source.duration
    given, asked = [], []
    for i, (t, x) in enumerate(_arrays(inputs, len(source.variables))):
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
                raise UserError(f"series {i} has no row of NaN, so there is nothing to forecast: replace the values "
                                f"from {source.given:g}{unit} after its beginning on by NaN, or add rows of NaN at "
                                "the times to forecast")
            if not record.seen(source.given).all():
                raise UserError(f"series {i} has values that are not in its first {source.given:g}{unit}, which the "
                                "forecast is made from: replace them by NaN")
            if since[~known][0] < start - SLACK * source.duration:
                raise UserError(f"series {i} has a row of NaN less than {start:g}{unit} after its beginning, where the "
                                "forecast starts: leave it out")
        given.append(record)
        asked.append(t[~known] if source.task == "forecast" else t if source.task == "fill" else t[:0])
    return given, asked


def _predict_named(task: NamedTask, inputs: Sequence[Series]) -> list[SeriesPrediction]:
    given, asked = _named_inputs(task, inputs)
    out = task.model(named_batch(task, given, asked))
    if out.logits is not None:
        rows = torch.softmax(out.logits.double(), -1).cpu().numpy()
        return [SeriesPrediction(record.t, probabilities=row) for record, row in zip(given, rows, strict=True)]
    assert out.x is not None
    x = out.x.double().cpu().numpy() * task.source.std + task.source.mean
    return [SeriesPrediction(t, x[i, :len(t)]) for i, t in enumerate(asked)]


# The kind of a task, what makes a batch of new inputs, and what predicts them.
FAMILIES: tuple[tuple[type, Callable[[Any, Any], Any], Callable[[Any, Any], Any]], ...] = (
    (ImageTask, image_batch, _predict_images),
    (SeriesTask, series_batch, _predict_series),
    (ForecastTask, forecast_batch, _forecast),
    (NamedTask, lambda task, inputs: named_batch(task, *_named_inputs(task, inputs)), _predict_named),
)
