"""Pairwise attention as numbers: the weight of each pair in a snapshot, and the strongest pairs of a result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from acenode.config import Config
from acenode.errors import UserError
from acenode.player import attention_maps, snapshots
from acenode.player import snapshot as player_snapshot
from acenode.player.snapshots import Snapshot
from acenode.player.time_axis import time_axis


@dataclass(frozen=True)
class PairWeight:
    """How much `variable` i attends to `attends_to` j: softmax(a)_ij, the share of h_j in what flows into h_i.

    Args:
        epoch: of the snapshot.
        series: name of the series, or its number from 1.
        time: in `time_unit`, from the start of the series; from 0 to 1 if the unit is not known.
        variable, attends_to: names of variables, or numbers of units from 1.
        weight: the weights of a variable sum to one.
    """

    epoch: int
    series: str
    time: float
    time_unit: str
    variable: str
    attends_to: str
    weight: float


def weights_of(found: Snapshot, config: Config | None) -> Iterator[PairWeight]:
    """Return an iterator over the weights of a snapshot, series by series.

    Args:
        found: the snapshot.
        config: the run's configuration, if it can be read, for the unit of time.

    Raises:
        UserError: the attention is not between pairs, or there is none.
    """
    arrays = found.arrays
    if "a" not in arrays:
        raise UserError("the run has no attention to export")
    if player_snapshot.map_kind(arrays) is not attention_maps.PAIRWISE:
        raise UserError("the run's attention weighs each entry of h by itself: there are no pairs to export")
    return _rows(found, config)


def _rows(found: Snapshot, config: Config | None) -> Iterator[PairWeight]:
    arrays, axis = found.arrays, time_axis(config, found.arrays)
    scale, unit = (axis.scale, axis.unit) if axis else (1.0, "")
    _, count, size, _ = arrays["a"].shape  # (F, B, V, V)
    series = snapshots.names(arrays, count, longest=None) or [str(i + 1) for i in range(count)]
    variables = snapshots.coordinate_names(arrays, size, longest=None) or [str(i + 1) for i in range(size)]
    for b, name in enumerate(series):
        for t, a in zip(arrays["t"].tolist(), arrays["a"][:, b], strict=True):
            weights = attention_maps.weights(a, attention_maps.PAIRWISE, widest=size)
            for i, row in enumerate(weights.tolist()):
                for j, weight in enumerate(row):
                    yield PairWeight(found.epoch, name, scale * t, unit, variables[i], variables[j], weight)


def strongest(attention: Any, count: int = 3) -> list[tuple[str, str, float]]:
    """Return the pairs of different variables with the largest mean weight, each with the variable that attends first.

    Args:
        attention: `attention` of result.json: names (V) and mean (V, V).
        count: how many.

    Returns:
        An empty list if the values do not fit together.
    """
    try:
        names, mean = [str(name) for name in attention["names"]], np.array(attention["mean"], float)
    except (KeyError, TypeError, ValueError):
        return []
    if len(names) < 2 or mean.shape != (len(names), len(names)) or not np.isfinite(mean).all():
        return []
    pairs = [(names[i], names[j], float(mean[i, j])) for i in range(len(names)) for j in range(len(names)) if i != j]
    return sorted(pairs, key=lambda pair: -pair[2])[:count]
