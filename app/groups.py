"""Runs gathered into groups: mean and spread over seeds, and the distance from a baseline. No Streamlit here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from acenode.config import Config
from acenode.errors import UserError
from acenode.results import paper
from acenode.results.metric_format import MetricFormat
from acenode.runs.catalogue import Entry

from . import labels

ALL_BUT_SEED = "settings"
ASKED = ("task", "sample", "targets", "cut")  # settings that make it another question: such numbers do not compare
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

    def text(self, unit: MetricFormat) -> str:
        return unit.text(self.mean, self.std)


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
                by_seed[(entry.experiment, labels.group(entry), labels.data(entry), entry.seed)] = found
        return Statistic(tuple(by_seed.values()))

    @property
    def measure(self) -> MetricFormat:
        """Of the first run that has one: experiments are never mixed."""
        return labels.measure_of(next((e for e in self.entries if e.metric), self.entries[0]))

    @property
    def printed(self) -> str | None:
        """The paper's number, where every run used the full data and the paper's settings."""
        found = {_printed(e) for e in self.entries}
        return found.pop() if len(found) == 1 else None


def _printed(entry: Entry) -> str | None:
    try:
        value = paper.beside(Config.from_dict(entry.config), labels.settings(entry), entry.partial)
    except UserError:
        return None
    return str(value) if value else None


def gather(entries: Iterable[Entry], by: str) -> list[Group]:
    """In order of first appearance; experiments and questions are never mixed, nor the sample with the full data."""
    entries = list(entries)
    both, several = len({labels.data(e) for e in entries}) > 1, len({e.experiment for e in entries}) > 1
    apart = [k for k in ASKED if by not in (ALL_BUT_SEED, k) and len({e.config.get(k) for e in entries}) > 1]
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        name = labels.group(entry) if by == ALL_BUT_SEED else _by(entry, by)
        words = [entry.experiment] * several + [name] + [f"({labels.data(entry)})"] * both
        words += [f"({k}={entry.config[k]})" for k in apart if entry.config.get(k) is not None]
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


def question(group: Group) -> tuple[Any, ...]:
    """What a group's numbers answer: only those of the same question compare."""
    first = group.entries[0]
    return (group.measure, first.experiment, labels.data(first), *(first.config.get(k) for k in ASKED))


def difference(statistic: Statistic, base: Statistic, unit: MetricFormat) -> str:
    """How far a mean is from the baseline's."""
    if statistic.mean is None or base.mean is None:
        return "–"
    return unit.gap(statistic.mean - base.mean)


def best(found: Iterable[Group], value: Callable[[Entry], float | None]) -> list[Group]:
    """The best of the groups that compare with each other; which end is best, their measure says."""
    rivals: dict[Any, list[tuple[float, Group]]] = {}
    for group in found:
        mean = group.statistic(value).mean
        if mean is not None:
            rivals.setdefault(question(group), []).append((mean, group))
    return [(max if kind[0].higher_is_better else min)(some, key=lambda one: one[0])[1]
            for kind, some in rivals.items() if len(some) > 1]
