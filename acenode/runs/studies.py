"""Studies: named questions with what varies, what is held equal and which seeds or folds, kept in runs/studies/.

A study lists no runs. A run belongs to every study that asks for its configuration, so runs that exist already count
and nothing is trained twice (see `acenode.compare.study_grid`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acenode.config import KEYS
from acenode.config.vocabulary import check, choosable, known
from acenode.errors import UserError
from acenode.files import read_json, write_json
from acenode.runs.store import NAME, STUDIES, RunStore

FORMAT = 1  # of a study's file; a newer one is refused
MAX_NAME, MAX_QUESTION, MAX_GROUPS, MAX_REPEATS, MAX_RUNS = 60, 300, 20, 50, 400
MAX_BYTES = 200_000  # of a file
REPEATED = frozenset({"seed", "fold"})

Repeat = tuple[int, int | None]  # seed and fold; None where the experiment's default fold is used


@dataclass(frozen=True)
class StudyGroup:
    """One of the things that a study compares: a method with the settings that vary."""

    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.method, tuple(sorted(self.settings.items()))))


@dataclass(frozen=True)
class Study:
    """A question that a set of runs answers.

    Args:
        name: its name, from which the name of its file is made.
        experiment: the experiment whose metric answers it.
        groups: what is compared; every group differs from the others.
        question: the question in words; may be empty.
        data: `sample` or `full`.
        held: settings with one value in all groups to which they apply.
        seeds: the seeds of each group.
        folds: the folds of each group, each with all seeds; without seeds, each with its number as the seed.
        baseline: the index of the group that the others are compared with.
        metric: what is compared; the experiment's own metric if empty.

    Raises:
        UserError: if a value is malformed. Whether the experiment has these methods and settings is checked by
            `acenode.compare.study_configs`.
    """

    name: str
    experiment: str
    groups: tuple[StudyGroup, ...]
    question: str = ""
    data: str = "sample"
    held: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2)
    folds: tuple[int, ...] = ()
    baseline: int = 0
    metric: str = ""

    def __post_init__(self) -> None:
        check_name(self.name)
        check("experiment", self.experiment)
        check("data", self.data)
        _check_text("the question", self.question, MAX_QUESTION)
        _check_text("the metric", self.metric, MAX_NAME)
        object.__setattr__(self, "held", _settings("held", self.held))
        object.__setattr__(self, "groups", tuple(_group(group) for group in self.groups))
        for key, values in (("seed", self.seeds), ("fold", self.folds)):
            for value in values:
                check(key, value)
            if len(set(values)) < len(values):
                raise UserError(f"a {key} is given twice: leave one out")
        self._check_sizes()
        both = sorted(self.varied & self.held.keys())
        if both:
            raise UserError(f"{both[0]} varies and is held equal: leave one out")

    def _check_sizes(self) -> None:
        if not 2 <= len(self.groups) <= MAX_GROUPS:
            raise UserError(f"a study compares 2 to {MAX_GROUPS} groups, not {len(self.groups)}")
        if not self.repeats:
            raise UserError("a study needs at least one seed or fold")
        if len(self.repeats) > MAX_REPEATS or len(self.repeats) * len(self.groups) > MAX_RUNS:
            raise UserError(f"a study has at most {MAX_REPEATS} seeds and folds and {MAX_RUNS} runs, not "
                            f"{len(self.repeats)} and {len(self.repeats) * len(self.groups)}")
        if type(self.baseline) is not int or not 0 <= self.baseline < len(self.groups):
            raise UserError(f"the baseline is the number of a group, from 0 to {len(self.groups) - 1}, not "
                            f"{self.baseline!r}")
        if len(set(self.groups)) < len(self.groups):
            raise UserError("two groups are equal: leave one out")

    @property
    def varied(self) -> frozenset[str]:
        """The settings that a group gives; `method` if the methods differ."""
        methods = {"method"} if len({group.method for group in self.groups}) > 1 else set()
        return frozenset(methods | {key for group in self.groups for key in group.settings})

    @property
    def repeats(self) -> tuple[Repeat, ...]:
        """Seed and fold of each repetition of a group."""
        if not self.folds:
            return tuple((seed, None) for seed in self.seeds)
        if not self.seeds:
            return tuple((fold, fold) for fold in self.folds)
        return tuple((seed, fold) for fold in self.folds for seed in self.seeds)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the study's file."""
        groups = [{"method": group.method, "settings": dict(group.settings)} for group in self.groups]
        return {"format": FORMAT, "name": self.name, "question": self.question, "experiment": self.experiment,
                "data": self.data, "groups": groups, "held": dict(self.held), "seeds": list(self.seeds),
                "folds": list(self.folds), "baseline": self.baseline, "metric": self.metric}

    @classmethod
    def from_dict(cls, values: Any) -> Study:
        """Read the content of a study's file; an unknown key is an error."""
        if not isinstance(values, dict):
            raise UserError("it is not a study: it must be an object with a name, an experiment and groups")
        version = values.get("format", FORMAT)
        if type(version) is not int or version > FORMAT:
            raise UserError(f"it was written by a newer version (format {version}, this one reads {FORMAT}): "
                            "update acenode")
        _refuse_unknown(values, set(cls.__dataclass_fields__) | {"format"}, "a study")
        lacking = sorted({"name", "experiment", "groups"} - values.keys())
        if lacking:
            raise UserError(f"the study lacks {', '.join(lacking)}")
        given = {k: v for k, v in values.items() if k != "format"}
        for key in ("groups", "seeds", "folds"):
            if key in given:
                if not isinstance(given[key], list) or len(given[key]) > MAX_RUNS:
                    raise UserError(f"{key} must be a list of at most {MAX_RUNS}")
                given[key] = tuple(given[key])
        return cls(**given)


