"""Split data into training, validation and test. Splits have their own seed, so every training seed gets the same."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from acenode.errors import UserError


def stratified_holdout(labels: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return sorted (train, validation) indices with exactly `count` samples held out, in proportion to the classes."""
    if not 1 <= count < len(labels):
        raise UserError(
            f"cannot hold {count} of {len(labels)} samples out for validation: "
            f"choose a number from 1 to {len(labels) - 1}"
        )
    rng = np.random.default_rng(seed)
    held = np.zeros(len(labels), dtype=bool)
    classes, sizes = np.unique(labels, return_counts=True)
    for label, quota in zip(classes, _quotas(sizes, count), strict=True):
        held[rng.permutation(np.flatnonzero(labels == label))[:quota]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


def _quotas(sizes: np.ndarray, count: int) -> np.ndarray:
    """Divide `count` in proportion to `sizes` by the largest-remainder method, in integer arithmetic."""
    quotas, remainders = np.divmod(sizes * count, sizes.sum())
    spare = count - quotas.sum()
    quotas[np.argsort(-remainders, kind="stable")[:spare]] += 1  # ties go to the lower class
    return quotas


@dataclass(frozen=True, eq=False)
class Parts:
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
    for trials, found in (("1 to 3", parts.train), ("4", parts.validation), ("5", parts.test)):
        if not len(found):
            raise UserError(f"there are no records of trial {trials}: get the whole data set")
    return parts
