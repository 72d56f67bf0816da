"""Synthetic results of time-series runs, in the files that training writes: for pages, reports and charts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acenode.runs.process import identity
from acenode.runs.store import Run

CREATED = 1_760_000_000.0
METRICS = {"physionet": "auc", "physionet-vitals": "mse", "activity": "accuracy", "ushcn": "mse"}
STATION = ("PRCP", "SNOW", "SNWD", "TMAX", "TMIN")
CLASSES = ["walking", "falling", "lying", "sitting", "standing up", "on all fours", "on the ground"]


def mortality(seed: int = 0, skill: float = 1.5, patients: int = 800) -> dict[str, Any]:
    """Return ROC curve and calibration of synthetic scores."""
    rng = np.random.default_rng(seed)
    label = rng.random(patients) < 0.14
    logit = rng.normal(size=patients) + skill * label - 2.2
    order = np.argsort(-logit)
    tpr, fpr = np.cumsum(label[order]) / label.sum(), np.cumsum(~label[order]) / (~label).sum()
    tpr, fpr = np.r_[0, tpr], np.r_[0, fpr]
    auc = float(np.sum((fpr[1:] - fpr[:-1]) * (tpr[1:] + tpr[:-1]) / 2))
    p = 1 / (1 + np.exp(-logit))
    bins = np.minimum((p * 10).astype(int), 9)
    filled = [bins == b for b in range(10) if (bins == b).any()]
    return {"roc": {"fpr": fpr.tolist(), "tpr": tpr.tolist(), "auc": auc},
            "calibration": {"predicted": [float(p[b].mean()) for b in filled],
                            "observed": [float(label[b].mean()) for b in filled],
                            "count": [int(b.sum()) for b in filled]}}


def vitals(seed: int = 0, error: float = 2.0e-3, cut: float | None = 24.0, records: int = 3) -> dict[str, Any]:
    """Return records with predicted curves, and the error over time in the second half."""
    rng, t = np.random.default_rng(seed), np.linspace(25, 47, 12)
    mse: list[float | None] = (error * (1 + 0.02 * (t - 24)) * rng.uniform(0.9, 1.1, t.size)).tolist()
    mse[3] = None
    return {"over_time": {"t": t.tolist(), "mse": mse, "count": [900] * 12, "unit": "h"},
            "records": [_record(f"13{n:04d}", n, seed, cut) for n in range(records)]}


def _record(name: str, n: int, seed: int, cut: float | None) -> dict[str, Any]:
    variables = []
    for k, variable in enumerate(("HR", "MAP", "Temp", "RespRate", "GCS", "Urine")):
        own, model = np.random.default_rng(100 * n + k), np.random.default_rng(1000 * seed + 100 * n + k)
        grid = np.linspace(0, 48, 97)
        phase, level = own.uniform(0, 6, 2), 0.1 + 0.1 * k
        truth = level + 0.03 * np.sin(grid / 6 + phase[0]) + 0.02 * np.cos(grid / 3 + phase[1])
        at = np.sort(own.choice(97, 40, replace=False))
        x = truth[at] + own.normal(0, 0.008, 40)
        seen = grid[at] <= (cut if cut is not None else 48)
        mean = truth + np.cumsum(model.normal(0, 0.0015, 97))
        wide = 0.004 + 0.0005 * np.maximum(grid - (cut or 48), 0)
        variables.append(_variable(variable, grid[at], x, seen, grid, mean, wide))
    return {"id": name, "unit": "h", "cut": cut, "variables": variables}


def _variable(name: str, t: np.ndarray, x: np.ndarray, seen: np.ndarray, grid: np.ndarray, mean: np.ndarray,
              wide: np.ndarray) -> dict[str, Any]:
    parts = {"t": t[seen], "x": x[seen], "target_t": t[~seen], "target_x": x[~seen], "grid": grid, "mean": mean,
             "low": mean - wide, "high": mean + wide}
    return {"name": name, **{key: values.tolist() for key, values in parts.items()}}


def activities(seed: int = 0, wrong: float = 0.15, records: int = 4) -> dict[str, Any]:
    """Return windows with true and predicted activities, and the confusion matrix."""
    found, confusion = [], np.zeros((7, 7), dtype=int)
    for n in range(records):
        own, model = np.random.default_rng(n), np.random.default_rng(100 * seed + n)
        t = np.sort(own.uniform(0, 5, 50))
        true = np.repeat(own.integers(0, 7, 5), 10)
        guess = np.where(np.repeat(model.random(25) < wrong, 2), np.repeat(model.integers(0, 7, 25), 2), true)
        np.add.at(confusion, (true, guess), 1)
        labels: list[int | None] = true.tolist()
        labels[20:23] = [None] * 3
        found.append({"id": f"A0{n + 1} window {7 * n}", "unit": "s", "t": t.tolist(), "true": labels,
                      "predicted": guess.tolist()})
    return {"bands": found, "classes": CLASSES, "confusion": confusion.tolist(),
            "class_accuracy": dict.fromkeys(CLASSES, 0.8)}


def climate(seed: int = 0, error: float = 0.4, cut: float = 150.0, stations: int = 3) -> dict[str, Any]:
    """Return stations whose predictions jump at every observation, and the error over time after the cut."""
    rng, t = np.random.default_rng(seed), np.linspace(cut + 1, 199, 25)
    mse = error * (1 + 0.01 * (t - cut)) * rng.uniform(0.85, 1.15, t.size)
    return {"cut": cut, "records": [_station(f"USC0001{n:04d}", n, seed, cut) for n in range(stations)],
            "over_time": {"t": t.tolist(), "mse": mse.tolist(), "negll": (0.5 * np.log(mse) + 1).tolist(),
                          "count": [900] * t.size, "unit": ""}}


def _station(name: str, n: int, seed: int, cut: float) -> dict[str, Any]:
    own, model = np.random.default_rng(n), np.random.default_rng(1000 * seed + n)
    observed = np.sort(own.choice(np.arange(2000), 260, replace=False)) / 10
    jumps = observed[observed <= cut]
    grid = np.sort(np.r_[np.linspace(0, 200, 401), jumps, jumps])  # each jump at least twice: before and after
    after = np.r_[False, grid[1:] == grid[:-1]]
    since = grid - np.r_[0.0, jumps][np.searchsorted(jumps, grid, side="left")]  # time since the last jump before
    variables = []
    for k, variable in enumerate(STATION):
        phase = own.uniform(0, 6)
        truth = np.sin(grid / 25 + phase) + 0.4 * np.cos(grid / 6 + 2 * phase)
        drift = np.where(after, 0.04, 0.04 + 0.35 * np.sqrt(np.maximum(since, 0)))
        mean = truth + drift * model.normal(0, 0.4) * np.cos(grid / 9 + k)
        here = observed[own.random(observed.size) < 0.5]
        x = np.interp(here, grid, truth) + own.normal(0, 0.12, here.size)
        wide, seen = 0.2 + np.minimum(drift, 1.4), here <= cut
        variables.append(_variable(variable, here, x, seen, grid, mean, wide))
    return {"id": name, "unit": "", "unit_note": "one unit is 7.45 days", "value_unit": "standard deviations",
            "band": "two standard deviations", "cut": cut, "jumps": jumps.tolist(), "variables": variables}


def coupling(seed: int = 0, side: int = 6, names: Sequence[str] = ()) -> dict[str, Any]:
    """Return a known coupling matrix and a noisy learned one."""
    rng = np.random.default_rng(3)
    known = np.where(rng.random((side, side)) < 0.3, rng.normal(0, 1, (side, side)), 0) + np.eye(side)
    learned = 0.4 * known + np.random.default_rng(seed).normal(0, 0.08, (side, side))
    return {"coupling": {"names": list(names) or [f"x{i}" for i in range(side)],
                         "known": known.tolist(), "learned": learned.tolist(),
                         "how": "mean over the test set of the emission's image of softmax(a(t)), less its mean"}}


def write(root: Path, experiment: str, method: str, value: float, result: dict[str, Any], *, seed: int = 0,
          data: str = "sample", **extra: Any) -> Run:
    """Write the folder of a finished run; `extra` is added to config.json."""
    metric = METRICS.get(experiment, "score")
    path = root / f"{experiment}-{method}-{data}-{seed}"
    path.mkdir(parents=True)
    config = {"format": 1, "experiment": experiment, "method": method, "data": data, "seed": seed, "epochs": 2}
    test = {metric: value, "loss": 0.4, "nfe": 30.0}
    outcome = {"test": test, "test_last": {**test, metric: value * 1.01}, "metric": metric, "best_epoch": 2,
               "validation": value, "seconds": 61.0, "steps": 20, **result}
    epochs = [{"kind": "epoch", "step": 10 * n, "epoch": n, f"train_{metric}": value * (1.4 - 0.2 * n),
               f"validation_{metric}": value * (1.3 - 0.15 * n), "best": n == 2, "elapsed": 30.0 * n} for n in (1, 2)]
    steps = [{"kind": "step", "step": n, "epoch": n // 10, "L_h": 2 / (n + 1), "nfe_forward": 30, "seconds": 0.3}
             for n in range(20)]
    for name, part in (
        ("config.json", {"format": 1, "id": path.name, "created": CREATED + seed, "config": config, "params": 185_422,
                         "environment": {"device": "cpu"}, **extra}),
        ("status.json", {"state": "finished", "error": None, "progress": 1.0, "epoch": 2, "epochs": 2, "seconds": 61.0,
                         "best": value, "last": value * 1.01, "metric": metric, "heartbeat": CREATED,
                         "process": identity()}),
        ("result.json", outcome),
    ):
        (path / name).write_text(json.dumps(part))
    (path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in (*steps, *epochs)))
    return Run(path)


def shelf(root: Path) -> None:
    """Write three runs of every latent-ODE experiment."""
    for n, (method, skill) in enumerate((("latent-ode", 1.2), ("augmented", 1.4), ("ace", 1.6))):
        found = mortality(n, skill)
        write(root, "physionet", method, found["roc"]["auc"], found, seed=n)
        write(root, "physionet-vitals", method, (2.3 - 0.13 * n) * 1e-3,
              vitals(n, (2.3 - 0.13 * n) * 1e-3) | (coupling(n) if method == "ace" else {}), seed=n)
        write(root, "activity", method, 0.80 + 0.03 * n, activities(n, 0.3 - 0.1 * n), seed=n)


ALL_CHARTS = mortality() | vitals(records=1) | activities() | coupling()
STATION_RESULT: dict[str, Any] = {
    "cut": 3.0,
    "errors": {"count": 4, "mse": 3.5, "mae": 1.5, "median": 2.5, "winsorised": 3.4, "largest": 0.6, "mse_low": 0.5,
               "mse_high": 6.5, "by_variable": [
                   {"name": "TMAX", "count": 3, "mse": 0.5, "mae": 0.6, "median": 0.4, "winsorised": 0.5,
                    "largest": 0.7, "share": 0.107},
                   {"name": "SNOW", "count": 1, "mse": 12.5, "mae": 3.5, "median": 12.5, "winsorised": 12.5,
                    "largest": 1.0, "share": 0.893}]},
    "over_time": {"t": [4.0, 3.5], "mse": [0.5, None], "negll": [1.0, 2.0], "count": [3, 4], "unit": ""},
    "records": [{"id": "USC1", "unit": "", "unit_note": "one unit is 7.45 days", "value_unit": "in standard deviations",
                 "band": "two standard deviations", "jumps": [2.0, 1.0], "variables": [
                     {"name": "TMAX", "t": [1.0], "x": [0.5], "target_t": [4.0], "target_x": [0.7],
                      "grid": [0.0, 1.0, 1.0, 4.0], "mean": [0.0, 0.2, 0.4, 0.6], "low": [-1.0, -0.8, 0.2, -1.0],
                      "high": [1.0, 1.2, 0.6, 2.0]}]}]}
