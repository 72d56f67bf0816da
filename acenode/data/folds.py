"""Split series for forecasting: folds of training, validation and test series, the last two with rows to forecast."""

import math
from dataclasses import dataclass

import numpy as np

from acenode.data.series import SeriesArrays
from acenode.data.splits import Parts
from acenode.errors import UserError

FOLDS = 5
SEED = 432


def forecast_folds(count: int, seed: int = SEED) -> tuple[Parts, ...]:
    """Return five random splits of `count` series, in the order drawn: a tenth for test, a fifth of the others for
    validation.

    For 1,114 series these are the published folds of USHCN. Each part is the beginning of a shuffle, its size rounded
    up, and all shuffles come from one stream of numpy's legacy generator. The test series of two folds may overlap.
    """
    if count < 3:
        raise UserError(f"{count} series are too few to split into training, validation and test")
    rng = np.random.RandomState(seed)  # the generator of the published folds

    def split(indices: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
        order = indices[rng.permutation(len(indices))]
        held = math.ceil(share * len(indices))
        return order[held:], order[:held]

    folds = []
    for _ in range(FOLDS):
        others, test = split(np.arange(count), 0.1)
        train, validation = split(others, 0.2)
        folds.append(Parts(train, validation, test))
    return tuple(folds)


@dataclass(frozen=True, eq=False)
class ForecastParts:
    """A fold, and the number of validation and test series left out because they cannot be forecast."""

    parts: Parts
    skipped: int


def forecast_parts(arrays: SeriesArrays, fold: int, cut: float, seed: int = SEED) -> ForecastParts:
    """Return one fold; its validation and test series have rows on both sides of the cut."""
    if not 0 <= fold < FOLDS:
        raise UserError(f"there is no fold {fold}: choose 0 to {FOLDS - 1}")
    drawn, usable = forecast_folds(len(arrays), seed)[fold], two_sided(arrays, cut)
    validation, test = (part[usable[part]] for part in (drawn.validation, drawn.test))
    for name, part in (("validation", validation), ("test", test)):
        if not len(part):
            raise UserError(f"no series for {name} has rows on both sides of time {cut:g}: get more series")
    skipped = len(drawn.validation) + len(drawn.test) - len(validation) - len(test)
    return ForecastParts(Parts(drawn.train, validation, test), skipped)


def two_sided(arrays: SeriesArrays, cut: float) -> np.ndarray:
    """Return a mask (N,) of the series with a row up to the cut to forecast from and one after it to forecast."""
    first, last = arrays.t[arrays.offsets[:-1]], arrays.t[arrays.offsets[1:] - 1]
    return (first <= cut) & (last > cut)
