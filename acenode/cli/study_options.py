"""Make a study from the arguments of `study new`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from acenode.config import parse, read_seeds
from acenode.errors import UserError

if TYPE_CHECKING:
    from acenode.runs.questions import Study, StudyGroup, StudyStore


def made_study(options: Namespace, store: StudyStore) -> Study:
    """Return the study that the arguments describe: a preset, one like another, or one of its own groups."""
    from acenode.compare.study_grid import check_study

    given = [name for name, value in (("--preset", options.preset), ("--from", options.source),
                                      ("--vary", options.vary), ("--group", options.group)) if value]
    if len(given) > 1 and set(given) != {"--vary", "--group"}:
        raise UserError(f"{given[0]} and {given[1]} exclude each other: leave one out")
    study = _start(options, store)
    changes: dict[str, Any] = {"name": options.name}
    if options.seeds is not None:
        changes["seeds"] = tuple(read_seeds(options.seeds))
    if options.folds is not None:
        changes["folds"] = tuple(read_seeds(options.folds))
        changes |= {} if options.seeds is not None else {"seeds": ()}
    if options.question is not None:
        changes["question"] = options.question
    if options.metric is not None:
        changes["metric"] = options.metric
    held = _held(options)
    if held:
        changes["held"] = {**study.held, **held}
    study = replace(study, **changes)
    if options.baseline is not None:
        study = replace(study, baseline=_baseline(study, options.baseline))
    return check_study(study)


def _start(options: Namespace, store: StudyStore) -> Study:
    from acenode.runs.questions import Study

    if options.source:
        return _like(options, store)
    if options.equal:
        raise UserError("--equal makes a study like another equal: name it with --from")
    if not options.experiment:
        raise UserError("name an experiment: see `acenode experiments`")
    if options.preset:
        from acenode.compare.study_grid import preset

        return preset(options.experiment, options.preset, options.data or "sample")
    if not options.group and not options.vary:
        raise UserError("a study compares 2 to 20 groups, and there is none: use --preset KIND, --vary KEY=VALUE,VALUE "
                        "or --group 'METHOD KEY=VALUE'")
    groups = (*(_group(text) for text in options.group), *_varied(options))
    return Study(options.name, options.experiment, groups, data=options.data or "sample")


def _like(options: Namespace, store: StudyStore) -> Study:
    from acenode.compare.fairness import equal_study
    from acenode.compare.study_grid import make_grid

    study = store.read(options.source)
    if options.experiment not in (None, study.experiment):
        raise UserError(f"{study.name} is a study of {study.experiment}: leave the experiment out")
    if options.data is not None:
        study = replace(study, data=options.data)
    if not options.equal:
        return study
    equal = equal_study(make_grid(study, ()))
    if equal is None:
        raise UserError(f"no settings make the groups of {study.name} more equal")
    return equal


def _varied(options: Namespace) -> list[StudyGroup]:
    """Return every combination of the values of --vary; `method` may be one of the keys."""
    from acenode.runs.questions import StudyGroup

    if not options.vary:
        return []
    axes: dict[str, Sequence[Any]] = {}
    for text in options.vary:
        key, equals, values = text.partition("=")
        parts = [part.strip() for part in values.split(",") if part.strip()]
        if not equals or len(parts) < 2:
            raise UserError(f"--vary takes KEY=VALUE,VALUE,..., not {text!r}")
        if key in axes:
            raise UserError(f"{key} is given twice: leave one out")
        axes[key] = parts if key == "method" else [parse(key, part) for part in parts]
    found = []
    for values in product(*axes.values()):
        settings = dict(zip(axes, values, strict=True))
        found.append(StudyGroup(settings.pop("method", options.method), settings))
    return found


def _group(text: str) -> StudyGroup:
    """Read a group: `ace attention=fixed`."""
    from acenode.runs.questions import StudyGroup

    method, *settings = text.split()
    return StudyGroup(method, dict(_setting(part, "--group") for part in settings))


def _held(options: Namespace) -> dict[str, Any]:
    found = dict(_setting(text, "--set") for text in options.set)
    return found if options.epochs is None else {**found, "epochs": options.epochs}


def _setting(text: str, option: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"{option} takes KEY=VALUE, not {text!r}")
    return key, parse(key, value)


def _baseline(study: Study, text: str) -> int:
    """Return the index of a group by its name or its number, counted from 1."""
    from acenode.compare.study_grid import group_names

    names = group_names(study)
    if text in names:
        return names.index(text)
    if text.isdecimal() and 1 <= int(text) <= len(names):
        return int(text) - 1
    raise UserError(f"there is no group {text!r}: choose a number from 1 to {len(names)}, or one of {'; '.join(names)}")
