"""Synthetic results of time-series runs, in the files that training writes: for pages, reports and charts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acenode.bench.synthetic import write_run
from acenode.runs.store import Run

CREATED = 1_760_000_000.0
METRICS = {"physionet": "auc", "physionet-vitals": "mse", "activity": "accuracy", "ushcn": "mse"}
STATION = ("PRCP", "SNOW", "SNWD", "TMAX", "TMIN")
CLASSES = ["walking", "falling", "lying", "sitting", "standing up", "on all fours", "on the ground"]


def mortality(seed: int = 0) -> dict[str, Any]:
    """Return a ROC curve and a calibration."""
    return {"roc": {"fpr": [0.0, 0.1, 0.4, 1.0], "tpr": [0.0, 0.5 + 0.05 * seed, 0.9, 1.0], "auc": 0.8 + 0.01 * seed},
            "calibration": {"predicted": [0.1, 0.4, 0.8], "observed": [0.2, 0.3, 0.9], "count": [500, 200, 100]}}


def vitals(seed: int = 0, cut: float | None = 24.0, records: int = 3) -> dict[str, Any]:
    """Return records with predicted curves, and the error over time in the second half."""
    t, grid = np.linspace(25, 47, 12), np.linspace(0, 48, 97)
    mse: list[float | None] = (2.0e-3 * np.random.default_rng(seed).uniform(0.9, 1.3, t.size)).tolist()
    mse[3] = None
    names = ("HR", "MAP", "Temp", "RespRate", "GCS", "Urine")
    return {"over_time": {"t": t.tolist(), "mse": mse, "count": [900] * 12, "unit": "h"},
            "records": [{"id": f"13{n:04d}", "unit": "h", "cut": cut,
                         "variables": _variables(names, n, seed, grid, grid[1::2], cut)} for n in range(records)]}


def _variables(names: Sequence[str], n: int, seed: int, grid: np.ndarray, times: np.ndarray,
               cut: float | None) -> list[dict[str, Any]]:
    """Return the variables of record n: observations at some of the times, and the curve of a model with this seed."""
    found = []
    for k, name in enumerate(names):
        own, model = np.random.default_rng([n, k]), np.random.default_rng([seed, n, k])
        truth = np.sin(grid / 6 + own.uniform(0, 6))
        t, mean = times[own.random(times.size) < 0.5], truth + model.normal(0, 0.1, grid.size)
        x, seen = np.interp(t, grid, truth), t <= (grid[-1] if cut is None else cut)
        parts = {"t": t[seen], "x": x[seen], "target_t": t[~seen], "target_x": x[~seen], "grid": grid, "mean": mean,
                 "low": mean - 0.2, "high": mean + 0.2}
        found.append({"name": name, **{key: values.tolist() for key, values in parts.items()}})
    return found


def activities(seed: int = 0) -> dict[str, Any]:
    """Return four windows with true and predicted activities, and the confusion matrix."""
    found, confusion = [], np.zeros((7, 7), dtype=int)
    for n in range(4):
        true = np.repeat(np.random.default_rng(n).integers(0, 7, 5), 10)
        guess = np.roll(true, seed + n)
        np.add.at(confusion, (true, guess), 1)
        labels: list[int | None] = true.tolist()
        labels[20:23] = [None] * 3
        found.append({"id": f"A0{n + 1} window {7 * n}", "unit": "s", "t": np.linspace(0, 5, 50).tolist(),
                      "true": labels, "predicted": guess.tolist()})
    return {"bands": found, "classes": CLASSES, "confusion": confusion.tolist(),
            "class_accuracy": dict.fromkeys(CLASSES, 0.8)}


def climate(seed: int = 0, cut: float = 150.0, stations: int = 3) -> dict[str, Any]:
    """Return stations whose predictions jump at every observation, and the error over time after the cut."""
    t, observed = np.linspace(cut + 1, 199, 25), np.arange(1, 200, 0.8)
    mse, jumps = np.random.default_rng(seed).uniform(0.3, 0.5, t.size), observed[observed <= cut]
    grid = np.sort(np.r_[np.linspace(0, 200, 401), jumps, jumps])  # each jump at least twice: before and after
    return {"cut": cut, "over_time": {"t": t.tolist(), "mse": mse.tolist(), "negll": (0.5 * np.log(mse) + 1).tolist(),
                                      "count": [900] * t.size, "unit": ""},
            "records": [{"id": f"USC0001{n:04d}", "unit": "", "unit_note": "one unit is 7.45 days",
                         "value_unit": "standard deviations", "band": "two standard deviations", "cut": cut,
                         "jumps": jumps.tolist(), "variables": _variables(STATION, n, seed, grid, observed, cut)}
                        for n in range(stations)]}


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
    config = {"format": 1, "experiment": experiment, "method": method, "data": data, "seed": seed, "epochs": 2}
    test = {metric: value, "loss": 0.4, "nfe": 30.0}
    outcome = {"test": test, "test_last": {**test, metric: value * 1.01}, "metric": metric, "best_epoch": 2,
               "validation": value, "seconds": 61.0, "steps": 20, **result}
    epochs = [{"kind": "epoch", "step": 10 * n, "epoch": n, f"train_{metric}": value * (1.4 - 0.2 * n),
               f"validation_{metric}": value * (1.3 - 0.15 * n), "best": n == 2, "elapsed": 30.0 * n} for n in (1, 2)]
    steps = [{"kind": "step", "step": n, "epoch": n // 10, "L_h": 2 / (n + 1), "nfe_forward": 30, "seconds": 0.3}
             for n in range(20)]
    write_run(path, config, CREATED + seed, {"params": 185_422, "environment": {"device": "cpu"}, **extra},
              {"epoch": 2, "epochs": 2, "seconds": 61.0, "best": value, "last": value * 1.01, "metric": metric})
    (path / "result.json").write_text(json.dumps(outcome))
    (path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in (*steps, *epochs)))
    return Run(path)


def shelf(root: Path) -> None:
    """Write three runs of every latent-ODE experiment."""
    for n, method in enumerate(("latent-ode", "augmented", "ace")):
        write(root, "physionet", method, 0.85, mortality(n), seed=n)
        write(root, "physionet-vitals", method, 0.002, vitals(n) | (coupling(n) if method == "ace" else {}), seed=n)
        write(root, "activity", method, 0.8, activities(n), seed=n)


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
