"""Holding data out of training: a split of its own seed, the same for every training seed."""

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
