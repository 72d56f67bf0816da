"""Which runs form a group, and which repeat each other.

A group holds runs that train one method on the same data with the same settings. Settings in `IGNORED` do not
identify a group:

- seed and fold repeat the same experiment, and the spread over them is what a group measures;
- the device computes the same numbers up to rounding;
- the recording settings decide what is written down, not what is trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from acenode import experiments
from acenode.compare.metrics import MetricFormat, metric_format, metric_name
from acenode.compare.paper import CELLS, SHORTEST, PaperCell, Value, target
from acenode.config import KEYS, Config
from acenode.config.groups import ADDED
from acenode.config.vocabulary import CHOSEN, PRINTED
from acenode.errors import UserError
from acenode.experiments import Experiment
from acenode.experiments.base import chosen_settings
from acenode.runs.catalogue import Entry

if TYPE_CHECKING:
    import pandas as pd

REPEATED = frozenset({"seed", "fold"})
RECORDING = frozenset({"snapshots", "checkpoint_seconds", "analysis"})
IGNORED = REPEATED | RECORDING | {"device"}
EITHER = IGNORED | {"epochs"}  # settings in which runs of a cell of the paper may differ
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
    return _read(config)[1]


def group_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changed settings that identify the group of a run."""
    return {k: v for k, v in changed_in(config).items() if k not in IGNORED}


def _read(config: Mapping[str, Any]) -> tuple[Config | None, dict[str, Any]]:
    """Return a stored configuration without seed and device, and its changed settings; None if it cannot be read."""
    given = dict(config)  # copied and reduced, which is faster than a comprehension: pages do it for thousands of runs
    for name in NOT_SETTINGS:
        given.pop(name, None)
    try:
        made, changed = _parsed(tuple(given.items()), tuple(map(type, given.values())))
    except TypeError:  # a value that no setting has
        return None, {}
    return made, dict(changed)


@lru_cache(maxsize=4096)
def _parsed(items: tuple[tuple[str, Any], ...], types: tuple[type, ...]) -> tuple[Config | None, dict[str, Any]]:
    """Read the configuration of all seeds once; `types` tells 1 from True, which are equal."""
    made = None
    try:
        made = Config.from_dict(dict(items))
        return made, changed_settings(experiments.get(made.experiment), made)
    except UserError:
        return made, {}


def settings_text(settings: Mapping[str, Any]) -> str:
    """Write settings as `schedule=joint rtol=0.001`."""
    return " ".join(f"{k}={v}" for k, v in settings.items())


def experiment_title(name: str) -> str:
    """Return the title of an experiment, or its name if it cannot be found or read."""
    try:
        found = experiments.find(name)
        return found.title if found else name
    except UserError:
        return name


def method_title(experiment: str, method: str) -> str:
    """Return the method's title, or its name if this version does not know it."""
    try:
        return experiments.get(experiment).method(method).title
    except UserError:
        return method


def data_title(entry: Entry) -> str:
    """Return `sample` or `full`, and whether only a part of the full data was used."""
    return f"{entry.data}, partial" if entry.partial else entry.data


def fold_of(entry: Entry) -> int:
    """Return the fold of a run, 0 if its experiment has none."""
    return int(entry.config.get("fold") or 0)


def measure_of(entry: Entry) -> MetricFormat:
    """Return the metric that evaluates a run."""
    return metric_format(entry.metric or metric_name(entry.experiment), entry.experiment)


def question_of(entry: Entry) -> tuple[Any, ...]:
    """Return what a run's values answer: only runs with equal questions are compared."""
    return (measure_of(entry), entry.experiment, data_title(entry), *(entry.config.get(k) for k in QUESTION))


def differing(entries: Iterable[Entry], ignored: frozenset[str] = IGNORED) -> list[str]:
    """List the settings, other than ignored ones, whose values differ between these runs."""
    entries = list(entries)
    names = dict.fromkeys(k for e in entries for k in e.config if k not in ignored)
    return [k for k in names if len({repr(e.config.get(k, ADDED.get(k))) for e in entries}) > 1]


# The paper's value for a run ----------------------------------------------------------------------------------------


def fits(cell: PaperCell, settings: Mapping[str, Any], preset: str = CHOSEN) -> bool:
    """Return True if settings are those that define a cell, and the training is not much shorter than usual."""
    wanted = target(cell, preset)
    return int(settings.get("epochs") or 0) >= SHORTEST * int(wanted.get("epochs")) and all(
        value == wanted.get(key) for key, value in settings.items() if key not in EITHER)


