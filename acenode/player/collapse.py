"""Whether the rows of softmax(a) have become equal, and what that means.

Row i of softmax(a) says of which coordinates (or variables) the attended state h′ᵢ is an average. If all rows are
equal, all h′ᵢ are the same average: f and g then read one number repeated, and a map of the attention shows which
coordinates count, but nothing about which one influences which other.
"""

from __future__ import annotations

import numpy as np

EQUAL = 0.05  # mean distance of two rows below which they are called equal; 0 if they are, 1 if nothing is shared


def row_distance(weights: np.ndarray) -> np.ndarray:
    """Return the mean total-variation distance between two different rows of each map.

    Args:
        weights: rows that add up to one, (…, d, d) with d > 1.

    Returns:
        Distances (…): 0 if all rows are equal, 1 if no two rows attend to a common coordinate.
    """
    d = weights.shape[-1]
    ordered = np.sort(weights, axis=-2)  # Σ over pairs |x_i − x_j| = Σ_k (2k − d + 1) x_(k) with x sorted, in d log d
    ranks = 2 * np.arange(d, dtype=weights.dtype)[:, None] - (d - 1)
    return np.maximum((ordered * ranks).sum((-1, -2)) / (d * (d - 1)), 0.0)  # rounding can make it negative


def note(distance: float | None, what: str = "coordinate", when: str = "") -> str:
    """Say that the rows have become equal and what that means; empty if they have not, or it is not known.

    Args:
        distance: a mean of `row_distance`.
        what: what the rows stand for, such as `coordinate` or `variable`.
        when: the time of the distance, such as `at the end (t = 1)`.
    """
    if distance is None or not distance < EQUAL:
        return ""
    equal = f"equal {when}" if when else "equal"
    return (f"The rows of the attention, softmax(a), have become {equal} (mean distance {distance:.2g} of 1). Every "
            f"{what} then receives the same weighted average, so the map shows which {what}s count, but not which one "
            "influences which other.")
