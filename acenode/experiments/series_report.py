"""What is recorded of a series model: snapshots of its probes while it trains, and the report on its test set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from acenode.data.points import SeriesBatch
from acenode.data.variables import unit
from acenode.experiments.analysis import confusion
from acenode.experiments.attention_flow import excess_flow, row_distance
from acenode.experiments.probes import half, in_turn
from acenode.experiments.series_batches import Layout, Records, SeriesSplits, assemble, cut_of
from acenode.experiments.series_outputs import SeriesOutputs
from acenode.models.influence import layer_influence
from acenode.node import ACENODE, NODE, AugmentedNODE
from acenode.training.metrics import binary_auc, roc

SHOWN, VARIABLES, GRID = 6, 6, 97  # records shown, variables of each, times of a curve
INFLUENCE_SIZE = 24  # coordinates of z up to which a snapshot has the influence between them
BINS, TIMES = 10, 24  # bins of the calibration, bins of the errors over time


def choose(records: Records, kind: str, count: int) -> list[int]:
    """Return the indices of `count` records: the classes in turn, those with most points first."""
    longest = sorted(range(len(records)), key=lambda i: -len(records.series[i].t))
    return in_turn([(i, main_label(records.labels[i], kind)) for i in longest])[:count]


def main_label(own: np.ndarray, kind: str) -> int:
    """Return a record's class, or the most frequent class of its points; -1 if it is not known."""
    if kind == "points":
        return int(np.bincount(own[own >= 0]).argmax()) if (own >= 0).any() else -1
    return -1 if np.isnan(own) else int(own)


def snapshot(t: np.ndarray, h: Tensor, a: Tensor | None, probes: Records, kind: str) -> dict[str, np.ndarray]:
    """Return the arrays of a snapshot file."""
    labels = np.array([max(0, main_label(own, kind)) for own in probes.labels], np.int64)
    arrays = {"t": t.astype(np.float32), "h": half(h), "name": np.array(probes.ids),
              "time_scale": np.array([probes.horizon], np.float32), "time_unit": np.array([probes.unit])}
    if kind != "vitals":
        arrays["label"] = labels
    return arrays | ({"a": half(a)} if a is not None else {})


def influence_of(model: Any, batch: SeriesBatch, t: list[float]) -> dict[str, np.ndarray]:
    """Return the influence |∂ż_i/∂z_j| of a snapshot, (F, B, d, d); nothing if z has no ODE layer or is too large."""
    layer: Any = getattr(model, "ode", None)
    if type(layer) not in (NODE, AugmentedNODE, ACENODE) or not hasattr(model, "encode"):
        return {}
    z0 = model.encode(batch)[0]
    if z0[0].numel() > INFLUENCE_SIZE:
        return {}
    return {"influence": half(layer_influence(layer, z0, t)[1])}


def report(model: nn.Module, splits: SeriesSplits, layout: Layout, out: SeriesOutputs,
           noise: Tensor) -> dict[str, Any]:
    """Return what the pages and reports show of the test set, by the keys of result.json.

    `out` are the outputs for the whole test set; `noise` is that of z0 for the records shown one by one.
    """
    found: dict[str, Any] = {}
    records = splits.test
    chosen = records.take(choose(records, out.kind, SHOWN))
    batch = assemble(chosen, layout, noise, 0.0, cut_of(records, layout))
    if out.kind == "record":
        logits, labels = out.labelled()
        found |= record_curves(logits.ravel(), np.tile(labels, len(logits)))
        found |= confusion((logits.mean(0) > 0).astype(int), labels.astype(int), splits.classes)
    if out.kind == "points":
        logits, labels = out.labelled()
        found |= confusion(logits.mean(0).argmax(-1), labels, splits.classes)
        found["bands"] = bands(model, chosen, batch)
    else:
        found["records"] = curves(model, layout, chosen, batch)
    if out.bins is not None:
        found["over_time"] = over_time(out.bins, batch.span, records)
    attention, learned = attention_and_coupling(model, batch)
    if attention is not None:
        found["row_distance"] = {"value": row_distance(attention[-1]), "how": (
            "mean total-variation distance between two rows of softmax(a) at the last time; 0 if all are equal")}
    if splits.coupling is not None and learned is not None:
        found["coupling"] = {
            "names": list(records.names), "known": splits.coupling.tolist(), "learned": learned.round(4).tolist(),
            "how": "softmax(a(t)) averaged over records and time, mapped to the variables by the emission's weights, "
                   "relative to uniform attention"}
    return found


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


