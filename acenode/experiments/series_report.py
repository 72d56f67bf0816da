"""What is kept of a series model to look at: probes while it trains, and pictures of its test set at the end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from acenode.experiments.analysis import confusion
from acenode.experiments.flow import beyond_even
from acenode.experiments.probes import half, in_turn
from acenode.experiments.series_batches import Records, assemble, cut_of
from acenode.training.metrics import binary_auc, roc

if TYPE_CHECKING:
    from acenode.data.points import SeriesBatch
    from acenode.experiments.series_task import SeriesTask

SHOWN, VARIABLES, GRID = 6, 6, 97  # records, variables of each, and times of a curve
BINS, TIMES = 10, 24  # of the calibration, and of the errors over time


def choose(records: Records, kind: str, count: int) -> list[int]:
    """Records to watch: of every class in turn, those with most points first."""
    longest = sorted(range(len(records)), key=lambda i: -len(records.series[i].t))
    return in_turn([(i, main_label(records.labels[i], kind)) for i in longest])[:count]


def main_label(own: np.ndarray, kind: str) -> int:
    """A record's class, or the one most of its points have; -1 where it is not known."""
    if kind == "points":
        return int(np.bincount(own[own >= 0]).argmax()) if (own >= 0).any() else -1
    return -1 if np.isnan(own) else int(own)


def snapshot(t: np.ndarray, h: Tensor, a: Tensor | None, probes: Records, kind: str) -> dict[str, np.ndarray]:
    labels = np.array([max(0, main_label(own, kind)) for own in probes.labels], np.int64)
    arrays = {"t": t.astype(np.float32), "h": half(h)}
    if kind != "vitals":
        arrays["label"] = labels
    return arrays | ({"a": half(a)} if a is not None else {})


def report(task: SeriesTask) -> dict[str, Any]:
    """Everything of the test set that is drawn: see the keys."""
    out = task.outputs("test", bins=TIMES if task.kind == "vitals" else 0)
    assert out is not None
    found: dict[str, Any] = {}
    records = task.splits.test
    chosen = records.take(choose(records, task.kind, SHOWN))
    batch = assemble(chosen, task.layout, task.noise("shown", len(chosen)), 0.0, cut_of(records, task.layout))
    if task.kind == "record":
        logits, labels = out.known()
        found |= of_records(logits.ravel(), np.tile(labels, len(logits)))
        found |= confusion((logits.mean(0) > 0).astype(int), labels.astype(int), task.splits.classes)
    if task.kind == "points":
        logits, labels = out.known()
        found |= confusion(logits.mean(0).argmax(-1), labels, task.splits.classes)
        found["bands"] = bands(task, chosen, batch)
    else:
        found["records"] = curves(task, chosen, batch)
    if out.bins is not None:
        found["over_time"] = over_time(out.bins, batch.span, records)
    coupling = task.splits.coupling
    learned = between_variables(task, batch) if coupling is not None else None
    if coupling is not None and learned is not None:
        found["coupling"] = {
            "names": list(records.names), "known": coupling.tolist(), "learned": learned.round(4).tolist(),
            "how": "softmax(a(t)) averaged over records and time, carried to the variables by the emission's weights, "
                   "as a share of what flows into each variable, less an even one"}
    return found


def of_records(logits: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """ROC and calibration of all trajectories' logits, pooled as the metric is."""
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


def over_time(bins: np.ndarray, span: tuple[float, float], records: Records) -> dict[str, Any]:
    edges = np.linspace(*span, bins.shape[1] + 1) * records.horizon
    mse = [float(s / n) if n else None for s, n in bins.T]
    return {"t": ((edges[1:] + edges[:-1]) / 2).round(3).tolist(), "mse": mse, "count": bins[1].astype(int).tolist(),
            "unit": records.unit}


def bands(task: SeriesTask, chosen: Records, batch: SeriesBatch) -> list[dict[str, Any]]:
    """The predicted class of every point of a few records beside the true one."""
    said = task.model(batch).logits.mean(0).argmax(-1).cpu().numpy()  # (B, T)
    found = []
    for b, (r, own) in enumerate(zip(chosen.series, chosen.labels, strict=True)):
        found.append({"id": chosen.ids[b], "unit": chosen.unit, "t": (r.t * chosen.horizon).round(4).tolist(),
                      "true": [int(v) if v >= 0 else None for v in own], "predicted": said[b, :len(r.t)].tolist()})
    return found


def curves(task: SeriesTask, chosen: Records, batch: SeriesBatch) -> list[dict[str, Any]]:
    """What a model says of a few records between and after what it saw, with the spread over its samples of z0."""
    if task.layout.backwards is False or not hasattr(task.model, "encoder"):
        return []  # it speaks at a record's own points alone
    start, end = batch.span
    grid = np.linspace(start, end, GRID)
    said = _at_grid(task, batch, grid)  # (K, B, GRID, D)
    low, mean, high = (q.cpu().numpy() for q in (said.amin(0), said.mean(0), said.amax(0)))
    found = []
    for b, r in enumerate(chosen.series):
        seen = r.t < start if start > 0 else np.ones(len(r.t), bool)
        variables = []
        for j in np.argsort(-r.m.sum(0), kind="stable")[:VARIABLES]:
            here = r.m[:, j] > 0
            points = {"t": r.t[here & seen], "target_t": r.t[here & ~seen], "grid": grid}
            values = {"x": r.x[here & seen, j], "target_x": r.x[here & ~seen, j], "mean": mean[b, :, j],
                      "low": low[b, :, j], "high": high[b, :, j]}
            variables.append({"name": chosen.names[j],
                              **{k: (v * chosen.horizon).round(3).tolist() for k, v in points.items()},
                              **{k: v.astype(float).round(5).tolist() for k, v in values.items()}})
        found.append({"id": chosen.ids[b], "unit": chosen.unit, "cut": start * chosen.horizon if start > 0 else None,
                      "variables": variables})
    return found


def _at_grid(task: SeriesTask, batch: SeriesBatch, grid: np.ndarray) -> Tensor:
    B, D = len(batch.seen.t), batch.seen.x.shape[-1]
    t = torch.from_numpy(grid).float().to(batch.seen.t.device).expand(B, -1).clamp(*batch.span)
    empty = torch.zeros(B, len(grid), D, device=t.device)
    target = replace(batch.target, t=t, x=empty, m=empty, valid=torch.ones_like(t, dtype=torch.bool))
    said = task.model(replace(batch, target=target))
    return said.x


def between_variables(task: SeriesTask, batch: SeriesBatch) -> np.ndarray | None:
    """What attention carries from variable to variable, by the emission's weights."""
    emission: Any = getattr(task.model, "emission", None)
    _, a = task.model.trajectory(batch, np.linspace(*batch.span, 21).tolist())  # type: ignore[operator]
    if a is None or not hasattr(emission, "weight"):
        return None
    return beyond_even(a, emission.weight)
