"""Which runs form a group.

A group holds runs that train one method on the same data with the same settings. Settings in `IGNORED` do not
identify a group:

- seed and fold repeat the same experiment, and the spread over them is what a group measures;
- the device computes the same numbers up to rounding;
- the recording settings decide what is written down, not what is trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from acenode import experiments
from acenode.compare import metric_format
from acenode.compare.metric_format import MetricFormat
from acenode.config import KEYS, Config
from acenode.config.presets import PRINTED
from acenode.config.vocabulary import ADDED
from acenode.errors import UserError
from acenode.experiments import Experiment
from acenode.experiments.chosen import chosen_settings
from acenode.runs.catalogue import Entry

REPEATED = frozenset({"seed", "fold"})
RECORDING = frozenset({"snapshots", "checkpoint_seconds", "analysis"})
IGNORED = REPEATED | RECORDING | {"device"}
NOT_SETTINGS = frozenset({"seed", "device"})  # of a configuration: arguments that no setting depends on
QUESTION = ("task", "sample", "targets", "cut")  # values measured under different ones are not comparable
LEADING = ("size", "attention", "task", "sample")  # the defaults of other settings depend on these


def changed_settings(experiment: Experiment, config: Config) -> dict[str, Any]:
    """Return the settings that differ from the defaults of the run's method and data, without recording settings."""
    leading = {k: v for k in LEADING if (v := config.get(k)) is not None}
    dependent = experiment.configure(config.method, config.data, **leading)
    defaults = experiment.configure(config.method, config.data)
    return {k: config.settings[k] for k in KEYS if k in config.settings and k not in RECORDING
            and config.settings[k] != (defaults if k in leading else dependent).get(k)}


def replaced_settings(experiment: Experiment, method: str) -> dict[str, tuple[Any, Any]]:
    """Return the defaults on the full data that are not the paper's settings: the default and the printed value."""
    printed = experiment.configure(method, "full", preset=PRINTED)
    return {key: (value, printed.get(key)) for key, value in chosen_settings(experiment.name, method).items()
            if value != printed.get(key)}


def changed_in(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changed settings of a stored configuration; none if another version wrote it."""
    try:
        return dict(_changed(*_key(config)))
    except TypeError:  # a value that no setting has
        return {}


def shared_config(config: Mapping[str, Any]) -> Config:
    """Return a stored configuration without seed and device; those of many seeds are read once.

    Raises:
        UserError: another version wrote it.
    """
    try:
        return _parsed(*_key(config))
    except TypeError:
        raise UserError("the configuration has a value that no setting has") from None


def _key(config: Mapping[str, Any]) -> tuple[tuple[tuple[str, Any], ...], tuple[type, ...]]:
    """Return what identifies a configuration but for seed and device; with types, since 1 and True are equal."""
    given = dict(config)  # copied and reduced, which is faster than a comprehension: pages do it for thousands of runs
    for name in NOT_SETTINGS:
        given.pop(name, None)
    return tuple(given.items()), tuple(map(type, given.values()))


@lru_cache(maxsize=4096)
def _parsed(items: tuple[tuple[str, Any], ...], types: tuple[type, ...]) -> Config:
    return Config.from_dict(dict(items))


@lru_cache(maxsize=4096)
def _changed(items: tuple[tuple[str, Any], ...], types: tuple[type, ...]) -> dict[str, Any]:
    try:
        made = _parsed(items, types)
        return changed_settings(experiments.get(made.experiment), made)
    except UserError:
        return {}


def group_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changed settings that identify the group of a run."""
    return {k: v for k, v in changed_in(config).items() if k not in IGNORED}


def settings_text(settings: Mapping[str, Any]) -> str:
    """Write settings as `schedule=joint rtol=0.001`."""
    return " ".join(f"{k}={v}" for k, v in settings.items())


def experiment_title(name: str) -> str:
    """Return the title of an experiment, or its name if it cannot be found or read."""
    try:
        found = experiments.find(name)
    except UserError:
        found = None
    return found.title if found else name


def method_title(experiment: str, method: str) -> str:
    """Return the method's title, or its name if this version does not know it."""
    try:
        return experiments.get(experiment).method(method).title
    except UserError:
        return method


def data_title(entry: Entry) -> str:
    """Return `sample` or `full`, and whether only a part of the full data was used."""
    return f"{entry.data}, partial" if entry.partial else entry.data


def measure_of(entry: Entry) -> MetricFormat:
    """Return the metric that evaluates a run."""
    return metric_format.of(entry.metric or metric_format.name_of(entry.experiment), entry.experiment)


def question_of(entry: Entry) -> tuple[Any, ...]:
    """Return what a run's values answer: only runs with equal questions are compared."""
    return (measure_of(entry), entry.experiment, data_title(entry), *(entry.config.get(k) for k in QUESTION))


def differing(entries: Iterable[Entry], ignored: frozenset[str] = IGNORED) -> list[str]:
    """List the settings, other than ignored ones, whose values differ between these runs."""
    entries = list(entries)
    names = dict.fromkeys(k for e in entries for k in e.config if k not in ignored)
    return [k for k in names if len({repr(e.config.get(k, ADDED.get(k))) for e in entries}) > 1]
