"""Attention as it is drawn: maps of the weights for each frame and probe, curves over time, and collapsed rows.

A curve is of the weights, not of a(t): what f and g read is h mixed or gated by the weights. (The distance of a(t)
from a(0) teaches little: g hardly depends on t, so that it grows as a straight line, and softmax ignores what all
entries of a row have in common, so that a large distance may change no weight.)

- Pairwise: how many coordinates one attended coordinate averages, the exponential of the entropy of a row of
  softmax(a). It is 1 if a row attends to one coordinate and d if the weights are uniform, so that the curve shows
  whether attention becomes selective or stays an average over everything.
- Elementwise: the share of h that passes, the mean of sigmoid(a). It shows whether attention opens or closes.
- Attention of another shape has no map; its distance from a(0) is all that can be drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

SIDE = 40  # a wider map is averaged down to this size
BAND = (10.0, 90.0)  # percentiles of the rows or cells that the band of a curve covers
CELLS = 2048  # of a map from which its percentiles are computed
EQUAL = 0.05  # mean distance of two rows below which they are called equal; 0 if they are, 1 if nothing is shared


@dataclass(frozen=True)
class MapKind:
    """What a map shows: its title and the names of its axes."""

    name: str
    title: str
    rows: str
    columns: str


PAIRWISE = MapKind(
    "pairwise", "Attention (softmax(a)), row i: how much of each coordinate h_j flows into h_i", "i", "j")
ELEMENTWISE = MapKind(
    "elementwise", "Attention (sigmoid(a)), mean over channels: how much of the state h passes", "row", "column")
COORDINATES = MapKind(
    "coordinates", "Attention (sigmoid(a)): how much of each coordinate of the state h passes", "", "coordinate")
INFLUENCE = MapKind(
    "influence", "Influence (|∂ḣ_i/∂h_j|), row i: how strongly the state of each other variable j changes the "
    "derivative of variable i. A variable's influence on itself is left out", "i", "j")


def kind_of(arrays: dict[str, np.ndarray]) -> MapKind | None:
    """Return how a (T, B, …) of a snapshot acts on h (T, B, …), by their shapes; None if that cannot be drawn."""
    if "a" not in arrays:
        return None
    h, a = arrays["h"], arrays["a"]
    if h.ndim == 3 and a.shape == (*h.shape, h.shape[-1]):
        return PAIRWISE
    return {3: COORDINATES, 4: COORDINATES, 5: ELEMENTWISE}.get(h.ndim) if a.shape == h.shape else None


def sigmoid(a: np.ndarray) -> np.ndarray:
    """Compute the sigmoid without overflow."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * a)))


def weights(a: np.ndarray, kind: MapKind, widest: int = SIDE) -> np.ndarray:
    """Return the map of each frame and probe, (T, B, rows, columns), averaged down if wider than `widest`."""
    a = a.astype(np.float32)
    if kind is PAIRWISE:
        e = np.exp(a - a.max(-1, keepdims=True))
        return pooled(e / e.sum(-1, keepdims=True), widest)
    passed = sigmoid(a)
    if a.ndim > 3:
        passed = passed.mean(2)  # over channels
    return pooled(passed if a.ndim == 5 else passed[:, :, None], widest)


def pooled(maps: np.ndarray, widest: int = SIDE) -> np.ndarray:
    """Average neighbouring cells until no side is above `SIDE`, if one is above `widest`."""
    if max(maps.shape[-2:]) <= widest:
        return maps
    for axis in (-2, -1):
        size = maps.shape[axis]
        if size > SIDE:
            edges = np.linspace(0, size, SIDE + 1).astype(int)
            shape = [1] * maps.ndim
            shape[axis] = SIDE
            maps = np.add.reduceat(maps, edges[:-1], axis=axis) / np.diff(edges).reshape(shape)
    return maps


def strongest(attention: Any, count: int = 3) -> list[tuple[str, str, float]]:
    """Return the pairs of different variables with the largest mean weight, each with the variable that attends first.

    `attention` is that of result.json: names (V) and mean (V, V). Without pairs if these do not fit together.
    """
    try:
        names, mean = [str(name) for name in attention["names"]], np.array(attention["mean"], float)
    except (KeyError, TypeError, ValueError):
        return []
    if len(names) < 2 or mean.shape != (len(names), len(names)) or not np.isfinite(mean).all():
        return []
    pairs = [(names[i], names[j], float(mean[i, j])) for i in range(len(names)) for j in range(len(names)) if i != j]
    return sorted(pairs, key=lambda pair: -pair[2])[:count]


