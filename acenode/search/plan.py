"""What a search trains: the configuration of each trial, the defaults that the first one tries, the best's study."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from acenode import experiments
from acenode.compare.study_grid import check_study
from acenode.config import SETTINGS, Config
from acenode.config.groups import ARGUMENTS, DEPENDS
from acenode.config.ranges import SearchRange
from acenode.errors import UserError
from acenode.runs.questions import MAX_NAME, Search, Study, StudyGroup, StudyStore
from acenode.runs.store import RunStore
from acenode.search.results import SearchReport


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
    """Return the configuration of a trial, for which `suggest` returns a value of a range.

    Settings are suggested in the order of the vocabulary; one that has no meaning with the values so far and the
    defaults of the rest is left out.
    """
    experiment, values = experiments.get(search.experiment), dict[str, Any]()
    searched = {one.key: one for one in search.ranges}
    uses = experiment.method(search.method).uses | ARGUMENTS
    for key in (key for key in SETTINGS if key in searched or key in search.held):
        other, needed = DEPENDS.get(key, ("", frozenset()))
        if other not in uses or experiment.configure(search.method, search.data, **values).get(other) in needed:
            values[key] = suggest(searched[key]) if key in searched else search.held[key]
    return experiment.configure(search.method, search.data, seed=search.seed, device=search.device, **values)


def winner_study(report: SearchReport, seeds: tuple[int, ...] = (0, 1, 2)) -> Study:
    """Return the study that compares the best trial's settings with the defaults on the test set."""
    search, best = report.search, report.best
    if best is None:
        what = ("wait for the first one" if report.status.running else
                f"continue it with `acenode search resume {search.name}`")
        raise UserError(f"no trial of {search.name} is finished yet: {what}")
    config, base = trial_config(search, lambda one: best.params[one.key]), base_config(search)
    changed = {key: config.get(key) for key in SETTINGS
               if key in best.params and config.get(key) is not None and config.get(key) != base.get(key)}
    if not changed:
        raise UserError(f"the defaults are the best settings that {search.name} found: test them with `acenode train "
                        f"{search.experiment} --method {search.method}`")
    held = {key: value for key, value in search.held.items() if key != "fold"}
    folds = (int(search.held["fold"]),) if "fold" in search.held else ()
    return check_study(Study(
        winner_name(search.name), search.experiment,
        (StudyGroup(search.method), StudyGroup(search.method, changed)),
        question="Are the settings found by the search better than the defaults?", data=search.data, held=held,
        seeds=seeds, folds=folds))


def winner_name(search: str) -> str:
    """Return the name of the study that compares the best settings of a search with the defaults."""
    return f"{search[:MAX_NAME - 7]}-winner"


def made_winner(runs: RunStore, search: str) -> str | None:
    """Return the name of the study of the best settings if it was made, or None."""
    name = winner_name(search)
    return name if StudyStore(runs).exists(name) else None
