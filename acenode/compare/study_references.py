"""Trivial references of an experiment: what one gets without a model, on the same test set and in the same metric.

Classification: the majority class of the training data. Series: the mean of each variable over the training data, and
the last value that was observed before. Named variables: a regression too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from acenode import experiments
from acenode.config import Config
from acenode.errors import UserError, one_line
from acenode.files import Stamp, stamp

if TYPE_CHECKING:
    from acenode.compare.study_grid import StudyGrid
    from acenode.data.points import Points
    from acenode.experiments.forecast_task import ForecastTask
    from acenode.experiments.image_task import ImageTask
    from acenode.experiments.named_task import NamedTask
    from acenode.experiments.series_task import SeriesTask

MAJORITY, MEAN, LAST = "majority class", "mean", "last value"
WITHOUT_MODEL = "prediction without a model"  # stands for all references of an experiment where none can be computed


@dataclass(frozen=True)
class TrivialReference:
    """A prediction that needs no model, and its value of a metric on the test set.

    Where it could not be computed, `failure` says why and the value is NaN.
    """

    name: str
    value: float
    failure: str = ""


@dataclass(frozen=True)
class ComputedReferences:
    """The metrics of every reference by its name, and why others could not be computed."""

    values: dict[str, dict[str, float]]
    failed: dict[str, str] = field(default_factory=dict)


def study_references(grid: StudyGrid, root: Path) -> tuple[TrivialReference, ...]:
    """Return the references of a study, averaged over its folds; none where its data is not in the data folder.

    Where a finished run reports references, these are used: they do not depend on the model. No error is raised for a
    reference that cannot be computed: it is in the result with its failure.
    """
    if reported := _reported(grid):
        return reported
    folds = {cell.config.get("fold"): cell.config for cell in grid.baseline.cells}
    found: dict[str, list[TrivialReference]] = {}
    for config in folds.values():
        for reference in references(config, root, grid.measure.name):
            found.setdefault(reference.name, []).append(reference)
    return tuple(TrivialReference(name, mean(own.value for own in each), max(own.failure for own in each))
                 for name, each in found.items())


def failure_note(references: Sequence[TrivialReference]) -> str:
    """Say in one line which references could not be computed, and why; empty if all were."""
    reasons: dict[str, list[str]] = {}
    for reference in references:
        if reference.failure:
            reasons.setdefault(reference.failure, []).append(f"“{reference.name}”")
    return " ".join(f"The reference{'s' * (len(names) > 1)} {' and '.join(names)} could not be computed: "
                    f"{reason.removesuffix('.')}." for reason, names in reasons.items())


def _reported(grid: StudyGrid) -> tuple[TrivialReference, ...]:
    """Return the references in the result of a finished run, which sets of named variables have."""
    for entry in (cell.entry for cell in grid.cells if cell.value is not None):
        result = entry.run.result() if entry is not None and not grid.study.folds else None
        listed = (result or {}).get("references")
        if isinstance(listed, dict):
            return tuple(_read(listed, grid.measure.name))
        if result is not None:
            return ()
    return ()


def _read(listed: dict[str, Any], metric: str) -> Iterator[TrivialReference]:
    for name, own in listed.items():
        if isinstance(own, dict) and isinstance(own.get(metric), float):
            yield TrivialReference(name, own[metric])
        elif isinstance(own, dict) and isinstance(own.get("failure"), str):
            yield TrivialReference(name, float("nan"), own["failure"])


def references(config: Config, root: Path, metric: str) -> tuple[TrivialReference, ...]:
    """Return the references of a configuration's data in this metric.

    Where the data is missing or damaged there are none, but the AUC of a constant score, which needs no data.
    """
    try:
        found = _all_references(replace(config, seed=0, device="cpu"), root, stamp(root / "imported"))
    except UserError:
        return (TrivialReference(MAJORITY, 0.5),) if metric == "auc" else ()
    except Exception as error:  # whatever it is, the measured values of a study are shown
        return (TrivialReference(WITHOUT_MODEL, float("nan"), one_line(error)),)
    return (*(TrivialReference(name, own[metric]) for name, own in found.values.items() if metric in own),
            *(TrivialReference(name, float("nan"), reason) for name, reason in found.failed.items()))


@lru_cache(maxsize=32)
def _all_references(config: Config, root: Path, version: Stamp | None) -> ComputedReferences:
    """Compute every reference from the task's own splits.

    `version` changes when a set is imported or deleted: another one may have its name then.
    """
    import torch

    from acenode.backend import PLAIN
    from acenode.experiments.forecast_task import ForecastTask
    from acenode.experiments.image_task import ImageTask
    from acenode.experiments.named_task import NamedTask
    from acenode.experiments.series_task import SeriesTask

    task: Any = experiments.get(config.experiment).make(config, root, torch.device("cpu"), PLAIN)
    if isinstance(task, NamedTask):
        return named_references(task)
    kinds: dict[type, Callable[[Any], dict[str, dict[str, float]]]] = {
        ImageTask: image_references, SeriesTask: series_references, ForecastTask: forecast_references}
    compute = kinds.get(type(task))  # None for a task of another package
    return ComputedReferences(compute(task) if compute is not None else {})


def image_references(task: ImageTask) -> dict[str, dict[str, float]]:
    """Return the share of test images that are of the most frequent class of the training images."""
    frequent = task.batches.images.y.bincount().argmax()
    return {MAJORITY: {"accuracy": float((task.splits["test"].y == frequent).double().mean())}}


def series_references(task: SeriesTask) -> dict[str, dict[str, float]]:
    """Return the references of records, points or vital signs."""
    import torch

    from acenode.experiments.series_outputs import SeriesOutputs
    from acenode.experiments.series_task import observed_mean
    from acenode.models.latent.latent_ode import Predictions

    batches = task.batches_of("test")
    if task.kind == "vitals":
        means = observed_mean(task.splits.train)
        outputs = {name: SeriesOutputs(task.kind) for name in (MEAN, LAST)}
        for batch in batches:
            constant = np.broadcast_to(means, batch.target.x.shape)
            for name, x in ((MEAN, constant), (LAST, last_values(batch.seen, batch.target, means))):
                outputs[name].add(Predictions(torch.from_numpy(x.astype(np.float32))[None], None), batch)
        return {name: out.metrics(has_ode=False) for name, out in outputs.items()}
    out = SeriesOutputs(task.kind)
    for batch in batches:
        logits = torch.zeros(1, len(batch.seen.t))  # a constant score for every record: its AUC is that of chance
        if task.kind == "points":
            logits = torch.zeros(1, *batch.target.t.shape, len(task.splits.classes))
            logits[..., _frequent_label(task)] = 1.0
        out.add(Predictions(None, logits), batch)
    metric = task.metric.name
    return {MAJORITY: {metric: out.metrics(has_ode=False)[metric]}}


def _frequent_label(task: SeriesTask) -> int:
    """Return the most frequent class of the labelled training points with an observation."""
    train = task.splits.train
    labels = np.concatenate([own[series.m.any(-1)] for own, series in zip(train.labels, train.series, strict=True)])
    return int(np.bincount(labels[labels >= 0].astype(np.int64)).argmax())


def forecast_references(task: ForecastTask) -> dict[str, dict[str, float]]:
    """Return the errors of the mean and of the last value before the cut, each with the training data's variance."""
    from acenode.config.groups import ForecastData

    train = task.data.arrays.take(task.data.parts.parts.train)
    counts = np.maximum(train.m.sum(0), 1)
    means = train.x.sum(0, dtype=np.float64) / counts
    variance = np.maximum((((train.x - means) ** 2) * train.m).sum(0) / counts, 1e-12)
    sums = {name: np.zeros(3) for name in (MEAN, LAST)}  # squared errors, negative log-likelihoods, targets
    for batch in task.batches("test", task.config.part(ForecastData).targets):
        target = batch.target
        x, m = target.x.numpy().astype(np.float64), target.m.numpy()
        for name, guess in ((MEAN, means), (LAST, last_values(batch.seen, target, means))):
            squared = (x - guess) ** 2
            nll = 0.5 * (squared / variance + np.log(2 * np.pi * variance))
            sums[name] += (squared * m).sum(), (nll * m).sum(), m.sum()
    return {name: {"mse": float(squared / count), "negll": float(nll / count)}
            for name, (squared, nll, count) in sums.items()}


