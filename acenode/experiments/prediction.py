"""Apply the model of a task to new inputs: preprocess them as in training, and return predictions in their own units.

A task defines `preprocess(inputs)` and `predict(inputs)`. Images are arrays; a series is a pair (t, x) of times and
values, with NaN where nothing was observed. A row of NaN alone is a time to predict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from acenode.data.points import TimeSeries
from acenode.errors import UserError

SLACK = 1e-6  # of the longest time, for rounding
Series = tuple[np.ndarray, np.ndarray]  # times (n,) and values (n, D), NaN where unobserved


@dataclass(frozen=True, eq=False)
class SeriesPrediction:
    """What a model predicts of one series; None for what it does not predict."""

    t: np.ndarray  # (n,), in the unit of the inputs
    x: np.ndarray | None = None  # (n, D), in the unit of the inputs
    deviation: np.ndarray | None = None  # (n, D), standard deviation of x
    probabilities: np.ndarray | None = None  # (classes,) of the series, or (n, classes) of its points


def preprocess(task: Any, inputs: Any) -> Any:
    """Return inputs as the batch that the task's model takes; raise a UserError if they do not fit the model."""
    if not hasattr(task, "preprocess"):
        raise UserError("this experiment does not say how new inputs are preprocessed: give its task a method "
                        "preprocess")
    return task.preprocess(inputs)


@torch.no_grad()
def predict(task: Any, inputs: Any) -> Any:
    """Predict new inputs with the task's model in evaluation mode."""
    task.model.eval()
    if not hasattr(task, "predict"):
        raise UserError("this experiment does not say how new inputs are predicted: give its task a method predict")
    return task.predict(inputs)


def checked(inputs: Sequence[Series], variables: int, horizon: float) -> list[TimeSeries]:
    """Return series with their masks; raise a UserError that names the first series that does not fit the model."""
    found = []
    for i, (t, x) in enumerate(checked_arrays(inputs, variables)):
        if not (t[0] >= 0 and t[-1] <= horizon * (1 + SLACK)):
            raise UserError(f"the times of series {i} must increase within 0 to {horizon:g}")
        m = ~np.isnan(x)
        found.append(TimeSeries(t.astype(np.float32), np.where(m, x, 0).astype(np.float32), m.astype(np.float32)))
    return found


def checked_arrays(inputs: Sequence[Series], variables: int) -> list[Series]:
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