# Curves over time ---------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Measure:
    """What the curve shows, in words for the player."""

    name: str
    title: str
    hint: str
    axis: str
    band: str = ""  # what the band covers, around the middle; empty if there is none
    mixed: str = ""  # what attention mixes, coordinates or variables
    line: str = ""  # what the dotted line in the curve's chart means; empty if there is none


PASSED = Measure(
    "passed", "Share of the state that passes",
    "The mean of sigmoid(a(t)) over the state: 100% if all of h passes, 50% where a = 0.",
    "Share that passes", "80% of cells", line="The dotted line: a = 0.")
DISTANCE = Measure(
    "distance", "Distance of attention from its start",
    "How far attention a(t) is from a(0), relative to a(0): ‖a(t) − a(0)‖ / ‖a(0)‖.", "Relative distance")


def measure_of(kind: MapKind | None, what: str = "coordinate") -> Measure:
    """Return the measure for attention drawn as this kind of map, or as none, with rows of such a `what`."""
    if kind is not PAIRWISE:
        return DISTANCE if kind is None else PASSED
    return Measure(
        "focus", f"{what.capitalize()}s mixed into one",
        f"How many {what}s one attended {what} averages: the exponential of the entropy of a row of softmax(a(t)), "
        f"mean over rows. 1: attention selects one {what}.",
        f"{what.capitalize()}s mixed", "80% of rows", f"{what}s", "The dotted line: uniform weights.")


def curves(a: np.ndarray, kind: MapKind | None) -> np.ndarray:
    """Return the curve of each probe with the lower and upper end of its band, (T, B, 3), of attention a (T, B, …)."""
    if kind is None:  # ‖a(t) − a(0)‖ / ‖a(0)‖, not divided if a(0) = 0
        flat = a.astype(np.float64).reshape(*a.shape[:2], -1)
        start = np.linalg.norm(flat[0], axis=-1)
        moved = np.linalg.norm(flat - flat[0], axis=-1) / np.where(start > 0, start, 1.0)
        return np.repeat(moved[..., None], 3, axis=-1)
    if kind is PAIRWISE:
        rows = weights(a, PAIRWISE, widest=a.shape[-1])
        values = np.exp(-(rows * np.log(np.maximum(rows, 1e-30))).sum(-1))  # from 1 to d: (T, B, d)
    else:
        values = sigmoid(a.astype(np.float32)).reshape(*a.shape[:2], -1)
    some = values[..., ::-(-values.shape[-1] // CELLS)]
    low, high = np.percentile(some, BAND, axis=-1)
    return np.stack([values.mean(-1), low, high], axis=-1)


def reference(a: np.ndarray, kind: MapKind | None) -> float | None:
    """Return the value without attention's preference: uniform weights, or a = 0; None if there is none."""
    return None if kind is None else float(a.shape[-1]) if kind is PAIRWISE else 0.5


# Collapsed rows -----------------------------------------------------------------------------------------------------
# Row i of softmax(a) says of which coordinates (or variables) the attended state h′ᵢ is an average. If all rows are
# equal, all h′ᵢ are the same average: f and g then read one number repeated, and a map of the attention shows which
# coordinates count, but nothing about which one influences which other.

def row_distance(weights: np.ndarray) -> np.ndarray:
    """Return the mean total-variation distance between two different rows of each map, (…).

    It is 0 if all rows of `weights` (…, d, d), d > 1, are equal, and 1 if no two attend to a common coordinate.
    """
    d = weights.shape[-1]
    ordered = np.sort(weights, axis=-2)  # Σ over pairs |x_i − x_j| = Σ_k (2k − d + 1) x_(k) with x sorted, in d log d
    ranks = 2 * np.arange(d, dtype=weights.dtype)[:, None] - (d - 1)
    return np.maximum((ordered * ranks).sum((-1, -2)) / (d * (d - 1)), 0.0)  # rounding can make it negative


def equal_rows_note(distance: float | None, what: str = "coordinate", when: str = "") -> str:
    """Say that the rows, such as of each `variable`, have become equal, and what that means; empty if they have not.

    `distance` is a mean of `row_distance`, None if it is not known; `when` is its time: `at the end (t = 1)`.
    """
    if distance is None or not distance < EQUAL:
        return ""
    equal = f"equal {when}" if when else "equal"
    return (f"The rows of the attention, softmax(a), have become {equal} (mean distance {distance:.2g} of 1). Every "
            f"{what} then receives the same weighted average, so the map shows which {what}s count, but not which one "
            "influences which other.")
