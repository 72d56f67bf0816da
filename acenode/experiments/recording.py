"""What the families of experiments share: evaluating a model, recording it for snapshots and reports, and predicting.

A task defines `preprocess(inputs)` and `predict(inputs)` for new inputs, which return predictions in their own units.
Images are arrays; a series is a pair (t, x) of times and values, with NaN where nothing was observed. A row of NaN
alone is a time to predict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from acenode.config import Config
from acenode.data.batches import mixed_seed
from acenode.data.points import TimeSeries
from acenode.errors import UserError
from acenode.models.layers import initialise
from acenode.training.metrics import binary_auc, roc
from acenode.training.task import Metric, never_interrupted

LIMIT = 1_900_000  # bytes of a snapshot before compression
PROBES, FRAMES = (4, 10), (9, 41)  # fewest and most
BINS = 10  # of the calibration
SLACK = 1e-6  # of the longest time, for rounding
Series = tuple[np.ndarray, np.ndarray]  # times (n,) and values (n, D), NaN where unobserved


class FamilyTask:
    """A model with its data, evaluated batch by batch. A family adds the batches, the loss and the report."""

    evaluation_batch = 250
    partial = False  # True if only a part of the full data is present
    data_note = ""  # how the full data was made, if it is not the published file
    data_fingerprint = ""  # of an imported set; kept with the run

    def __init__(self, config: Config, model: nn.Module, metric: Metric, device: torch.device) -> None:
        self.config, self.metric, self.device = config, metric, device
        self.interrupted: Callable[[], bool] = never_interrupted  # called between the batches of an evaluation
        self.epoch = -1
        self.cached: dict[Any, list[Any]] = {}  # evaluation batches: they are the same in every epoch
        initialise(model, config.seed)
        self.model: Any = model.to(device)

    def chosen(self, train: np.ndarray, size: int, epoch: int, iteration: int) -> np.ndarray:
        """Return the samples of a training batch, which depend on the seed, the epoch and the iteration alone."""
        if epoch != self.epoch:
            self.order = train[np.random.default_rng(mixed_seed(self.config.seed, epoch)).permutation(len(train))]
            self.epoch = epoch
        return self.order[iteration * size:(iteration + 1) * size]

    @torch.no_grad()
    def evaluated(self, out: Any, batches: Iterable[Any], interrupted: Callable[[], bool]) -> Any:
        """Add the predictions of all batches to `out` and return it; None if interrupted."""
        self.model.eval()
        for batch in batches:
            out.add(self.model(batch), batch)
            if interrupted():
                return None
        return out

    def in_parts(self, key: Any, count: int, make: Callable[[np.ndarray], Any]) -> list[Any]:
        """Return the evaluation batches of `count` samples, made once: `make` takes the numbers of some."""
        if key not in self.cached:
            self.cached[key] = [make(np.arange(count)[i:i + self.evaluation_batch])
                                for i in range(0, count, self.evaluation_batch)]
        return self.cached[key]

    def outputs(self, split: str, interrupted: Callable[[], bool] = never_interrupted) -> Any:
        """Evaluate every sample of a split; None if interrupted."""
        raise NotImplementedError

    def evaluate(self, split: str) -> dict[str, float]:
        """Return the metrics of a split, or nothing if interrupted before the last sample."""
        out = self.outputs(split, self.interrupted)
        return {} if out is None else out.metrics()

    @torch.no_grad()
    def snapshot(self) -> dict[str, np.ndarray]:
        was_training = self.model.training
        self.model.eval()
        found = self.take_snapshot()
        self.model.train(was_training)
        return found

    def take_snapshot(self) -> dict[str, np.ndarray]:
        raise NotImplementedError


def fit(bytes_each: int) -> tuple[int, int]:
    """Return how many probes and frames of `bytes_each` fit under the limit, with at least the fewest probes."""
    pairs = max(LIMIT // bytes_each, PROBES[0])
    probes = min(PROBES[1], max(PROBES[0], pairs // 15))
    return probes, int(np.clip(pairs // probes, 2, FRAMES[1]))


def in_turn(labelled: Sequence[tuple[int, int]]) -> list[int]:
    """Order (sample, label) pairs: the first sample of each label, then the second of each, and so on."""
    seen: Counter[int] = Counter()
    order = []
    for i, label in labelled:
        order.append((seen[label], label, i))
        seen[label] += 1
    return [i for _, _, i in sorted(order)]


def half(x: Tensor) -> np.ndarray:
    return x.clamp(-65_000, 65_000).half().cpu().numpy()


def with_attention(arrays: dict[str, np.ndarray], a: Tensor | None) -> dict[str, np.ndarray]:
    return arrays if a is None else {**arrays, "a": half(a)}


def confusion(predicted: np.ndarray, labels: np.ndarray, classes: tuple[str, ...]) -> dict[str, Any]:
    """Return the confusion matrix (rows: true classes, columns: predicted) and the accuracy of each class."""
    matrix = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(matrix, (labels, predicted), 1)
    support = matrix.sum(1)
    recall = np.divide(matrix.diagonal(), support, out=np.zeros(len(classes)), where=support > 0)
    return {"classes": list(classes), "confusion": matrix.tolist(),
            "class_accuracy": dict(zip(classes, recall.round(6).tolist(), strict=True))}


def record_curves(logits: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Return ROC and calibration of the logits of all trajectories, pooled as in the metric."""
    fpr, tpr = roc(logits, labels)
    probability = 1 / (1 + np.exp(-logits.clip(-500, 500)))
    index = (probability * BINS).astype(int).clip(0, BINS - 1)
    count = np.bincount(index, minlength=BINS)
    held = count > 0
    predicted = np.bincount(index, probability, BINS)[held] / count[held]
    observed = np.bincount(index, labels, BINS)[held] / count[held]
    return {"roc": {"fpr": fpr.round(5).tolist(), "tpr": tpr.round(5).tolist(), "auc": binary_auc(logits, labels)},
            "calibration": {"predicted": predicted.round(4).tolist(), "observed": observed.round(4).tolist(),
                            "count": count[held].tolist()}}


