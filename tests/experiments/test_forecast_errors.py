"""Errors of forecasts beside the mean squared error, on targets whose errors are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from acenode.experiments.attention_flow import row_distance
from acenode.experiments.forecast_errors import ObservedTargets, bootstrap_interval, error_report, measures

NAMES = ("rain", "snow", "never")


def targets(errors: list[float], variable: list[int], series: list[int] | None = None) -> ObservedTargets:
    mean = np.linspace(-1, 1, len(errors))
    return ObservedTargets(np.array(series or range(len(errors))), np.array(variable), np.zeros(len(errors)),
                           mean + np.array(errors), mean)


def test_one_extreme_target_decides_the_mean_but_not_the_robust_measures() -> None:
    quiet, heavy = [0.1, -0.1] * 100, [0.1, -0.1] * 99 + [0.1, 10.0]
    calm, storm = (measures(targets(e, [0] * 200)) for e in (quiet, heavy))
    assert calm == {"count": 200, "mse": pytest.approx(0.01), "mae": pytest.approx(0.1), "median": pytest.approx(0.01),
                    "winsorised": pytest.approx(0.01), "largest": pytest.approx(0.01)}
    assert storm["mse"] == pytest.approx((199 * 0.01 + 100) / 200)
    assert storm["median"] == pytest.approx(0.01)
    assert storm["winsorised"] == pytest.approx(0.01, rel=0.01)
    assert storm["largest"] == pytest.approx((100 + 0.01) / (100 + 199 * 0.01))  # the largest 1% are two targets


def test_errors_by_variable_add_up() -> None:
    found = error_report(targets([1.0, 2.0, 3.0, 0.0], [0, 1, 1, 0]), NAMES)
    rain, snow, never = found["by_variable"]
    assert (rain["mse"], snow["mse"], never["mse"]) == (pytest.approx(0.5), pytest.approx(6.5), None)
    assert (rain["share"], snow["share"], never["share"]) == (pytest.approx(1 / 14), pytest.approx(13 / 14), 0.0)
    assert sum(v["mse"] * v["count"] for v in (rain, snow)) == pytest.approx(found["mse"] * found["count"])


def test_the_bootstrap_draws_series_not_targets() -> None:
    """The interval of the mean of n equal groups is that of n numbers: its width has a closed form."""
    rng = np.random.default_rng(1)
    squares = rng.normal(size=400) ** 2
    errors = np.sqrt(np.repeat(squares, 5))
    low, high = bootstrap_interval(targets(errors.tolist(), [0] * 2000, np.repeat(np.arange(400), 5).tolist()))
    assert low < squares.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * squares.std() / math.sqrt(400), rel=0.1)


def test_distance_between_rows_of_attention() -> None:
    equal = torch.randn(2, 1, 4, generator=torch.Generator().manual_seed(0)).expand(2, 4, 4)
    assert row_distance(equal) == pytest.approx(0.0, abs=1e-7)
    assert row_distance(1e4 * torch.eye(4)) == pytest.approx(1.0)
    row = math.e / (math.e + 3)  # rows of softmax(I) differ in two entries, by row − 1/(e + 3) each
    assert row_distance(torch.eye(4)) == pytest.approx(row - 1 / (math.e + 3))
