"""How attention acts over time, as one curve for each probe, which the player draws beside the maps.

The curve is of the weights, not of a(t): what f and g read is h mixed or gated by the weights. (The distance of a(t)
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

import numpy as np

from acenode.player import attention_maps
from acenode.player.attention_maps import PAIRWISE, MapKind

BAND = (10.0, 90.0)  # percentiles of the rows or cells that the band covers
CELLS = 2048  # of a map from which its percentiles are computed


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

    @property
    def chart_hint(self) -> str:
        """The hint where the curve is drawn, with its dotted line."""
        return f"{self.hint} {self.line}".rstrip()


def _focus(what: str) -> Measure:
    return Measure(
        "focus", f"{what.capitalize()}s mixed into one",
        f"How many {what}s one attended {what} averages: the exponential of the entropy of a row of softmax(a(t)), "
        f"mean over rows. 1: attention selects one {what}.",
        f"{what.capitalize()}s mixed", "80% of rows", f"{what}s", "The dotted line: uniform weights.")


PASSED = Measure(
    "passed", "Share of the state that passes",
    "The mean of sigmoid(a(t)) over the state: 100% if all of h passes, 50% where a = 0.",
    "Share that passes", "80% of cells", line="The dotted line: a = 0.")
DISTANCE = Measure(
    "distance", "Distance of attention from its start",
    "How far attention a(t) is from a(0), relative to a(0): ‖a(t) − a(0)‖ / ‖a(0)‖.", "Relative distance")


def measure_of(kind: MapKind | None, what: str = "coordinate") -> Measure:
    """Return the measure for attention that is drawn as this kind of map; None stands for no map.

    Args:
        what: what a row of the map stands for, `coordinate` or `variable`.
    """
    return DISTANCE if kind is None else _focus(what) if kind is PAIRWISE else PASSED


def curves(a: np.ndarray, kind: MapKind | None) -> np.ndarray:
    """Return the curve of each probe with the lower and upper end of its band, (T, B, 3).

    Args:
        a: attention (T, B, …).
        kind: how it acts on the state, as `attention_maps.kind_of` says.
    """
    if kind is None:
        return np.repeat(attention_maps.change(a)[..., None], 3, axis=-1)
    if kind is PAIRWISE:
        values = effective_number(attention_maps.weights(a, PAIRWISE, widest=a.shape[-1]))  # (T, B, d)
    else:
        values = attention_maps.sigmoid(a.astype(np.float32)).reshape(*a.shape[:2], -1)
    some = values[..., ::-(-values.shape[-1] // CELLS)]
    low, high = np.percentile(some, BAND, axis=-1)
    return np.stack([values.mean(-1), low, high], axis=-1)


def effective_number(weights: np.ndarray) -> np.ndarray:
    """Return the exponential of the entropy of each row of weights (…, d), from 1 to d."""
    entropy = -(weights * np.log(np.maximum(weights, 1e-30))).sum(-1)
    return np.asarray(np.exp(entropy))


def reference(a: np.ndarray, kind: MapKind | None) -> float | None:
    """Return the value without attention's preference: uniform weights, or a = 0; None if there is none."""
    return None if kind is None else float(a.shape[-1]) if kind is PAIRWISE else 0.5
