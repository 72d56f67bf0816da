"""Record a forecasting model: snapshots of its probes during training, and the report on its test set."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from acenode.data.schedule import SporadicBatch
from acenode.experiments.forecast_batches import ForecastSeries
from acenode.experiments.recording import LIMIT, attention_report, excess_flow, half, means, with_attention
from acenode.models.forecast.gaussian import Forecast
from acenode.models.forecast.gru_ode_bayes import GRUODEBayes, common_times

SHOWN, GRID, BINS = 6, 200, 10  # series shown, times of a curve, bins of the errors over time
FRAMES = 41  # times in a snapshot
BAND = 2.0  # half width of the band of a forecast, in standard deviations


def snapshot(model: nn.Module, data: ForecastSeries, probes: list[int]) -> dict[str, np.ndarray]:
    """Return the arrays of a snapshot file, for as many probes as its size limit allows."""
    d = int(model.latent)  # type: ignore[arg-type]
    attentive = isinstance(model, GRUODEBayes) and model.attention is not None
    size = FRAMES * 2 * (d + (d * d if attentive else 0))
    chosen = probes[:max(1, min(len(probes), LIMIT // size))]
    batch = data.forecast_batch(chosen, 0)
    t = data.grid(FRAMES)
    h, a = model.trajectory(batch, t.tolist())  # type: ignore[operator]
    jumps = [r.t[r.t <= data.cut] for r in data.records(chosen)]
    marks = np.full((len(chosen), max(len(j) for j in jumps)), np.nan, np.float32)
    for row, times in zip(marks, jumps, strict=True):
        row[:len(times)] = times
    return with_attention({"t": t.astype(np.float32), "h": half(h), "jumps": marks, "name": data.arrays.ids[chosen]}, a)


def report(model: nn.Module, data: ForecastSeries, bins: np.ndarray) -> dict[str, Any]:
    """Return the results on the test set that pages and exports show, by the keys of result.json.

    `bins` (3, BINS) are squared errors, negative log-likelihoods and counts over time after the cut, where the model
    reads no values.
    """
    a, (squared, nll, count) = data.arrays, bins
    edges = np.linspace(data.cut, a.horizon, bins.shape[1] + 1)
    found: dict[str, Any] = {"over_time": {
        "t": ((edges[1:] + edges[:-1]) / 2).round(4).tolist(), "count": count.astype(int).tolist(),
        "mse": means(squared, count), "negll": means(nll, count), "unit": a.unit}, "cut": data.cut,
        "records": records(model, data)}
    attention, learned = attention_over_time(model, data), None
    if attention is not None:
        p: Any = model.p  # attention on h, mapped by the weights from h to the means
        learned = excess_flow(attention, p.out.weight[:len(a.names)].abs() @ p.hidden.weight.abs())
    return found | attention_report(attention, a.names, a.coupling, learned, "the end of the series", "series",
                                    "the weights of p")


def records(model: nn.Module, data: ForecastSeries) -> list[dict[str, Any]]:
    """Return a few series: the observations before and after the cut, and the forecast over time."""
    a, chosen = data.arrays, data.longest(data.parts.test, SHOWN)
    lines, found = curves(model, data, data.forecast_batch(chosen, 0)), []
    has_jumps = isinstance(model, GRUODEBayes)
    for b, (i, r) in enumerate(zip(chosen, data.records(chosen), strict=True)):
        t, mean, deviation = lines[b]
        seen = r.t <= data.cut
        variables = []
        for j, name in enumerate(a.names):
            observed = r.m[:, j] > 0
            values = {"t": r.t[observed & seen], "x": r.x[observed & seen, j], "target_t": r.t[observed & ~seen],
                      "target_x": r.x[observed & ~seen, j], "grid": t, "mean": mean[:, j],
                      "low": mean[:, j] - BAND * deviation[:, j], "high": mean[:, j] + BAND * deviation[:, j]}
            variables.append({"name": name, **{k: np.asarray(v, float).round(4).tolist() for k, v in values.items()}})
        found.append({"id": str(a.ids[i]), "unit": a.unit, "unit_note": data.note, "cut": data.cut,
                      "jumps": r.t[seen].astype(float).round(4).tolist() if has_jumps else [],
                      "band": "two standard deviations", "variables": variables})
    return found


def curves(model: nn.Module, data: ForecastSeries,
           batch: SporadicBatch) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return times, means and standard deviations of each series; at a jump both before and after it."""
    if isinstance(model, GRUODEBayes):
        seen, after, between, times = model.predict_around_jumps(batch, data.grid(GRID).tolist())
        parts = [(times, between), (batch.seen, seen), (batch.seen, after)]
    else:
        t = np.linspace(data.cut, data.arrays.horizon, GRID // 4 + 1)[1:]
        later = common_times(batch.seen, t.tolist())  # with nothing observed
        predicted: Forecast = model(SporadicBatch(batch.seen, batch.seen, batch.horizon))
        parts = [(batch.seen, predicted), (later, model(SporadicBatch(batch.seen, later, batch.horizon)))]
    found = []
    for b in range(len(batch.seen.t)):
        columns = [(points.t[b][points.valid[b]], predicted.mean[b][points.valid[b]],
                    (0.5 * predicted.logvar[b][points.valid[b]]).exp()) for points, predicted in parts]
        t, mean, deviation = (torch.cat(column).double().cpu().numpy() for column in zip(*columns, strict=True))
        order = np.argsort(t, kind="stable")  # keeps the order at equal times: between jumps, before a jump, after it
        found.append((t[order], mean[order], deviation[order]))
    return found


def attention_over_time(model: nn.Module, data: ForecastSeries) -> torch.Tensor | None:
    """Return a of some test series at 21 times, (21, B, d, d), or None without attention."""
    batch = data.forecast_batch(data.parts.test[:SHOWN * 4], 0)
    a: torch.Tensor | None = model.trajectory(batch, data.grid(21).tolist())[1]  # type: ignore[operator]
    return a
