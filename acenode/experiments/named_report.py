"""What is recorded of a model of named variables: snapshots of its probes, and the report on its test part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acenode.data.named_batches import NamedBatch, ScaledSet, references_at
from acenode.data.named_set import NamedSet
from acenode.data.points import Points
from acenode.experiments.named_references import SquaredErrors, in_own_units, label_references, value_references
from acenode.experiments.recording import confusion, half, in_turn, record_curves, row_distance, with_attention
from acenode.models.influence import influence
from acenode.models.named.model import NamedModel
from acenode.training.metrics import binary_auc

PROBES, FRAMES = 8, 41  # of a snapshot
SHOWN, GRID = 6, 73  # series shown in the report, times of a curve
READ, READ_TIMES = 100, 11  # test series and times over which attention and influence are averaged


def choose(source: NamedSet, part: str = "validation", count: int = PROBES) -> np.ndarray:
    """Return `count` series of a part: the classes in turn, those with most observations first."""
    index = sorted(source.parts[part].tolist(), key=lambda i: -int(source.series[i].m.sum()))
    labels = [0] * len(index) if source.labels is None else source.labels[index].tolist()
    if source.task == "forecast" and len(index) > count:  # windows of one series: spread over its time
        index = [sorted(index)[i] for i in np.linspace(0, len(index) - 1, count).astype(int)]
        return np.array(index)
    return np.array(in_turn(list(zip(index, labels, strict=True)))[:count])


def snapshot(model: NamedModel, batch: NamedBatch, index: np.ndarray, source: NamedSet) -> dict[str, np.ndarray]:
    """Return what each variable's state reads (F, B, V), a(t) and the influence (F, B, V, V) of the series `index`."""
    t = np.linspace(*batch.span, FRAMES)
    h, a, acts = course(model, batch, t.tolist())
    arrays = {"t": t.astype(np.float32), "h": half(model.read_out(h).squeeze(-1).detach()), "influence": half(acts),
              "coordinate": np.array(source.variables), "name": np.array([source.ids[i] for i in index]),
              "time_scale": np.array([source.duration], np.float32), "time_unit": np.array([source.time_unit])}
    if source.labels is not None:
        arrays["label"] = batch.label.cpu().numpy()
    return with_attention(arrays, a)


