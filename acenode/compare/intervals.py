"""Confidence intervals of differences by Student's t distribution, and the number of pairs that one would need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, stdev, variance

CONFIDENCE = 0.95
MIN_RUNS = 3  # of each method, below which nothing is concluded
MOST_PAIRS = 1000  # that are considered

Interval = tuple[float, float]


def quantile(freedom: float) -> float:
    """Return the two-sided quantile of Student's t distribution."""
    from scipy.special import stdtrit  # loads faster than scipy.stats

    return float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))


def paired_interval(differences: Sequence[float]) -> Interval:
    """Return the interval of the mean of at least two differences: mean ± t·s/√n with n − 1 degrees of freedom."""
    half = quantile(len(differences) - 1) * stdev(differences) / math.sqrt(len(differences))
    return mean(differences) - half, mean(differences) + half


def welch_interval(one: Sequence[float], other: Sequence[float]) -> Interval:
    """Return the interval of the difference of two means with unequal variances."""
    parts = [variance(one) / len(one), variance(other) / len(other)]
    total, difference = sum(parts), mean(one) - mean(other)
    if total == 0:
        return difference, difference
    freedom = total**2 / (parts[0] ** 2 / (len(one) - 1) + parts[1] ** 2 / (len(other) - 1))
    half = quantile(freedom) * math.sqrt(total)
    return difference - half, difference + half


def pairs_needed(difference: float, spread: float) -> int | None:
    """Return the smallest number of pairs, at least three, whose interval would exclude zero.

    Args:
        difference: the mean of the paired differences.
        spread: their standard deviation; both are taken to stay as they are.

    Returns:
        The smallest n with |difference| > t(n − 1)·spread/√n, or None if that takes more than a thousand.
    """
    for n in range(MIN_RUNS, MOST_PAIRS + 1):
        if abs(difference) > quantile(n - 1) * spread / math.sqrt(n):
            return n
    return None