def binned(t: Tensor, edges: Tensor, *values: Tensor) -> np.ndarray:
    """Sum values (B, T, D) at times (B, T) over variables and within the bins between the edges."""
    index = torch.bucketize(t.contiguous(), edges[1:-1], right=True).flatten()
    sums = torch.zeros(len(values), len(edges) - 1, dtype=torch.float64, device=t.device)
    for row, value in zip(sums, values, strict=True):
        row.index_add_(0, index, value.sum(-1).flatten().double())
    return sums.cpu().numpy()


def over_time(edges: np.ndarray, unit: str, count: np.ndarray, digits: int = 4, **sums: np.ndarray) -> dict[str, Any]:
    """Return the mean of each bin between the edges; None where nothing was counted."""
    return {"t": ((edges[1:] + edges[:-1]) / 2).round(digits).tolist(), "count": count.astype(int).tolist(),
            **{name: [float(s / n) if n else None for s, n in zip(own, count, strict=True)]
               for name, own in sums.items()}, "unit": unit}


def excess_flow(a: Tensor, E: Tensor) -> np.ndarray:
    """Return how much more of variable j flows into variable i than with uniform attention, (D, D).

    That is |E| softmax(a) |E|ᵀ with rows normalised to 1, minus 1/D, where E (D, d) are weights from the state to the
    variables, and a (…, d, d) is averaged over its leading dimensions.
    """
    flow = E.abs() @ torch.softmax(a, -1).flatten(0, -3).mean(0) @ E.abs().T
    return (flow / flow.sum(1, keepdim=True) - 1 / len(flow)).cpu().numpy()


def row_distance(a: Tensor) -> float:
    """Return the mean total-variation distance between two rows of softmax(a), (…, d, d) with d > 1.

    It is 0 if all rows are equal and 1 if no two rows attend to a common coordinate.
    """
    S = torch.softmax(a, -1)
    d = S.shape[-1]
    distance = 0.5 * (S.unsqueeze(-2) - S.unsqueeze(-3)).abs().sum(-1)  # (…, d, d); zero on the diagonal
    return float(distance.sum((-1, -2)).mean() / (d * (d - 1)))


def attention_report(a: Tensor | None, names: tuple[str, ...], known: np.ndarray | None, learned: np.ndarray | None,
                     where: str, series: str, weights: str) -> dict[str, Any]:
    """Return how far the rows of attention differ, and the learned coupling of the variables beside the known one."""
    if a is None:
        return {}
    found: dict[str, Any] = {"row_distance": {"value": row_distance(a[-1]), "how": (
        f"mean total-variation distance between two rows of softmax(a) at {where}; 0 if all are equal")}}
    if known is not None and learned is not None:
        found["coupling"] = {
            "names": list(names), "known": known.tolist(), "learned": learned.round(4).tolist(),
            "how": f"softmax(a(t)) averaged over {series} and time, mapped to the variables by {weights}, relative to "
                   "uniform attention"}
    return found


# New inputs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SeriesPrediction:
    """What a model predicts of one series; None for what it does not predict."""

    t: np.ndarray  # (n,), in the unit of the inputs
    x: np.ndarray | None = None  # (n, D), in the unit of the inputs
    deviation: np.ndarray | None = None  # (n, D), standard deviation of x
    probabilities: np.ndarray | None = None  # (classes,) of the series, or (n, classes) of its points


def checked(inputs: Sequence[Series], variables: int, horizon: float) -> list[TimeSeries]:
    """Return series with their masks; raise a UserError that names the first series that does not fit the model."""
    found = []
    for i, (t, x) in enumerate(checked_arrays(inputs, variables)):
        if not (t[0] >= 0 and t[-1] <= horizon * (1 + SLACK)):
            raise UserError(f"the times of series {i} must increase within 0 to {horizon:g}")
        m = ~np.isnan(x)
        found.append(TimeSeries.single(t, np.where(m, x, 0), m))
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
