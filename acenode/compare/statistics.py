"""Means and standard deviations over seeds, and confidence intervals of differences by Student's t distribution."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev, variance

import pandas as pd

from acenode.compare.groups import IDENTITY
from acenode.runs.questions import Repeat

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
    return next((n for n in range(MIN_RUNS, MOST_PAIRS + 1)
                 if abs(difference) > quantile(n - 1) * spread / math.sqrt(n)), None)


def over_seeds(runs: pd.DataFrame, value: str, by: str | list[str] = "group") -> pd.DataFrame:
    """Return n, mean, std and seeds of a column for every group, in order of first appearance.

    Runs without a value do not count, and of runs that repeat a seed (and fold) the latest counts. `std` is the sample
    standard deviation, NaN for fewer than two values.
    """
    groups = _latest(runs, value).groupby(by, sort=False)
    found = pd.DataFrame({
        "n": groups.size(),
        "mean": groups[value].agg(mean),  # exactly rounded, so that the order of the runs does not matter
        "std": groups[value].agg(lambda x: stdev(x) if len(x) > 1 else float("nan")),
        "seeds": groups["seed"].agg(sorted),
    }).reindex(runs.groupby(by, sort=False).size().index)
    return found.assign(n=found["n"].fillna(0).astype(int))


def _latest(runs: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return the runs with a value, of those that repeat a seed and fold the latest."""
    measured = runs.dropna(subset=[value]).sort_values("created", kind="stable")
    return measured.drop_duplicates([*IDENTITY, "seed", "fold"], keep="last")


@dataclass(frozen=True)
class GroupValues:
    """A group with its values by seed and fold."""

    name: str
    values: dict[Repeat, float]


def group_values(runs: pd.DataFrame, value: str) -> dict[str, GroupValues]:
    """Return the values of every group by seed and fold, averaged over its runs of that seed and fold."""
    found: dict[str, dict[Repeat, float]] = {str(name): {} for name in runs["group"].unique()}
    means = _latest(runs, value).groupby(["group", "seed", "fold"], sort=True)[value].agg(mean)
    for (group, seed, fold), number in means.items():
        found[group][int(seed), int(fold)] = float(number)
    return {name: GroupValues(name, values) for name, values in found.items()}


def repeats_of(groups: Iterable[GroupValues]) -> list[Repeat]:
    """List all seeds and folds that any of the groups has."""
    return sorted({repeat for group in groups for repeat in group.values})
