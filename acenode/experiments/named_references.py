"""What one gets without a neural network on a set of named variables: mean, last value, and ridge regression.

Forecasts: ridge regression of every target on all values that were given, brought to equal steps; `ridge, own past`
reads the variable's own values only. Filling in: of every variable on its neighbours in time and on the other
variables at that time. Classification: logistic regression on the last and the mean value of every variable. The
strength of the ridge is chosen on the validation part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from acenode.data.named_batches import NamedBatch, ScaledSet, last_values, own_path
from acenode.data.points import Points, unpad
from acenode.errors import one_line
from acenode.training.metrics import binary_auc, macro_auc

MEAN, LAST, RIDGE, RIDGE_OWN, LOGISTIC, MAJORITY = ("mean", "last value", "ridge", "ridge, own past",
                                                   "logistic regression", "majority class")
STRENGTHS = (0.1, 1.0, 10.0, 100.0, 1000.0)
STEPS = 12  # equal steps at which given values are read, at most
BINS = 16  # intervals of time in which targets share a regression, at most


@dataclass(frozen=True)
class SquaredErrors:
    """Squared errors of a prediction by variable, in standardised units: sums and counts, (V,) each."""

    sums: np.ndarray
    counts: np.ndarray

    @property
    def mse(self) -> float:
        return float(self.sums.sum() / max(1.0, self.counts.sum()))

    def by_variable(self) -> np.ndarray:
        """Return the mean squared error of every variable, (V,); NaN where nothing was predicted."""
        return np.divide(self.sums, self.counts, out=np.full(len(self.sums), np.nan), where=self.counts > 0)


def squared_errors(predicted: np.ndarray, target: Points) -> SquaredErrors:
    m = target.m.cpu().numpy().astype(np.float64)
    squared = (predicted - target.x.cpu().numpy().astype(np.float64)) ** 2 * m
    return SquaredErrors(squared.sum((0, 1)), m.sum((0, 1)))


def value_references(data: ScaledSet, failed: dict[str, str]) -> dict[str, SquaredErrors]:
    """Return the errors of every reference on the test part of a forecast or of filling in.

    A regression that cannot be computed is left out, and the reason is stored in `failed` under its name.
    """
    batches = {part: data.batch(data.source.parts[part]) for part in ("train", "validation", "test")}
    test = batches["test"]
    last = test.reference.numpy() if data.source.task == "forecast" else \
        last_before(test.seen, test.target, np.zeros(test.target.x.shape[-1]))
    found = {MEAN: squared_errors(np.zeros(test.target.x.shape), test.target),
             LAST: squared_errors(last, test.target)}
    rows = _forecast_rows if data.source.task == "forecast" else _fill_rows
    for name, own in ((RIDGE, False), (RIDGE_OWN, True)):
        with _noted(name, failed):
            found[name] = squared_errors(_ridge(batches, rows, own=own), test.target)
    return found


def label_references(data: ScaledSet, failed: dict[str, str]) -> dict[str, dict[str, float]]:
    """Return AUC and accuracy of every reference on the test part of a classification; `failed` as above."""
    source = data.source
    assert source.labels is not None
    rows = {part: np.stack([np.concatenate([last_values(s), s.x.sum(0) / np.maximum(s.m.sum(0), 1), s.m.any(0)])
                            for s in (data.series[i] for i in chosen)]) for part, chosen in source.parts.items()}
    label = {part: source.labels[source.parts[part]] for part in source.parts}
    frequent = int(np.bincount(label["train"]).argmax())
    found = {MAJORITY: {"auc": 0.5, "accuracy": float((label["test"] == frequent).mean())}}
    with _noted(LOGISTIC, failed):
        found[LOGISTIC] = _logistic(rows, label)
    return found


def _logistic(rows: dict[str, np.ndarray], label: dict[str, np.ndarray]) -> dict[str, float]:
    from sklearn.linear_model import LogisticRegression

    fits = [LogisticRegression(C=1 / strength, max_iter=2000).fit(rows["train"], label["train"])
            for strength in STRENGTHS]
    best = max(fits, key=lambda fit: auc(fit.predict_log_proba(rows["validation"]), label["validation"]))
    scores = best.predict_log_proba(rows["test"])
    return {"auc": auc(scores, label["test"]),
            "accuracy": float((best.classes_[scores.argmax(1)] == label["test"]).mean())}


@contextmanager
def _noted(name: str, failed: dict[str, str]) -> Iterator[None]:
    """Store in `failed` why a regression cannot be fitted."""
    try:
        yield
    except (ValueError, ArithmeticError) as error:  # LinAlgError is a ValueError
        failed[name] = one_line(error)


def auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the AUC of scores (N, classes): of the second class if there are two, else averaged over classes."""
    return binary_auc(scores[:, 1] - scores[:, 0], labels == 1) if scores.shape[1] == 2 else macro_auc(scores, labels)


