"""What the form of a new search starts with: which settings, and a range around each default."""

from __future__ import annotations

from typing import Any

from acenode.config import SETTINGS
from acenode.config.ranges import NOT_SEARCHED, SearchRange
from acenode.experiments import Experiment

USUAL = ("learning_rate",)  # searched unless the user chooses otherwise
FACTOR = 10.0  # from a default to the ends of its range
LOGARITHMIC = frozenset({"learning_rate", "penalty_weight", "weight_decay", "rtol", "atol", "step_size"})


def usual_method(experiment: Experiment) -> int:
    """Return the index of the method that the form starts with."""
    return list(experiment.methods).index("ace") if "ace" in experiment.methods else 0


def settings_to_search(experiment: Experiment, method: str) -> list[str]:
    """List the settings of a method that a search can vary."""
    uses = experiment.method(method).uses
    return [key for key, setting in SETTINGS.items()
            if key in uses and setting.group != "record" and key not in NOT_SEARCHED]


def usual_range(key: str, default: Any) -> SearchRange:
    """Return the range that the form offers for a number: around the default, within the bounds of the setting."""
    setting = SETTINGS[key]
    bottom = float(setting.low if setting.low is not None else setting.above or 0.0)
    top = float(setting.high if setting.high is not None else 1.0)
    if setting.type is int:
        whole = int(default) if default is not None else int(bottom)
        low, high = max(int(bottom), whole // 2), min(int(top), max(2 * whole, int(bottom) + 1))
        return SearchRange(key, low, high if high > low else low + 1)
    middle = float(default) if default else 1e-3
    if key in LOGARITHMIC:
        return SearchRange(key, max(middle / FACTOR, bottom), min(middle * FACTOR, top), log=True)
    return SearchRange(key, max(bottom, middle / 2), min(top, 2 * middle))


def usual_values(start: SearchRange, default: Any) -> str:
    """Return the values that the form offers as a list: the ends of the usual range and the default."""
    values = [start.low, default if default is not None else start.low, start.high]
    return ", ".join(dict.fromkeys(f"{value:g}" for value in values if value is not None))