def over_time(bins: np.ndarray, span: tuple[float, float], records: Records) -> dict[str, Any]:
    """Return the mean squared error in each time bin."""
    edges = np.linspace(*span, bins.shape[1] + 1) * records.horizon
    mse = [float(s / n) if n else None for s, n in bins.T]
    return {"t": ((edges[1:] + edges[:-1]) / 2).round(3).tolist(), "mse": mse, "count": bins[1].astype(int).tolist(),
            "unit": records.unit}


def bands(model: nn.Module, chosen: Records, batch: SeriesBatch) -> list[dict[str, Any]]:
    """Return the predicted and the true class of every point of a few records."""
    classes = model(batch).logits.mean(0).argmax(-1).cpu().numpy()  # (B, T)
    found = []
    for b, (r, own) in enumerate(zip(chosen.series, chosen.labels, strict=True)):
        found.append({"id": chosen.ids[b], "unit": chosen.unit, "t": (r.t * chosen.horizon).round(4).tolist(),
                      "true": [int(v) if v >= 0 else None for v in own], "predicted": classes[b, :len(r.t)].tolist()})
    return found


def curves(model: nn.Module, layout: Layout, chosen: Records, batch: SeriesBatch) -> list[dict[str, Any]]:
    """Return predictions for a few records on a grid of times: mean and range over the samples of z0."""
    if layout.backwards is False or not hasattr(model, "encoder"):
        return []  # it predicts at a record's own times only
    start, end = batch.span
    grid = np.linspace(start, end, GRID)
    predicted = _at_grid(model, batch, grid)  # (K, B, GRID, D)
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
            variables.append({"name": chosen.names[j], **_unit(chosen, j),
                              **{k: (v * chosen.horizon).round(3).tolist() for k, v in points.items()},
                              **{k: v.astype(float).round(5).tolist() for k, v in values.items()}})
        found.append({"id": chosen.ids[b], "unit": chosen.unit, "cut": start * chosen.horizon if start > 0 else None,
                      "variables": variables})
    return found


def _unit(records: Records, j: int) -> dict[str, Any]:
    """Return the unit of a variable, and the shift and scale that convert normalised values to it."""
    if records.scale is None:
        return {}
    return {"unit": unit(records.names[j]), "shift": float(records.scale.shift[j]),
            "scale": float(records.scale.scale[j])}


def _at_grid(model: nn.Module, batch: SeriesBatch, grid: np.ndarray) -> Tensor:
    B, D = len(batch.seen.t), batch.seen.x.shape[-1]
    t = torch.from_numpy(grid).float().to(batch.seen.t.device).expand(B, -1).clamp(*batch.span)
    empty = torch.zeros(B, len(grid), D, device=t.device)
    target = replace(batch.target, t=t, x=empty, m=empty, valid=torch.ones_like(t, dtype=torch.bool))
    return model(replace(batch, target=target)).x


def attention_and_coupling(model: nn.Module, batch: SeriesBatch) -> tuple[Tensor | None, np.ndarray | None]:
    """Return a at 21 times, and the learned coupling of the variables: attention on z, mapped by the emission.

    Both are None without attention, and the coupling if the emission is not one matrix.
    """
    emission: Any = getattr(model, "emission", None)
    _, a = model.trajectory(batch, np.linspace(*batch.span, 21).tolist())  # type: ignore[operator]
    if a is None:
        return None, None
    return a, excess_flow(a, emission.weight) if hasattr(emission, "weight") else None
