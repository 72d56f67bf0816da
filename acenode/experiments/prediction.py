"""Apply the model of a task to new inputs: preprocess them as in training, and return predictions in their own units.

Images are arrays; a series is a pair (t, x) of times and values, with NaN where nothing was observed. A row of NaN
alone is a time to predict. A task of another kind defines `predict(inputs)` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acenode.data.points import SeriesBatch, TimeSeries, pad
from acenode.data.schedule import make_schedule
from acenode.data.sporadic import SporadicBatch
from acenode.errors import UserError
from acenode.experiments.forecast_task import ForecastTask
from acenode.experiments.image_task import EVALUATION_BATCH, ImageTask
from acenode.experiments.series_batches import Records, assemble, cut_of
from acenode.experiments.series_task import SeriesTask

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
    for kind, make_batch, predict_batch in FAMILIES:
        if isinstance(task, kind):
            return predict_batch(task, make_batch(task, inputs))
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


def _predict_images(task: ImageTask, x: Tensor) -> ImagePredictions:
    parts = [task.model.read_out(task.model.evolve(task.model.encode(part)).h[-1])
             for part in x.split(EVALUATION_BATCH)]
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


def _predict_series(task: SeriesTask, batch: SeriesBatch) -> list[SeriesPrediction]:
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


def _forecast(task: ForecastTask, batch: SporadicBatch) -> list[SeriesPrediction]:
    out = task.model(batch)
    found = []
    for i, valid in enumerate(batch.target.valid):
        mean, logvar = (x[i, valid].cpu().numpy() for x in (out.mean, out.logvar))
        found.append(SeriesPrediction(batch.target.t[i, valid].cpu().numpy(), mean, np.exp(0.5 * logvar)))
    return found


def _checked(inputs: Sequence[Series], variables: int, horizon: float) -> list[TimeSeries]:
    """Return series with their masks; raise a UserError that names the first series that does not fit the model."""
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
        if not (np.diff(t) > 0).all() or not (t[0] >= 0 and t[-1] <= horizon * (1 + 1e-6)):
            raise UserError(f"the times of series {i} must increase within 0 to {horizon:g}")
        if np.isinf(x).any():
            raise UserError(f"series {i} has an infinite value")
        m = ~np.isnan(x)
        found.append(TimeSeries(t.astype(np.float32), np.where(m, x, 0).astype(np.float32), m.astype(np.float32)))
    return found


# The kind of a task, what makes its batch of new inputs, and what predicts that batch.
FAMILIES: tuple[tuple[type, Callable[[Any, Any], Any], Callable[[Any, Any], Any]], ...] = (
    (ImageTask, image_batch, _predict_images),
    (SeriesTask, series_batch, _predict_series),
    (ForecastTask, forecast_batch, _forecast),
)