def course(model: NamedModel, batch: NamedBatch, t: list[float]) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return h (F, B, V, k), a (F, B, V, V) and the influence |∂ḣ_i/∂h_j| (F, B, V, V) at common times."""
    with torch.no_grad():
        h0, control = model.start(batch)
        path = model.ode(h0, t, control)
        field, _ = model.ode.system(h0, control)
    states = (path.h,) if path.a is None or model.ode.g is None else (path.h, path.a)
    return path.h, path.a, influence(field, t, states, path.h.shape[-1])


def report(model: NamedModel, data: ScaledSet, errors: SquaredErrors, correlation: np.ndarray,
           classified: tuple[np.ndarray, np.ndarray] | None, device: torch.device) -> dict[str, Any]:
    source = data.source
    found: dict[str, Any] = {"variables": list(source.variables), "units": list(source.units)}
    failed: dict[str, str] = {}  # references that cannot be computed, which must not cost a trained run its results
    if classified is not None:
        logits, labels = classified
        found |= confusion(logits.argmax(1), labels, source.classes)
        if len(source.classes) == 2:
            found |= record_curves(logits[:, 1] - logits[:, 0], labels.astype(float))
        found["references"] = label_references(data, failed)
    else:
        references = value_references(data, failed)
        found["references"] = {name: {"mse": r.mse} for name, r in references.items()}
        found["own_units"] = {"variables": list(source.variables), "units": list(source.units),
                              "rmse": {name: in_own_units(e, source.std)
                                       for name, e in {"model": errors, **references}.items()}}
        found["records"] = curves(model, data, device)
    found["references"] |= {name: {"failure": reason} for name, reason in failed.items()}
    return found | coupling(model, data, correlation, device)


def coupling(model: NamedModel, data: ScaledSet, correlation: np.ndarray, device: torch.device) -> dict[str, Any]:
    """Return attention and influence averaged over test series and time, and how well they tell known links."""
    source, names = data.source, list(data.source.variables)
    batch = data.batch(source.parts["test"][:READ]).to(device)
    _, a, acts = course(model, batch, np.linspace(*batch.span, READ_TIMES).tolist())
    acting = acts.mean((0, 1)).cpu().numpy()
    found: dict[str, Any] = {"influence": {"names": names, "mean": acting.round(4).tolist()}}
    attention = None if a is None else torch.softmax(a, -1).mean((0, 1)).detach().cpu().numpy()
    if attention is not None:
        found["attention"] = {"names": names, "mean": attention.round(4).tolist()}
    if a is not None and attention is not None:
        found["coupling"] = {"names": names, "learned": (attention - 1 / len(names)).round(4).tolist(),
                             "influence": acting.round(4).tolist(),
                             "how": "softmax(a(t)) averaged over series and time, relative to uniform attention"}
        found["row_distance"] = {"value": round(row_distance(a), 5)}
    if source.links is not None:
        found.setdefault("coupling", {"names": names, "influence": acting.round(4).tolist()})
        found["coupling"]["known"] = source.links.round(4).tolist()
        scores = {"attention": attention, "influence": acting, "correlation": np.abs(correlation)}
        found["links"] = {name: round(link_auroc(s, source.links), 4) for name, s in scores.items() if s is not None}
    return found


def link_auroc(score: np.ndarray, links: np.ndarray) -> float:
    """Return how well scores (V, V) tell linked pairs from others: the AUROC over entries off the diagonal."""
    off = ~np.eye(len(links), dtype=bool)
    return binary_auc(score[off], links[off] > 0)


def curves(model: NamedModel, data: ScaledSet, device: torch.device) -> list[dict[str, Any]]:
    """Return predictions for a few test series on a grid of times, in own units."""
    source = data.source
    index = choose(source, "test", SHOWN)
    batch = data.batch(index)
    grid = np.linspace(*batch.span, GRID)
    predicted = at_times(model, data, batch, grid, device) * source.std + source.mean
    zero = np.array([source.series[i].t[0] for i in index])  # times are shown from the start of each series
    found = []
    for b, i in enumerate(index):
        record, target = source.series[i], batch.target.m[b].numpy() > 0
        seen = (record.seen(source.given)[:, None] & record.m) if source.task == "forecast" else record.m & ~target
        variables = []
        for v, name in enumerate(source.variables):
            points = {"t": record.t[seen[:, v]], "target_t": record.t[(record.m & ~seen)[:, v]]}
            values = {"x": record.x[seen[:, v], v], "target_x": record.x[(record.m & ~seen)[:, v], v]}
            variables.append({"name": name, "unit": source.units[v],
                              **{k: (t - zero[b]).round(4).tolist() for k, t in points.items()},
                              **{k: [float(f"{y:.6g}") for y in x] for k, x in values.items()},
                              "grid": (grid * source.duration).round(4).tolist(),
                              "mean": [float(f"{y:.6g}") for y in predicted[b, :, v]]})
        cut = source.given if source.task == "forecast" else None
        found.append({"id": source.ids[i], "unit": source.time_unit, "cut": cut, "variables": variables})
    return found


@torch.no_grad()
def at_times(model: NamedModel, data: ScaledSet, batch: NamedBatch, t: np.ndarray,
             device: torch.device) -> np.ndarray:
    """Return standardised predictions of a batch at common times within its span, (B, T, V)."""
    B, V = len(batch.label), len(data.source.variables)
    empty = torch.zeros(B, len(t), V)
    times = torch.from_numpy(t).float().clamp(*batch.span).expand(B, -1)
    target = Points(times, empty, empty, torch.ones(B, len(t), dtype=torch.bool))
    reference = references_at(batch.seen, t, data.source.task)
    wanted = replace(batch, target=target, times=None, reference=reference).to(device)
    x = model(wanted).x
    assert x is not None
    return x.double().cpu().numpy()


