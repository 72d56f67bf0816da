"""Split data into training, validation and test. Splits have their own seed, so every training seed gets the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from acenode.errors import UserError

if TYPE_CHECKING:
    from acenode.data.series import SeriesArrays

FOLDS = 5  # of a set to forecast
FOLD_SEED = 432


def stratified_holdout(labels: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return sorted (train, validation) indices with exactly `count` samples held out, in proportion to the classes."""
    if not 1 <= count < len(labels):
        raise UserError(f"cannot hold {count} of {len(labels)} samples out for validation: choose a number from 1 to "
                        f"{len(labels) - 1}")
    rng = np.random.default_rng(seed)
    held = np.zeros(len(labels), dtype=bool)
    classes, sizes = np.unique(labels, return_counts=True)
    quotas, remainders = np.divmod(sizes * count, len(labels))  # by the largest remainder, in integer arithmetic
    quotas[np.argsort(-remainders, kind="stable")[:count - quotas.sum()]] += 1  # ties go to the lower class
    for label, quota in zip(classes, quotas, strict=True):
        held[rng.permutation(np.flatnonzero(labels == label))[:quota]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


class Parts(NamedTuple):
    """The indices of the records for training, validation and test; sorted unless the split says otherwise."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def record_split(records: np.ndarray | Sequence[str] | int, seed: int = 42) -> Parts:
    """Use a fifth of the records for test and a fifth of the others for validation.

    Ids are sorted before they are shuffled, so that the order in which they are given does not matter.
    """
    order = np.arange(records) if isinstance(records, int | np.integer) else np.argsort(records, kind="stable")
    count = len(order)
    tested = round(count / 5)
    held = round((count - tested) / 5)
    if not held:
        raise UserError(f"{count} records are too few to split into training, validation and test")
    order = order[np.random.default_rng(seed).permutation(count)]
    train, validation, test = np.split(order, [count - tested - held, count - tested])
    return Parts(np.sort(train), np.sort(validation), np.sort(test))


def trial_split(group: np.ndarray) -> Parts:
    """Split by whole trials: 1 to 3 for training, 4 for validation, 5 for test. No recording is in two parts."""
    parts = Parts(*(np.flatnonzero(np.isin(group, trials)) for trials in ((1, 2, 3), (4,), (5,))))
    for trials, found in zip(("1 to 3", "4", "5"), parts, strict=True):
        if not len(found):
            raise UserError(f"there are no records of trial {trials}: get the whole data set")
    return parts


def forecast_folds(count: int, seed: int = FOLD_SEED) -> tuple[Parts, ...]:
    """Return five random splits of `count` series: a tenth for test, a fifth of the others for validation.

    For 1,114 series these are the published folds of USHCN, in the order drawn. Each part is the beginning of a
    shuffle, its size rounded up, and all shuffles come from one stream. The test series of two folds may overlap.
    """
    if count < 3:
        raise UserError(f"{count} series are too few to split into training, validation and test")
    rng = np.random.RandomState(seed)  # the generator of the published folds
    folds, tested = [], math.ceil(0.1 * count)
    held = math.ceil(0.2 * (count - tested))
    for _ in range(FOLDS):
        order = rng.permutation(count)
        others = order[tested:][rng.permutation(count - tested)]
        folds.append(Parts(others[held:], others[:held], order[:tested]))
    return tuple(folds)


def forecast_parts(arrays: SeriesArrays, fold: int, cut: float, seed: int = FOLD_SEED) -> Parts:
    """Return one fold, without the validation and test series that lack rows on one of the sides of the cut."""
    if not 0 <= fold < FOLDS:
        raise UserError(f"there is no fold {fold}: choose 0 to {FOLDS - 1}")
    drawn, usable = forecast_folds(len(arrays), seed)[fold], two_sided(arrays, cut)
    validation, test = (part[usable[part]] for part in (drawn.validation, drawn.test))
    for name, part in (("validation", validation), ("test", test)):
        if not len(part):
            raise UserError(f"no series for {name} has rows on both sides of time {cut:g}: get more series")
    return Parts(drawn.train, validation, test)


def two_sided(arrays: SeriesArrays, cut: float) -> np.ndarray:
    """Return a mask (N,) of the series with a row up to the cut to forecast from and one after it to forecast."""
    first, last = arrays.t[arrays.offsets[:-1]], arrays.t[arrays.offsets[1:] - 1]
    return (first <= cut) & (last > cut)