def last_before(seen: Points, target: Points, means: np.ndarray) -> np.ndarray:
    """Return the last value of each variable that was observed before each target, (B, T, V); before the first one,
    `means`, (V,)."""
    found = np.empty(target.x.shape)
    for b, series in enumerate(unpad(seen)):
        order = np.where(series.m > 0, np.arange(1, len(series.t) + 1)[:, None], 0)
        latest = np.concatenate([np.zeros((1, order.shape[1]), int), np.maximum.accumulate(order, 0)])  # 0: none so far
        place = latest[np.searchsorted(series.t, target.t[b].numpy(), side="left")]  # (T, V)
        found[b] = np.take_along_axis(np.concatenate([means[None], series.x]), place, 0)
    return found


Rows = Callable[[NamedBatch, int, bool, int], tuple[np.ndarray, np.ndarray]]


def _forecast_rows(batch: NamedBatch, variable: int, own: bool, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the given values at equal steps (B, T, features), and the interval of time of every target, (B, T).

    `steps` and the number of intervals (`times` is that of the whole set) must be the same for all parts of a set.
    """
    start = batch.span[0]
    grid = np.linspace(0.0, start, steps)
    paths = np.stack([own_path(s, grid)[..., 0] for s in unpad(batch.seen)])  # (B, steps, V)
    chosen = paths[..., [variable]] if own else paths
    T = batch.target.t.shape[1]
    features = np.repeat(chosen.reshape(len(paths), 1, -1), T, 1)
    bins = min(BINS, len(batch.times)) if batch.times is not None else BINS
    share = (batch.target.t.numpy() - start) / (batch.span[1] - start)
    return features, np.clip(np.ceil(share * bins - 1e-3) - 1, 0, bins - 1).astype(int)


def _fill_rows(batch: NamedBatch, variable: int, own: bool, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the interpolations of the variable and of the others at every target, (B, T, features), one interval."""
    paths = np.stack([own_path(s, t) for s, t in zip(unpad(batch.seen), batch.target.t.numpy(), strict=True)])
    chosen = paths[:, :, [variable]] if own else paths
    features = np.concatenate([chosen[..., 0], chosen[..., 0] * chosen[..., 1]], -1)
    return features, np.zeros(batch.target.t.shape, int)


def _ridge(batches: dict[str, NamedBatch], rows: Rows, *, own: bool) -> np.ndarray:
    """Return the predictions for the test part, (B, T, V), each variable and interval by a regression of its own."""
    test = batches["test"]
    found = np.zeros(test.target.x.shape)
    steps = min(STEPS, batches["train"].seen.t.shape[1])  # other parts may have series with fewer or more times
    for v in range(found.shape[-1]):
        data = {part: rows(batch, v, own, steps) for part, batch in batches.items()}
        for interval in np.unique(data["test"][1]):
            held = {part: (bins == interval) & (batches[part].target.m[..., v].numpy() > 0)
                    for part, (_, bins) in data.items()}
            if held["train"].sum() < 2:
                continue
            x, y = ({part: values[held[part]] for part, values in these.items()}
                    for these in ({p: d[0] for p, d in data.items()},
                                  {p: b.target.x[..., v].numpy() for p, b in batches.items()}))
            found[..., v][held["test"]] = _fit(x, y)
    return found


def _fit(x: dict[str, np.ndarray], y: dict[str, np.ndarray]) -> np.ndarray:
    from sklearn.linear_model import Ridge

    fits = [Ridge(alpha=strength).fit(x["train"], y["train"]) for strength in STRENGTHS]
    if not len(x["test"]):
        return np.zeros(0)
    if not len(x["validation"]):
        return fits[len(fits) // 2].predict(x["test"])
    errors = [np.square(fit.predict(x["validation"]) - y["validation"]).mean() for fit in fits]
    return fits[int(np.argmin(errors))].predict(x["test"])


def in_own_units(errors: SquaredErrors, std: np.ndarray) -> Sequence[float | None]:
    """Return the root mean squared error of every variable in its own unit; None where nothing was predicted."""
    rmse = np.sqrt(errors.by_variable()) * std
    return [float(f"{e:.5g}") if np.isfinite(e) else None for e in rmse]
