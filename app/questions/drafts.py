"""What the forms of new studies and searches start with, and what their fields mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from acenode.compare.study_grid import check_study, group_config, kind_of, presets
from acenode.config import SETTINGS, parse, read_seeds
from acenode.config.groups import Training
from acenode.config.ranges import BETWEEN, LOG, MAX_VALUES, NOT_SEARCHED, SearchRange, read_range
from acenode.errors import UserError
from acenode.experiments import Experiment
from acenode.runs.questions import MAX_NAME, Study, StudyGroup, StudyStore

from .. import labels, messages
from .page import OWN

QUICK = 4  # a quick look has a quarter of the epochs
TRIAL = {"epochs": 1, "batch_size": 512, "solver": "rk4", "step_size": 1.0, "analysis": False}  # of images: seconds
USUAL = ("learning_rate",)  # searched unless the user chooses otherwise
FACTOR = 10.0  # from a default to the ends of its range
LOGARITHMIC = frozenset({"learning_rate", "penalty_weight", "weight_decay", "rtol", "atol", "step_size"})


def settings_of(experiment: Experiment, methods: list[str], without: frozenset[str]) -> list[str]:
    """List the settings of these methods that a study or search can vary."""
    uses = frozenset().union(*(experiment.method(method).uses for method in methods))
    return [key for key, setting in SETTINGS.items() if key in uses - without and setting.group != "record"]


def make_study(start: Study, *, seeds: str = "", folds: str = "", length: Mapping[str, Any] | None = None,
               held: str = "", baseline: int | None = None, name: str = "", question: str = "") -> Study:
    """Return the study that the fields of the form describe; a UserError says which field is wrong.

    Args:
        start: the preset, or the first version of a study of one's own; empty fields stand for its values.
        length: settings held equal that make runs shorter.
    """
    usual = {key: value for key, value in start.held.items() if key == "epochs"}
    changes: dict[str, Any] = {"held": {**usual, **(length or {}), **read_settings(held)}}
    if seeds.strip() or folds.strip():
        changes["seeds"] = tuple(read_seeds(seeds)) if seeds.strip() else ()
        changes["folds"] = tuple(read_seeds(folds)) if folds.strip() else ()
    changes |= {key: value for key, value in (("name", name), ("question", question)) if value}
    if baseline is not None:
        changes["baseline"] = baseline
    return check_study(replace(start, **changes))


def starts(experiment: str, data: str) -> dict[str, Study]:
    """Return the ready-made studies of an experiment by their kind."""
    return {kind_of(study): study for study in presets(experiment, data)}


def own_start(experiment: Experiment, data: str, methods: list[str], values: Mapping[str, list[Any]]) -> Study:
    """Return a study that compares all combinations of methods and values, with three seeds.

    The first group is the baseline. A setting is left out where a method does not have it.
    """
    axes = {key: some for key, some in values.items() if some}
    groups = tuple(dict.fromkeys(
        StudyGroup(method, {k: v for k, v in zip(axes, chosen, strict=True) if k in experiment.method(method).uses})
        for method, *chosen in product(methods, *axes.values())))
    if len(groups) < 2:
        raise UserError("choose two methods, or two values of a setting: a study compares them")
    return Study(f"{experiment.name}-{OWN}", experiment.name, groups, data=data, baseline=0)


def lengths(study: Study) -> dict[str, Mapping[str, Any]]:
    """Return the lengths that the form offers by their titles, as settings that are held equal; the default last.

    For images there is also a trial of one epoch with a coarse solver, and a quick look with a quarter of the epochs.
    """
    configs = [group_config(study, group) for group in study.groups]
    usual = {config.part(Training).epochs for config in configs}
    quick = max(1, min(usual) // QUICK)
    found: dict[str, Mapping[str, Any]] = {}
    if all(config.get("size") is not None and "solver" not in study.varied | study.held.keys() for config in configs):
        found["Trial: 1 epoch, coarse solver"] = TRIAL
    if quick < min(usual):
        found[f"Quick look: {messages.count(quick, 'epoch')}"] = {"epochs": quick}
    numbers = " to ".join(str(n) for n in sorted({min(usual), max(usual)}))
    return found | {f"Default: {numbers} epoch{'s' * (numbers != '1')}": {}}


def read_settings(text: str) -> dict[str, Any]:
    """Read settings written as `rtol=0.01 batch_size=64`."""
    found: dict[str, Any] = {}
    for part in text.replace(",", " ").split():
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise UserError(f"settings are written as rtol=0.01 batch_size=64, not {part!r}")
        if key in found:
            raise UserError(f"{key} is given twice: leave one out")
        found[key] = parse(key, value)
    return found


def settings_line(settings: Mapping[str, Any]) -> str:
    """Write settings as `read_settings` reads them; the number of epochs has a field of its own."""
    return " ".join(f"{key}={str(value).lower() if isinstance(value, bool) else value}"
                    for key, value in settings.items() if key != "epochs")


def read_values(key: str, text: str) -> list[Any]:
    """Read the values of a setting that varies: `0.01 0.001`."""
    return list(dict.fromkeys(parse(key, part) for part in text.replace(",", " ").split()))


def stored_as(study: Study, store: StudyStore) -> Study:
    """Store a study, if it is not yet, under a name that is free; return it with that name."""
    name, number = study.name, 1
    while store.exists(name):
        renamed = replace(study, name=name)
        try:
            if store.read(name) == renamed:
                return renamed
        except UserError:
            pass  # a file that cannot be read keeps its name
        number += 1
        name = f"{study.name[:MAX_NAME - 1 - len(str(number))]}-{number}"
    study = replace(study, name=name)
    store.write(study)
    return study


def settings_to_search(experiment: Experiment, method: str) -> list[str]:
    """List the settings of a method that a search can vary."""
    return settings_of(experiment, [method], frozenset(NOT_SEARCHED))


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


def interval(name: str, low: str, high: str, *, log: bool) -> SearchRange:
    """Read the fields From and To.

    Raises:
        UserError: a field is no value of the setting, or From is not below To.
    """
    ends = {"From": low.strip(), "To": high.strip()}
    for field, text in ends.items():
        if log and _number(text) <= 0:
            raise UserError(f"{field} must be above 0 on a logarithmic scale")
        _check(name, text, field)
    if not _number(ends["From"]) < _number(ends["To"]):
        raise UserError("From must be smaller than To")
    return read_range(name, f"{LOG if log else ''}{ends['From']}{BETWEEN}{ends['To']}")


def listed(name: str, text: str) -> SearchRange:
    """Read the field Values.

    Raises:
        UserError: a value is none of the setting's, or there are too few or too many.
    """
    values = [value.strip() for value in text.split(",") if value.strip()]
    if any(BETWEEN in value or value.startswith(LOG) for value in values):
        raise UserError("Values are single numbers, separated by commas: for a range, choose Logarithmic or Linear")
    different = {_check(name, value, "Values") for value in values}
    if len(different) < 2:
        raise UserError("Give at least two values, separated by commas, or choose Logarithmic or Linear for a range")
    if len(different) > MAX_VALUES:
        raise UserError(f"Give at most {MAX_VALUES} values, or choose Logarithmic or Linear for a range")
    return read_range(name, ",".join(values))


def _check(name: str, text: str, field: str) -> object:
    """Return the value of a setting; an error names the field and the setting's title."""
    if not text:
        raise UserError(f"{field}: enter {'a whole number' if SETTINGS[name].type is int else 'a number'}")
    try:
        return parse(name, text)
    except UserError as error:
        raise UserError(f"{field}: {str(error).replace(name, labels.setting(name).lower(), 1)}") from None


def _number(text: str) -> float:
    """Return the number that a text is; infinity if it is none, which `_check` reports."""
    try:
        return float(text)
    except ValueError:
        return float("inf")
