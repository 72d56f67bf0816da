"""How long a configuration trains, from similar runs that are finished."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from acenode.config import Config
from acenode.config.groups import Training
from acenode.config.vocabulary import ADDED
from acenode.runs.catalogue import Entry

# settings that a finished run must share
REQUIRED = ("experiment", "data", "method", "size", "engine", "sample", "at_jump", "attention_every", "g", "impute")
PREFERRED = ("attention", "schedule", "solver", "gradient", "batch_size")  # settings it should share, in this order


@dataclass(frozen=True)
class RunTime:
    """Seconds per epoch and outside the epochs; medians over `runs` similar runs."""

    epoch: float
    overhead: float = 0.0
    runs: int = 0

    def seconds(self, config: Config) -> float:
        """Return the seconds of a whole run."""
        return self.epoch * config.part(Training).epochs + self.overhead


def time_of(config: Config, entries: Iterable[Entry]) -> RunTime | None:
    """Return the time of the most similar finished runs among these, which share a device; None if there are none."""
    similar: dict[tuple[bool, ...], list[Entry]] = {}
    for entry in entries:
        if entry.state == "finished" and entry.seconds and entry.epochs and all(
                _value(entry.config, name) == _value(config, name) for name in REQUIRED):
            shared = tuple(entry.config.get(name) == config.get(name) for name in PREFERRED)
            similar.setdefault(shared, []).append(entry)
    if not similar:
        return None
    nearest = similar[max(similar)]
    overhead = [entry.other_seconds for entry in nearest if entry.other_seconds is not None]
    return RunTime(median((entry.seconds or 0.0) / entry.epochs for entry in nearest), median(overhead or [0.0]),
                   len(nearest))


def _value(config: Config | Mapping[str, Any], name: str) -> Any:
    """Return a setting, with the value that an older run had where it lacks the key."""
    value = config.get(name)
    return ADDED.get(name) if value is None else value


def duration(seconds: float) -> str:
    """Write seconds as `45 s`, `12 min` or `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def recorded_gpu(entries: Iterable[Entry]) -> str:
    """Return the name of the GPU that most recorded runs were trained on; empty if there is none."""
    found = Counter(entry.device for entry in entries if entry.recorded and not entry.device.startswith("cpu"))
    return found.most_common(1)[0][0] if found else ""


def measured_seconds(entries: Iterable[Entry], device: str, title: str | None = None) -> Callable[
        [Config], float | None]:
    """Return a function that gives the seconds of a run from those that were measured on such a device.

    Args:
        entries: all runs.
        device: `cpu` or `cuda`.
        title: the name of the GPU here, if it is known. Recorded runs of other GPUs do not count then, and those of
            other processors never do.
    """
    def same(entry: Entry) -> bool:
        if entry.device.startswith("cpu") != (device == "cpu"):
            return False
        return not entry.recorded or (device == "cuda" and title in (None, entry.device))

    here = [entry for entry in entries if entry.state == "finished" and same(entry)]

    def seconds(config: Config) -> float | None:
        found = time_of(config, here)
        return found.seconds(config) if found else None

    return seconds
