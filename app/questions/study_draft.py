"""What the form of a new study asks for, and the study that it describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from acenode.compare.study_grid import check_study, group_config, group_names, kind_of, presets
from acenode.config import SETTINGS, parse, read_seeds
from acenode.config.groups import Training
from acenode.errors import UserError
from acenode.experiments import Experiment
from acenode.runs.questions import MAX_NAME, Study, StudyGroup, StudyStore

OWN = "own"  # the kind of a study that is not a preset
QUICK = 4  # a quick look has a quarter of the epochs
TRIAL = {"epochs": 1, "batch_size": 512, "solver": "rk4", "step_size": 1.0, "analysis": False}  # of images: seconds


@dataclass(frozen=True)
class StudyDraft:
    """The fields of the form. Empty texts and None stand for the start's own values."""

    start: Study  # the preset, or the first version of a study of one's own
    seeds: str = ""
    folds: str = ""
    length: Mapping[str, Any] = field(default_factory=dict)  # settings held equal that make runs shorter
    held: str = ""
    baseline: int | None = None
    name: str = ""
    question: str = ""

    def study(self) -> Study:
        """Return the study; a UserError says which field is wrong."""
        changes: dict[str, Any] = {"held": read_settings(self.held)}
        if self.seeds.strip() or self.folds.strip():
            changes["seeds"] = tuple(read_seeds(self.seeds)) if self.seeds.strip() else ()
            changes["folds"] = tuple(read_seeds(self.folds)) if self.folds.strip() else ()
        usual = {key: value for key, value in self.start.held.items() if key == "epochs"}
        changes["held"] = {**usual, **self.length, **changes["held"]}
        if self.baseline is not None:
            changes["baseline"] = self.baseline
        changes |= {key: value for key, value in (("name", self.name), ("question", self.question)) if value}
        return check_study(replace(self.start, **changes))


@dataclass(frozen=True)
class Length:
    """A length of the runs that the form offers: settings that are held equal, none for the default."""

    title: str
    held: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Varied:
    """What the groups of a study of one's own are made of: methods, and values of settings."""

    methods: list[str]
    values: dict[str, list[Any]] = field(default_factory=dict)


def starts(experiment: str, data: str) -> dict[str, Study]:
    """Return the ready-made studies of an experiment by their kind."""
    return {kind_of(study): study for study in presets(experiment, data)}


def own_start(experiment: Experiment, data: str, varied: Varied) -> Study:
    """Return a study that compares all combinations of methods and values, with three seeds.

    The first group is the baseline. A setting is left out where a method does not have it.
    """
    groups = tuple(dict.fromkeys(_combinations(experiment, varied)))
    if len(groups) < 2:
        raise UserError("choose two methods, or two values of a setting: a study compares them")
    return Study(f"{experiment.name}-{OWN}", experiment.name, groups, data=data, baseline=0)


def _combinations(experiment: Experiment, varied: Varied) -> Iterator[StudyGroup]:
    axes = {key: values for key, values in varied.values.items() if values}
    for method, *values in product(varied.methods, *axes.values()):
        uses = experiment.method(method).uses
        yield StudyGroup(method, {k: v for k, v in zip(axes, values, strict=True) if k in uses})


def settings_that_vary(experiment: Experiment) -> list[str]:
    """List the settings of the experiment's methods that a study can vary."""
    uses = frozenset().union(*(method.uses for method in experiment.methods.values()))
    return [key for key, setting in SETTINGS.items() if key in uses and setting.group != "record" and key != "fold"]


def lengths(study: Study) -> list[Length]:
    """Return the lengths that the form offers, the default last: for images also a trial of one epoch with a coarse
    solver, and a quick look with a quarter of the epochs."""
    configs = [group_config(study, group) for group in study.groups]
    usual = {config.part(Training).epochs for config in configs}
    quick = max(1, min(usual) // QUICK)
    found = []
    if all(config.get("size") is not None and "solver" not in study.varied | study.held.keys() for config in configs):
        found.append(Length("Trial: 1 epoch, coarse solver", TRIAL))
    if quick < min(usual):
        found.append(Length(f"Quick look: {epochs_text(str(quick))}", {"epochs": quick}))
    title = " to ".join(str(n) for n in sorted({min(usual), max(usual)}))
    return [*found, Length(f"Default: {epochs_text(title)}")]


def epochs_text(number: str) -> str:
    """Write `1 epoch`, `12 epochs`."""
    return f"{number} epoch{'s' * (number != '1')}"


def repeats_texts(study: Study) -> tuple[str, str]:
    """Return the study's seeds and folds as a user would type them."""
    return " ".join(map(str, study.seeds)), " ".join(map(str, study.folds))


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
    """Return the study under a name that is free, or under that of a stored study that is the same."""
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
    return replace(study, name=name)


def summary(study: Study) -> str:
    """Say what is compared and how often: `evolving attention, fixed attention, no attention; 3 seeds`."""
    count = len(study.repeats)
    word = "fold" if study.folds and len(study.seeds) < 2 else "run" if study.folds else "seed"
    return f"{', '.join(group_names(study))}; {count} {word}{'s' * (count != 1)} each"
