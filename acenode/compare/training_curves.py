"""Training curves over steps and epochs, with few enough points to draw."""

from __future__ import annotations

from typing import Any

import numpy as np

from acenode.compare.metrics import MetricRecord, axis_index, to_float
from acenode.player.data import rounded

POINTS = 1500  # most points of a curve over steps
KEYS = ("L_h", "L_a", "nfe_forward", "nfe_backward", "nfe_forward_a", "nfe_backward_a", "dt_min", "dt_mean", "dt_max",
        "dt_mean_a", "grad_h", "grad_a", "seconds")


def over_steps(steps: list[MetricRecord]) -> dict[str, Any]:
    """Return the curves. A point is the mean of `every` steps; for dt_min the minimum, for dt_max the maximum."""
    every = -(-len(steps) // POINTS) or 1
    present = [key for key in KEYS if any(key in record for record in steps)]
    positions = [axis_index(record, "step") for record in steps]
    return {
        "every": every,
        "step": [positions[i] if positions[i] is not None else i for i in range(0, len(steps), every)],
        "series": {key: rounded(_thin(_values(steps, key), every, key)) for key in present},
    }


def over_epochs(epochs: list[MetricRecord], metric: str) -> dict[str, Any]:
    """Return the metric in training and validation by epoch, and the best epoch."""
    epochs = [record for record in epochs if axis_index(record, "epoch") is not None]
    keys = [key for key in (f"train_{metric}", f"validation_{metric}") if any(key in record for record in epochs)]
    best = [axis_index(record, "epoch") for record in epochs if record.get("best") is True]
    return {
        "metric": metric,
        "epoch": [axis_index(record, "epoch") for record in epochs],
        "series": {key: rounded(_values(epochs, key)) for key in keys},
        "best": best[-1] if best else None,
    }


def _values(rows: list[MetricRecord], key: str) -> np.ndarray:
    found = (to_float(row[key]) if key in row else None for row in rows)
    return np.array([np.nan if v is None else v for v in found], dtype=np.float64)


def _thin(values: np.ndarray, every: int, key: str) -> np.ndarray:
    """Reduce each `every` values to one number, without those that are not finite."""
    if every == 1:
        return values
    rows = np.pad(values, (0, -len(values) % every), constant_values=np.nan).reshape(-1, every)
    good = np.isfinite(rows)
    if key.startswith("dt_min"):
        thin = np.where(good, rows, np.inf).min(1)
    elif key.startswith("dt_max"):
        thin = np.where(good, rows, -np.inf).max(1)
    else:
        thin = np.where(good, rows, 0.0).sum(1) / np.maximum(good.sum(1), 1)
    return np.where(good.any(1), thin, np.nan)