def printed_beside(config: Config, partial: object = False, metric: str = "") -> Value | None:
    """Return the paper's value of a metric, by default the experiment's, that runs of a configuration may be compared
    with: only those on the whole full data."""
    metric = metric or metric_name(config.experiment)
    return next((cell.printed for cell in CELLS.values() if config.data == "full" and not partial and (
        cell.experiment, cell.method, cell.metric) == (config.experiment, config.method, metric)
        and fits(cell, config.settings)), None)


# Runs of one configuration ------------------------------------------------------------------------------------------


def trained_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return all that decides the numbers of a run: runs that agree in it repeat each other."""
    return {k: v for k, v in config.items() if k not in RECORDING and k not in ("format", "device")}


def stored_settings(entry: Entry, wanted: Config) -> dict[str, Any]:
    """Return the settings that decide a run's numbers; those that an older run lacks have the value it had then."""
    own = {k: v for k, v in trained_settings(entry.config).items() if v is not None}
    return {k: v for k, v in ADDED.items() if k in wanted.settings} | own


def same_run(config: Config, entry: Entry) -> bool:
    """Return True if a run, finished or not, trains this configuration, whatever its device and what it records. The
    trial of a search does not count, since it is never tested."""
    return (not entry.search and (entry.experiment, entry.method, entry.data, entry.seed) == (
        config.experiment, config.method, config.data, config.seed)
        and stored_settings(entry, config) == trained_settings(config.to_dict()))


def unfinished(config: Config, entries: Iterable[Entry]) -> Entry | None:
    """Return the run of this configuration that can be resumed and has the least left to do, or None."""
    wanted = trained_settings(config.to_dict())
    found = [e for e in entries if e.resumable and not e.search and trained_settings(e.config) == wanted]
    return max(found, key=lambda e: (e.progress, e.created), default=None)


# Frames of runs -----------------------------------------------------------------------------------------------------

BY_SETTINGS = "settings"  # group by method and all settings but the ignored ones
IDENTITY = ["experiment", "data", "partial", "method", "settings"]  # the columns that identify a group
VALUES = ["test", "validation", "test_last", "validation_last", "nfe", "seconds"]


def runs_frame(entries: Iterable[Entry]) -> pd.DataFrame:
    """Return a frame with one row for each run: what identifies it and what it measured (NaN if not measured).

    `test` and `validation` are values of the run's metric at the best epoch, those with `_last` at the last epoch.
    """
    import pandas as pd  # not needed by commands that count runs

    frame = pd.DataFrame([_row(entry) for entry in entries], columns=[
        "run", "created", *IDENTITY, "changed", "seed", "fold", "measure", "question", "paper", "params", *VALUES])
    return frame.astype(dict.fromkeys(VALUES, float))


def _row(entry: Entry) -> dict[str, Any]:
    (made, _), changed, question = _read(entry.config), group_settings(entry.config), question_of(entry)
    printed = printed_beside(made, entry.partial) if made else None
    return {
        "run": entry.id, "created": entry.created, "experiment": entry.experiment, "data": entry.data,
        "partial": entry.partial, "method": entry.method, "settings": settings_text(changed), "changed": changed,
        "seed": entry.seed, "fold": fold_of(entry), "measure": question[0],
        "question": question, "paper": str(printed or ""), "params": entry.params,
        "test": entry.value, "validation": entry.best, "test_last": entry.last_value, "validation_last": entry.last,
        "nfe": entry.test.get("nfe"), "seconds": entry.seconds,
    }


def group_keys(entries: Iterable[Entry]) -> list[str]:
    """List what runs can be grouped by: all settings, the method, and every setting in which they differ."""
    return [BY_SETTINGS, "method", *(k for k in differing(entries) if k != "method")]


def grouped_frame(entries: Sequence[Entry], by: str = BY_SETTINGS) -> pd.DataFrame:
    """Return `runs_frame` with the name of each run's group in the column `group`.

    Runs of several experiments, of the sample and the full data, or of several questions are never in one group.
    """
    data, names = {data_title(e) for e in entries}, {e.experiment for e in entries}
    apart = [k for k in QUESTION if by not in (BY_SETTINGS, k) and len({e.config.get(k) for e in entries}) > 1]
    frame = runs_frame(entries)
    groups = []
    for entry, settings in zip(entries, frame["settings"], strict=True):
        words = [entry.experiment] * (len(names) > 1)
        if by in (BY_SETTINGS, "method"):
            title = method_title(entry.experiment, entry.method)
            words.append(title if by == "method" else f"{title} {settings}".strip())
        else:
            value = entry.config.get(by)
            words.append(f"{by}={'–' if value is None else value}")
        words += [f"({data_title(entry)})"] * (len(data) > 1)
        words += [f"({k}={entry.config[k]})" for k in apart if entry.config.get(k) is not None]
        groups.append(" ".join(words))
    return frame.assign(group=groups)
