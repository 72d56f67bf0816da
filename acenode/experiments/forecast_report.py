"""What is kept of a forecasting model to look at: probes while it trains, and forecasts of its test set at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from acenode.data.points import Points, TimeSeries, pad
from acenode.data.sporadic import SporadicBatch
from acenode.experiments.flow import beyond_even
from acenode.experiments.probes import LIMIT, half
from acenode.models.forecast.gaussian import Forecast

if TYPE_CHECKING:
    from acenode.experiments.forecast_task import ForecastTask

SHOWN, GRID, BINS = 6, 200, 10  # series, times of a curve, and of the errors over time
FRAMES = 41  # of a snapshot
BAND = 2.0  # standard deviations


def snapshot(task: ForecastTask) -> dict[str, np.ndarray]:
    """As many probes as fit; between two of its steps a is what it was."""
    d = int(task.model.latent)  # type: ignore[arg-type]
    attentive = getattr(task.model, "attention", None) is not None
    each = FRAMES * 2 * (d + (d * d if attentive else 0))
    chosen = task.probes[:max(1, min(len(task.probes), LIMIT // each))]
    batch = task.forecasts(chosen, 0)
    t = grid_of(task, FRAMES)
    h, a = task.model.trajectory(batch, t.tolist())  # type: ignore[operator]
    jumps = [r.t[r.t <= task.cut] for r in task.records(chosen)]
    marks = np.full((len(chosen), max(len(j) for j in jumps)), np.nan, np.float32)
    for row, own in zip(marks, jumps, strict=True):
        row[:len(own)] = own
    arrays = {"t": t.astype(np.float32), "h": half(h), "jumps": marks, "name": task.arrays.ids[chosen]}
    return arrays | ({"a": half(a)} if a is not None else {})


def grid_of(task: ForecastTask, count: int) -> np.ndarray:
    """Times from 0 to the end, on the model's own steps where it has any."""
    t = np.linspace(0.0, task.arrays.horizon, count)
    return t if task.step is None else np.unique((t / task.step).round()) * task.step


def report(task: ForecastTask) -> dict[str, Any]:
    """Everything of the test set that is drawn: see the keys."""
    errors = task.errors("test", None, bins=BINS)
    assert errors is not None
    assert errors.bins is not None
    found: dict[str, Any] = {"over_time": over_time(task, errors.bins), "cut": task.cut, "records": records(task)}
    known, learned = task.arrays.coupling, between_variables(task)
    if known is not None and learned is not None:
        found["coupling"] = {
            "names": list(task.arrays.names), "known": known.tolist(), "learned": learned.round(4).tolist(),
            "how": "softmax(a(t)) averaged over series and time, carried to the variables by the weights of p, as a "
                   "share of what flows into each variable, less an even one"}
    return found


def over_time(task: ForecastTask, bins: np.ndarray) -> dict[str, Any]:
    """Errors of all observations after the cut, none of which is read, by when they are."""
    edges = np.linspace(task.cut, task.arrays.horizon, bins.shape[1] + 1)
    squared, surprises, count = bins
    return {"t": ((edges[1:] + edges[:-1]) / 2).round(4).tolist(), "count": count.astype(int).tolist(),
            "mse": [float(s / n) if n else None for s, n in zip(squared, count, strict=True)],
            "negll": [float(s / n) if n else None for s, n in zip(surprises, count, strict=True)],
            "unit": task.arrays.unit}


def records(task: ForecastTask) -> list[dict[str, Any]]:
    """A few series: what was seen, what came after the cut, and what the model says on the way."""
    a, test = task.arrays, task.parts.parts.test
    chosen = sorted(test, key=lambda i: -int(a.offsets[i + 1] - a.offsets[i]))[:SHOWN]
    batch = task.forecasts(chosen, 0)
    lines, found, jumping = curves(task, batch), [], hasattr(task.model, "around")
    for b, (i, r) in enumerate(zip(chosen, task.records(chosen), strict=True)):
        t, mean, deviation = lines[b]
        seen = r.t <= task.cut
        variables = []
        for j, name in enumerate(a.names):
            here = r.m[:, j] > 0
            values = {"t": r.t[here & seen], "x": r.x[here & seen, j], "target_t": r.t[here & ~seen],
                      "target_x": r.x[here & ~seen, j], "grid": t, "mean": mean[:, j],
                      "low": mean[:, j] - BAND * deviation[:, j], "high": mean[:, j] + BAND * deviation[:, j]}
            variables.append({"name": name, **{k: np.asarray(v, float).round(4).tolist() for k, v in values.items()}})
        found.append({"id": str(a.ids[i]), "unit": a.unit, "unit_note": task.note, "cut": task.cut,
                      "jumps": r.t[seen].astype(float).round(4).tolist() if jumping else [],
                      "band": "two standard deviations", "variables": variables})
    return found


def curves(task: ForecastTask, batch: SporadicBatch) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Of each series times, means and deviations. At a jump there are two: before and after it."""
    if hasattr(task.model, "around"):
        seen, after, between, times = task.model.around(batch, grid_of(task, GRID).tolist())  # type: ignore[operator]
        parts = [(times, between), (batch.seen, seen), (batch.seen, after)]
    else:
        later = ahead(batch.seen, np.linspace(task.cut, task.arrays.horizon, GRID // 4 + 1)[1:])
        said: Forecast = task.model(SporadicBatch(batch.seen, batch.seen, batch.horizon))
        parts = [(batch.seen, said), (later, task.model(SporadicBatch(batch.seen, later, batch.horizon)))]
    found = []
    for b in range(len(batch.seen.t)):
        columns = [(points.t[b][points.valid[b]], said.mean[b][points.valid[b]],
                    (0.5 * said.logvar[b][points.valid[b]]).exp()) for points, said in parts]
        t, mean, deviation = (torch.cat(column).double().cpu().numpy() for column in zip(*columns, strict=True))
        order = np.argsort(t, kind="stable")  # at equal times: on the way, before a jump, after it
        found.append((t[order], mean[order], deviation[order]))
    return found


def ahead(like: Points, t: np.ndarray) -> Points:
    """The same times of every series, where nothing is observed."""
    B, D = len(like.t), like.x.shape[-1]
    nothing = TimeSeries(t.astype(np.float32), np.zeros((len(t), D), np.float32), np.zeros((len(t), D), np.float32))
    points = pad([nothing] * B)
    return Points(*(v.to(like.t.device) for v in (points.t, points.x, points.m, points.valid)))


def between_variables(task: ForecastTask) -> np.ndarray | None:
    """What attention carries from variable to variable, by the weights from h to the means."""
    batch = task.forecasts(task.parts.parts.test[:SHOWN * 4], 0)
    _, a = task.model.trajectory(batch, grid_of(task, 21).tolist())  # type: ignore[operator]
    if a is None:
        return None
    p: Any = task.model.p
    return beyond_even(a, p.out.weight[:len(task.arrays.names)].abs() @ p.hidden.weight.abs())
