"""Holding data out of training: a split of its own seed, the same for every training seed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from acenode.errors import UserError


def stratified_holdout(labels: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Sorted (train, validation) indices with exactly `count` held out, each class in its proportion."""
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
    """`count` shared out in proportion to `sizes` by largest remainder, in whole numbers throughout."""
    quotas, remainders = np.divmod(sizes * count, sizes.sum())
    spare = count - quotas.sum()
    quotas[np.argsort(-remainders, kind="stable")[:spare]] += 1  # a tie goes to the lower class
    return quotas


@dataclass(frozen=True, eq=False)
class Parts:
    """Indices of the records of each part, sorted unless a split says otherwise."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def record_split(records: np.ndarray | Sequence[str] | int, seed: int = 42) -> Parts:
    """A fifth of the records for test, a fifth of the others for validation; ids are sorted before they are shuffled,
    so that the order in which they come does not matter."""
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
    """Whole trials: 1 to 3 train, 4 is for validation and 5 for test, so that no recording is on two sides."""
    parts = Parts(*(np.flatnonzero(np.isin(group, trials)) for trials in ((1, 2, 3), (4,), (5,))))
    for trials, found in (("1 to 3", parts.train), ("4", parts.validation), ("5", parts.test)):
        if not len(found):
            raise UserError(f"there is nothing of trial {trials} to split by: get the whole data set")
    return parts
