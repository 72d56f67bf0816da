"""Errors of forecasts beside the mean squared error: by variable, and in ways that a few extreme targets do not decide.

Targets of weather are heavy-tailed: on most days there is no snow. One heavy snowfall among the test targets can then
weigh more in the mean squared error than a hundred ordinary days.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

LARGEST = 0.01  # share of the targets whose weight in the squared error is reported
PERCENTILE = 99.0  # at which squared errors are cut off in the winsorised mean
DRAWS = 2_000  # of the bootstrap over series
INTERVAL = (2.5, 97.5)  # percentiles of its interval


@dataclass(frozen=True, eq=False)
class ObservedTargets:
    """The observed values among the targets of a split, with their predictions: N of each."""

    series: np.ndarray  # index of the series
    variable: np.ndarray  # index of the variable
    t: np.ndarray  # time
    x: np.ndarray
    mean: np.ndarray

    @property
    def squared(self) -> np.ndarray:
        return np.asarray((self.x - self.mean) ** 2)

    def take(self, chosen: np.ndarray) -> ObservedTargets:
        """Return some of them."""
        return ObservedTargets(*(column[chosen] for column in (self.series, self.variable, self.t, self.x, self.mean)))


def error_report(targets: ObservedTargets, names: tuple[str, ...]) -> dict[str, Any]:
    """Return all measures of the targets, and those of every variable, as `errors` of result.json."""
    by_variable = []
    for j, name in enumerate(names):
        own = targets.take(targets.variable == j)
        by_variable.append({"name": name, **measures(own), "share": share(own.squared.sum(), targets.squared.sum())})
    low, high = bootstrap_interval(targets)
    return {**measures(targets), "mse_low": low, "mse_high": high, "by_variable": by_variable,
            "how": f"winsorised: squared errors cut off at their {PERCENTILE:g}th percentile; largest: share of the "
                   f"squared error in the {100 * LARGEST:g}% of targets with the largest one; mse_low, mse_high: 95% "
                   "interval of the MSE, drawing series with replacement"}


def measures(targets: ObservedTargets) -> dict[str, Any]:
    """Return the number of targets and the summaries of their errors, None without targets."""
    squared = targets.squared.astype(np.float64)
    if not len(squared):
        return {"count": 0, "mse": None, "mae": None, "median": None, "winsorised": None, "largest": None}
    top = np.sort(squared)[-max(1, round(LARGEST * len(squared))):]
    return {"count": len(squared), "mse": float(squared.mean()), "mae": float(np.sqrt(squared).mean()),
            "median": float(np.median(squared)),
            "winsorised": float(np.minimum(squared, np.percentile(squared, PERCENTILE)).mean()),
            "largest": share(top.sum(), squared.sum())}


def share(part: float, whole: float) -> float:
    """Return part / whole, or 0 if there is nothing."""
    return float(part / whole) if whole else 0.0


def bootstrap_interval(targets: ObservedTargets, draws: int = DRAWS, seed: int = 0) -> tuple[float, float]:
    """Return the 95% interval of the mean squared error if the series are drawn again with replacement."""
    _, own = np.unique(targets.series, return_inverse=True)
    if not len(own):
        return float("nan"), float("nan")
    sums, counts = np.bincount(own, targets.squared), np.bincount(own)
    drawn = np.random.default_rng(seed).integers(0, len(sums), (draws, len(sums)))
    low, high = np.percentile(sums[drawn].sum(1) / counts[drawn].sum(1), INTERVAL)
    return float(low), float(high)