def named_references(task: NamedTask) -> ComputedReferences:
    """Return the references of named variables: mean, last value and ridge, or logistic regression for classes."""
    from acenode.experiments.named_references import label_references, value_references

    failed: dict[str, str] = {}
    if task.source.task == "classify":
        return ComputedReferences(label_references(task.data, failed), failed)
    values = {name: {"mse": errors.mse} for name, errors in value_references(task.data, failed).items()}
    return ComputedReferences(values, failed)


def last_values(seen: Points, target: Points, means: np.ndarray) -> np.ndarray:
    """Return the last value of each variable that was observed before each target, (B, T, D).

    Args:
        seen: the observations; points at or after a target do not count for it.
        target: the points to predict.
        means: what is predicted before the first observation of a variable, (D,).
    """
    found = np.empty(target.x.shape)
    for b in range(len(found)):
        t, x, m = (part[b].numpy() for part in (seen.t, seen.x, seen.m))
        order = np.where(m > 0, np.arange(1, len(t) + 1)[:, None], 0)
        latest = np.concatenate([np.zeros((1, m.shape[1]), int), np.maximum.accumulate(order, 0)])  # 0: none so far
        real = int(seen.valid[b].sum())
        before = latest[np.searchsorted(t[:real], target.t[b].numpy(), side="left")]  # (T, D)
        known = np.take_along_axis(x, np.maximum(before - 1, 0), 0) if len(t) else np.zeros(before.shape)
        found[b] = np.where(before > 0, known, means)
    return found
