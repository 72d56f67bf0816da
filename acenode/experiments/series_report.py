"""What is recorded of a series model: snapshots of its probes while it trains, and the report on its test set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from acenode.data.points import SeriesBatch
from acenode.data.variables import unit
from acenode.experiments.recording import (
    attention_report,
    confusion,
    excess_flow,
    half,
    in_turn,
    means,
    record_curves,
    with_attention,
)
from acenode.experiments.series_batches import Records, SeriesOutputs, SeriesSplits
from acenode.models.influence import layer_influence
from acenode.models.latent.latent_ode import LatentODE, PoissonODE
from acenode.models.latent.ode_rnn import Autoregressive
from acenode.node import ACENODE, NODE

SHOWN, VARIABLES, GRID = 6, 6, 97  # records shown, variables of each, times of a curve
INFLUENCE_SIZE = 24  # coordinates of z up to which a snapshot has the influence between them
TIMES = 24  # bins of the errors over time


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
    arrays = {"t": t.astype(np.float32), "h": half(h), "name": np.array(probes.ids),
              "time_scale": np.array([probes.horizon], np.float32), "time_unit": np.array([probes.unit])}
    if kind != "vitals":
        arrays["label"] = np.array([max(0, main_label(own, kind)) for own in probes.labels], np.int64)
    return with_attention(arrays, a)


def influence_of(model: nn.Module, batch: SeriesBatch, t: list[float]) -> dict[str, np.ndarray]:
    """Return the influence |∂ż_i/∂z_j| of a snapshot, (F, B, d, d); nothing if z has no ODE layer or is too large."""
    if not isinstance(model, LatentODE) or not isinstance(layer := model.ode, NODE | ACENODE):
        return {}
    z0 = model.encode(batch)[0]
    if isinstance(layer, PoissonODE) or z0[0].numel() > INFLUENCE_SIZE:
        return {}
    return {"influence": half(layer_influence(layer, z0, t)[1])}


def report(model: nn.Module, splits: SeriesSplits, out: SeriesOutputs, chosen: Records,
           batch: SeriesBatch) -> dict[str, Any]:
    """Return what the pages and reports show of the test set, by the keys of result.json.

    `out` are the outputs for the whole test set; `chosen` are the records shown one by one, and their batch.
    """
    found: dict[str, Any] = {}
    if out.kind == "record":
        logits, labels = out.labelled()
        found |= record_curves(logits.ravel(), np.tile(labels, len(logits)))
        found |= confusion((logits.mean(0) > 0).astype(int), labels.astype(int), splits.classes)
    if out.kind == "points":
        logits, labels = out.labelled()
        found |= confusion(logits.mean(0).argmax(-1), labels, splits.classes)
        found["bands"] = bands(model, chosen, batch)
    else:
        found["records"] = curves(model, chosen, batch)
    if out.bins is not None:
        edges = np.linspace(*batch.span, out.bins.shape[1] + 1) * chosen.horizon
        found["over_time"] = {"t": ((edges[1:] + edges[:-1]) / 2).round(3).tolist(), "mse": means(*out.bins),
                              "count": out.bins[1].astype(int).tolist(), "unit": chosen.unit}
    _, a = model.trajectory(batch, np.linspace(*batch.span, 21).tolist())  # type: ignore[operator]
    learned = None  # the emission maps attention on z to the variables if it is one matrix
    if a is not None and isinstance(model.emission, nn.Linear):
        learned = excess_flow(a, model.emission.weight)
    return found | attention_report(a, chosen.names, splits.coupling, learned, "the last time", "records",
                                    "the emission's weights")


def bands(model: nn.Module, chosen: Records, batch: SeriesBatch) -> list[dict[str, Any]]:
    """Return the predicted and the true class of every point of a few records."""
    classes = model(batch).logits.mean(0).argmax(-1).cpu().numpy()  # (B, T)
    found = []
    for b, (r, own) in enumerate(zip(chosen.series, chosen.labels, strict=True)):
        found.append({"id": chosen.ids[b], "unit": chosen.unit, "t": (r.t * chosen.horizon).round(4).tolist(),
                      "true": [int(v) if v >= 0 else None for v in own], "predicted": classes[b, :len(r.t)].tolist()})
    return found


def curves(model: nn.Module, chosen: Records, batch: SeriesBatch) -> list[dict[str, Any]]:
    """Return predictions for a few records on a grid of times: mean and range over the samples of z0."""
    if isinstance(model, Autoregressive):
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
            in_unit = {} if chosen.scale is None else {  # shift and scale convert normalised values to the unit
                "unit": unit(chosen.names[j]), "shift": float(chosen.scale.shift[j]),
                "scale": float(chosen.scale.scale[j])}
            variables.append({"name": chosen.names[j], **in_unit,
                              **{k: (v * chosen.horizon).round(3).tolist() for k, v in points.items()},
                              **{k: v.astype(float).round(5).tolist() for k, v in values.items()}})
        found.append({"id": chosen.ids[b], "unit": chosen.unit, "cut": start * chosen.horizon if start > 0 else None,
                      "variables": variables})
    return found


def _at_grid(model: nn.Module, batch: SeriesBatch, grid: np.ndarray) -> Tensor:
    B, D = len(batch.seen.t), batch.seen.x.shape[-1]
    t = torch.from_numpy(grid).float().to(batch.seen.t.device).expand(B, -1).clamp(*batch.span)
    empty = torch.zeros(B, len(grid), D, device=t.device)
    target = replace(batch.target, t=t, x=empty, m=empty, valid=torch.ones_like(t, dtype=torch.bool))
    return model(replace(batch, target=target)).x
