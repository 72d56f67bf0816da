"""Runs gathered into groups: mean and spread over seeds, and the distance from a baseline. No Streamlit here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from acenode import paper
from acenode.catalogue import Entry
from acenode.config import Config
from acenode.errors import UserError
from app import labels

ALL_BUT_SEED = "settings"
IGNORED = frozenset({"seed", "device", "snapshots", "checkpoint_seconds", "analysis"})  # they change no number


@dataclass(frozen=True)
class Statistic:
    """One number a seed, the latest run of a seed counting."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float | None:
        return mean(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation, from two seeds on."""
        return stdev(self.values) if len(self.values) > 1 else None

    def text(self, metric: str) -> str:
        if self.mean is None:
            return "–"
        scale, unit = (100, "%") if metric == "accuracy" else (1, "")
        spread = f" ± {self.std * scale:.2f}" if self.std is not None else ""
        return f"{self.mean * scale:.2f}{spread}{unit}" if unit else f"{self.mean:.4g}{spread and f' ± {self.std:.2g}'}"


@dataclass(frozen=True)
class Group:
    """Runs that are alike in what they were grouped by."""

    name: str
    entries: tuple[Entry, ...]

    def statistic(self, value: Callable[[Entry], float | None]) -> Statistic:
        by_seed: dict[tuple[Any, ...], float] = {}
        for entry in sorted(self.entries, key=lambda e: e.created):
            found = value(entry)
            if found is not None:
                by_seed[(entry.experiment, labels.group(entry), entry.data, entry.seed)] = found
        return Statistic(tuple(by_seed.values()))

    @property
    def printed(self) -> str | None:
        """The paper's number, where every run used the full data and the paper's settings."""
        found = {_printed(e) for e in self.entries}
        return found.pop() if len(found) == 1 else None


def _printed(entry: Entry) -> str | None:
    if entry.data != "full" or set(labels.settings(entry)) - {"size"}:
        return None
    try:
        value = paper.accuracy(Config.from_dict(entry.config))
    except UserError:
        return None
    return str(value) if value else None


def gather(entries: Iterable[Entry], by: str) -> list[Group]:
    """In order of first appearance; experiments are never mixed, nor the sample with the full data."""
    entries = list(entries)
    both, several = len({e.data for e in entries}) > 1, len({e.experiment for e in entries}) > 1
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        name = labels.group(entry) if by == ALL_BUT_SEED else _by(entry, by)
        words = [entry.experiment] * several + [name] + [f"({entry.data})"] * both
        found.setdefault(" ".join(words), []).append(entry)
    return [Group(name, tuple(members)) for name, members in found.items()]


def _by(entry: Entry, key: str) -> str:
    if key == "method":
        return labels.method_title(entry.experiment, entry.method)
    value = entry.config.get(key)
    return f"{key}={'–' if value is None else value}"


def keys(entries: Iterable[Entry]) -> list[str]:
    """What runs can be grouped by: everything, the method, and every setting in which they differ."""
    return [ALL_BUT_SEED, "method", *(k for k in differing(entries) if k != "method")]


def differing(entries: Iterable[Entry]) -> list[str]:
    """Settings that are not the same in all of these runs."""
    entries = list(entries)
    names = dict.fromkeys(k for e in entries for k in e.config if k not in IGNORED)
    return [k for k in names if len({repr(e.config.get(k)) for e in entries}) > 1]


def difference(statistic: Statistic, base: Statistic, metric: str) -> str:
    """How far a mean is from the baseline's."""
    if statistic.mean is None or base.mean is None:
        return "–"
    gap = statistic.mean - base.mean
    return (f"{100 * gap:+.2f}" if metric == "accuracy" else f"{gap:+.4g}").replace("-", "−")
