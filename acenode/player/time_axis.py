"""What the time of a run's snapshots means: hours of a stay, days at a station, seconds of a recording."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from acenode.config import Config
from acenode.data.physionet import HOURS
from acenode.data.ushcn import DAYS

WORDS = {"h": "hours", "s": "seconds", "min": "minutes", "d": "days"}
HORIZONS = {"physionet": (HOURS, "h"), "physionet-vitals": (HOURS, "h"), "ushcn": (DAYS, "d")}
PROCESSES = ("ou", "brusselator")  # samples whose time has no unit


@dataclass(frozen=True)
class TimeAxis:
    """Real time is `scale` times t, in `unit`."""

    scale: float
    unit: str  # in words


def time_axis(config: Config | None, arrays: dict[str, np.ndarray]) -> TimeAxis | None:
    """Return the time axis of a snapshot, from its own arrays or, of older runs, from the experiment.

    Args:
        config: the run's configuration, if it can be read.
        arrays: the snapshot; `time_scale` and `time_unit` have one entry each.
    """
    scale, unit = arrays.get("time_scale"), arrays.get("time_unit")
    if scale is not None and unit is not None and scale.shape == unit.shape == (1,) and scale.dtype.kind == "f" \
            and unit.dtype.kind == "U" and 0 < scale[0] < np.inf:
        word = str(unit[0])[:12]
        return TimeAxis(float(scale[0]), WORDS.get(word, word)) if word.isprintable() and word else None
    if config is None or config.experiment not in HORIZONS or config.get("sample") in PROCESSES:
        return None
    known, word = HORIZONS[config.experiment]
    return TimeAxis(known, WORDS[word])