def check_name(name: Any) -> str:
    """Return the name of a study, or raise an error that says what a name may be."""
    if not isinstance(name, str) or len(name) > MAX_NAME or not NAME.fullmatch(name):
        raise UserError(f"{str(name)[:MAX_NAME]!r} cannot be the name of a study: use up to {MAX_NAME} letters, "
                        "digits, dots, dashes and underscores, such as attention-on-digits")
    return name


def _group(value: Any) -> StudyGroup:
    if isinstance(value, dict):
        _refuse_unknown(value, {"method", "settings"}, "a group")
        if "method" not in value:
            raise UserError("a group lacks its method")
        value = StudyGroup(value["method"], value.get("settings", {}))
    if not isinstance(value, StudyGroup):
        raise UserError("a group must have a method and settings")
    return StudyGroup(check("method", value.method), _settings("settings", value.settings))


def _settings(name: str, values: Any) -> dict[str, Any]:
    """Return checked settings in the order of the vocabulary."""
    if not isinstance(values, Mapping):
        raise UserError(f"{name} must be settings with their values")
    for key in values:
        if choosable(known(str(key))) in REPEATED:
            raise UserError(f"{key} is not a setting of a study: list its values in {key}s")
    return {key: check(key, values[key]) for key in KEYS if key in values}


def _refuse_unknown(values: Iterable[Any], allowed: set[str], owner: str) -> None:
    unknown = next((key for key in values if key not in allowed), None)
    if unknown is not None:
        raise UserError(f"{owner} has no {str(unknown)[:40]!r}: choose from {', '.join(sorted(allowed))}")


def _check_text(name: str, text: Any, most: int) -> None:
    if not isinstance(text, str) or len(text) > most or any(unicodedata.category(c) in ("Cc", "Cs") for c in text):
        raise UserError(f"{name} must be one line of at most {most} characters")


@dataclass(frozen=True)
class StoredStudy:
    """A study of a folder, or the reason why its file cannot be read."""

    name: str
    study: Study | None
    error: str = ""


class StudyStore:
    """The studies beside the runs of a folder."""

    def __init__(self, runs: RunStore) -> None:
        self.runs, self.folder = runs, runs.root / STUDIES

    def path(self, name: str) -> Path:
        """Return the file of a study, whether or not it exists."""
        return self.folder / f"{check_name(name)}.json"

    def exists(self, name: str) -> bool:
        return bool(NAME.fullmatch(name)) and len(name) <= MAX_NAME and self.path(name).is_file()

    def read(self, name: str) -> Study:
        """Read a study."""
        path = self.path(name)
        try:
            if path.stat().st_size > MAX_BYTES:
                raise UserError(f"{path} is larger than a study can be: delete it, or restore it")
            study = Study.from_dict(read_json(path))
        except FileNotFoundError:
            raise UserError(f"there is no study {name!r} in {self.folder}: see `acenode study list`") from None
        except (ValueError, OSError, RecursionError) as error:
            raise UserError(f"{path} cannot be read ({' '.join(str(error).split())}): delete it, or restore it") \
                from None
        except UserError as error:
            raise UserError(f"{path} is not valid: {error}") from None
        if study.name != name:
            raise UserError(f"{path} is not valid: its name is {study.name!r}, rename the file or the study")
        return study

    def list(self) -> list[StoredStudy]:
        """List the studies by name, those that cannot be read with the reason."""
        names = sorted(path.stem for path in self.folder.glob("*.json") if not path.name.startswith("."))
        return [self._stored(name) for name in names]

    def _stored(self, name: str) -> StoredStudy:
        try:
            return StoredStudy(name, self.read(name))
        except UserError as error:
            return StoredStudy(name, None, str(error))

    def write(self, study: Study, *, replace: bool = False) -> Path:
        """Write a study; one of that name is an error unless it may be replaced."""
        if self.runs.only_recorded:
            raise UserError("recorded runs can only be read: choose another folder with --runs DIR")
        path = self.path(study.name)
        if path.exists() and not replace:
            raise UserError(f"there is a study {study.name!r} already: choose another name, or delete it with "
                            f"`acenode study delete {study.name}`")
        try:
            write_json(path, study.to_dict(), indent=2)
        except OSError as error:
            raise UserError(f"{path} cannot be written ({error.strerror or error}): use --runs DIR") from None
        return path

    def delete(self, name: str) -> None:
        """Delete a study; its runs stay."""
        try:
            self.path(name).unlink()
        except FileNotFoundError:
            raise UserError(f"there is no study {name!r} in {self.folder}: see `acenode study list`") from None
        except OSError as error:
            raise UserError(f"the study {name} cannot be deleted ({error.strerror or error})") from None
