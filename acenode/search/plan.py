"""What a search trains: the configuration of each trial, and the defaults that the first one tries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from acenode import experiments
from acenode.config import SETTINGS, Config
from acenode.config.ranges import SearchRange
from acenode.config.vocabulary import ARGUMENTS, DEPENDS
from acenode.errors import UserError
from acenode.experiments import Experiment
from acenode.runs.searches import Search


def check_search(search: Search) -> Search:
    """Return the search, or raise an error if its experiment has no such method, settings or values."""
    experiment = experiments.get(search.experiment)
    uses, base = experiment.method(search.method).uses, base_config(search)
    searched = {one.key: one for one in search.ranges}
    for one in search.ranges:
        if one.key not in uses:
            raise UserError(f"{one.key} does not apply to {search.method} in {search.experiment}: leave it out or "
                            "change the method")
        allowed = experiment.choices(one.key) if SETTINGS[one.key].choices else ()
        if bad := [value for value in one.values if allowed and value not in allowed]:
            raise UserError(f"{one.key}={bad[0]} does not apply to {search.experiment}: choose from "
                            f"{', '.join(allowed)}")
        other, needed = DEPENDS.get(one.key, ("", frozenset()))
        if other in searched and not any(searched[other].contains(value) for value in needed):
            raise UserError(f"{one.key} does not apply to any of {other}={searched[other].text}: leave it out")
        if other in uses | ARGUMENTS and other not in searched and base.get(other) not in needed:
            if base.get(other) is None and DEPENDS.get(other, ("",))[0] in searched:
                continue  # it applies in some of the trials
            raise UserError(f"{one.key} does not apply to {other}={base.get(other) or 'none'}: leave it out")
    return search


def base_config(search: Search) -> Config:
    """Return the configuration that the search starts from: the defaults with the held settings."""
    return experiments.get(search.experiment).configure(
        search.method, search.data, seed=search.seed, device=search.device, **search.held)


def default_params(search: Search) -> dict[str, Any]:
    """Return the default values of the settings that are searched, as far as they apply."""
    base = base_config(search)
    return {one.key: base.get(one.key) for one in search.ranges if base.get(one.key) is not None}


def defaults_outside(search: Search) -> list[str]:
    """Return `key=value` of the defaults that are outside their ranges, which no trial can try."""
    values = default_params(search)
    return [f"{one.key}={values[one.key]}" for one in search.ranges
            if one.key in values and not one.contains(values[one.key])]


def trial_config(search: Search, suggest: Callable[[SearchRange], Any]) -> Config:
    """Return the configuration of a trial.

    Settings are suggested in the order of the vocabulary; one that does not apply to the values so far is left out.

    Args:
        search: what is searched.
        suggest: returns a value of a range.
    """
    experiment, values = experiments.get(search.experiment), dict[str, Any]()
    searched = {one.key: one for one in search.ranges}
    for key in SETTINGS:
        if key not in searched and key not in search.held:
            continue
        if _applies(experiment, search, key, values):
            values[key] = suggest(searched[key]) if key in searched else search.held[key]
    return experiment.configure(search.method, search.data, seed=search.seed, device=search.device, **values)


def _applies(experiment: Experiment, search: Search, key: str, values: dict[str, Any]) -> bool:
    """Return True if a setting has a meaning with the values chosen so far and the defaults of the rest."""
    other, needed = DEPENDS.get(key, ("", frozenset()))
    uses = experiment.method(search.method).uses
    if not other or (other not in uses and other not in ARGUMENTS):
        return True
    return experiment.configure(search.method, search.data, **values).get(other) in needed
