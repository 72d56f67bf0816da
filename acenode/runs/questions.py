"""Questions that runs answer: studies, which compare, and searches, which try settings. They stand beside the runs.

    studies/NAME.json     what varies, what is held equal, and which seeds or folds
    searches/NAME/
        search.json       what is searched; never changes but for the number of trials
        journal.log       every trial, as Optuna writes it: its settings, its run, validation after each epoch, its end
        status.json       running | stopped | finished | failed, the process that conducts it, a heartbeat
        stop              requests that the search stop        lock    held by the process that conducts it

A study lists no runs: a run belongs to every study that asks for its configuration, so runs that exist already count
and nothing is trained twice (see `acenode.compare.study_grid`). Trials of searches are ordinary runs beside the others,
except that they are never tested.
"""

from __future__ import annotations

import dataclasses
import shutil
import time
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from filelock import BaseFileLock

from acenode.config import KEYS
from acenode.config.ranges import SearchRange, ranges_text, read_ranges
from acenode.config.vocabulary import check, choosable, known
from acenode.errors import UserError
from acenode.files import read_json, write_json
from acenode.runs.process import alive, identity, try_lock
from acenode.runs.store import NAME, SEARCHES, STUDIES, RunStore

FORMAT = 1  # of a question's file; a newer one is refused
MAX_NAME, MAX_QUESTION, MAX_GROUPS, MAX_REPEATS, MAX_RUNS, MAX_TRIALS = 60, 300, 20, 50, 400, 100_000
MAX_BYTES = 200_000  # of a file
SAMPLERS = {"tpe": "TPE", "random": "random"}
PRUNERS = {"median": "median of the trials so far", "halving": "successive halving", "hyperband": "Hyperband",
           "none": "none"}
STATES = ("running", "stopped", "finished", "failed", "interrupted")  # of a search

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
    """A question that a set of runs answers. A malformed value is a UserError; whether the experiment has these methods
    and settings is checked by `acenode.compare.study_grid.check_study`."""

    name: str
    experiment: str  # whose metric answers it
    groups: tuple[StudyGroup, ...]  # what is compared; every group differs from the others
    question: str = ""  # in words
    data: str = "sample"  # or full
    held: Mapping[str, Any] = field(default_factory=dict)  # settings with one value in all groups to which they apply
    seeds: tuple[int, ...] = (0, 1, 2)  # of each group
    folds: tuple[int, ...] = ()  # of each group, each with all seeds; without seeds, each with its number as the seed
    baseline: int = 0  # the index of the group that the others are compared with
    metric: str = ""  # what is compared; the experiment's own metric if empty

    def __post_init__(self) -> None:
        StudyStore.check_name(self.name)
        check("experiment", self.experiment)
        check("data", self.data)
        for what, text, most in (("question", self.question, MAX_QUESTION), ("metric", self.metric, MAX_NAME)):
            if not isinstance(text, str) or len(text) > most or any(
                    unicodedata.category(c) in ("Cc", "Cs") for c in text):
                raise UserError(f"the {what} must be one line of at most {most} characters")
        object.__setattr__(self, "held", _settings("held", self.held))
        object.__setattr__(self, "groups", tuple(_group(group) for group in self.groups))
        for key, values in (("seed", self.seeds), ("fold", self.folds)):
            for value in values:
                check(key, value)
            if len(set(values)) < len(values):
                raise UserError(f"a {key} is given twice: leave one out")
        groups, repeats = len(self.groups), len(self.repeats)
        if not 2 <= groups <= MAX_GROUPS:
            raise UserError(f"a study compares 2 to {MAX_GROUPS} groups, not {groups}")
        if not repeats:
            raise UserError("a study needs at least one seed or fold")
        if repeats > MAX_REPEATS or repeats * groups > MAX_RUNS:
            raise UserError(f"a study has at most {MAX_REPEATS} seeds and folds and {MAX_RUNS} runs, not {repeats} and "
                            f"{repeats * groups}")
        if type(self.baseline) is not int or not 0 <= self.baseline < groups:
            raise UserError(f"the baseline is the number of a group, from 0 to {groups - 1}, not {self.baseline!r}")
        if len(set(self.groups)) < groups:
            raise UserError("two groups are equal: leave one out")
        if both := sorted(self.varied & self.held.keys()):
            raise UserError(f"{both[0]} varies and is held equal: leave one out")

    @property
    def varied(self) -> frozenset[str]:
        """The settings that a group gives; `method` if the methods differ."""
        methods = {"method"} if len({group.method for group in self.groups}) > 1 else set()
        return frozenset(methods | {key for group in self.groups for key in group.settings})

    @property
    def repeats(self) -> tuple[Repeat, ...]:
        """Seed and fold of each repetition of a group."""
        folds: tuple[Any, ...] = self.folds or (None,)
        return tuple((seed, fold) for fold in folds for seed in self.seeds or (self.folds and (fold,)))

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the study's file."""
        values = {key: list(value) if isinstance(value, tuple) else value
                  for key, value in dataclasses.asdict(self).items()}
        return {"format": FORMAT, **values}

    @classmethod
    def from_dict(cls, values: Any) -> Study:
        """Read the content of a study's file; an unknown key is an error."""
        given = _content(values, "study", ("name", "experiment", "groups"), {f.name for f in dataclasses.fields(cls)})
        for key in given.keys() & {"groups", "seeds", "folds"}:
            if not isinstance(given[key], list) or len(given[key]) > MAX_RUNS:
                raise UserError(f"{key} must be a list of at most {MAX_RUNS}")
            given[key] = tuple(given[key])
        return cls(**given)


@dataclass(frozen=True)
class Search:
    """What a search tries. A malformed value is a UserError; whether the experiment has this method and these settings
    is checked by `acenode.search.plan.check_search`."""

    name: str
    experiment: str  # whose validation metric is the objective
    method: str
    ranges: tuple[SearchRange, ...]  # the settings that vary
    trials: int  # how many settings are tried in all
    data: str = "sample"  # or full
    held: Mapping[str, Any] = field(default_factory=dict)  # settings that all trials share
    sampler: str = "tpe"  # of SAMPLERS
    pruner: str = "median"  # of PRUNERS: which trials are stopped early
    seed: int = 0  # of the sampler, and of every trial's parameters and data order
    device: str = "auto"  # that trains the trials

    def __post_init__(self) -> None:
        SearchStore.check_name(self.name)
        for key in ("experiment", "method", "data", "seed", "device"):
            check(key, getattr(self, key))
        object.__setattr__(self, "held", {k: check(choosable(known(k)), v) for k, v in self.held.items()})
        if type(self.trials) is not int or not 1 <= self.trials <= MAX_TRIALS:
            raise UserError(f"a search has 1 to {MAX_TRIALS} trials, not {self.trials}")
        for what, value, choices in (("sampler", self.sampler, SAMPLERS), ("pruner", self.pruner, PRUNERS)):
            if value not in choices:
                raise UserError(f"there is no {what} {value!r}: choose one of {', '.join(choices)}")
        if both := [one.key for one in self.ranges if one.key in self.held]:
            raise UserError(f"{both[0]} is searched and held equal: leave one out")

    def to_dict(self) -> dict[str, Any]:
        """Return the content of search.json."""
        values = dataclasses.asdict(self)
        del values["ranges"]
        return {"format": FORMAT, **values, "over": ranges_text(self.ranges)}

    @classmethod
    def from_dict(cls, values: Any) -> Search:
        """Read the content of search.json; an unknown key is an error."""
        fields = {"over", *(f.name for f in dataclasses.fields(cls) if f.name != "ranges")}
        given = _content(values, "search", ("name", "experiment", "method", "over", "trials"), fields)
        if not isinstance(given["over"], str) or not isinstance(given.get("held", {}), dict):
            raise UserError("`over` must be a text, and `held` an object of settings")
        return cls(ranges=read_ranges([given.pop("over")]), **given)


def _content(values: Any, noun: str, needed: tuple[str, ...], fields: set[str]) -> dict[str, Any]:
    """Return what a question's file says; an error if it is of another kind or version, or has other keys."""
    if not isinstance(values, dict):
        raise UserError(f"it is not a {noun}: it must be an object with {', '.join(needed)}")
    version = values.get("format", FORMAT)
    if type(version) is not int or version > FORMAT:
        raise UserError(f"it was written by a newer version (format {version}, this one reads {FORMAT}): "
                        "update acenode")
    _refuse_unknown(values, fields | {"format"}, f"a {noun}")
    if lacking := sorted(set(needed) - values.keys()):
        raise UserError(f"the {noun} lacks {', '.join(lacking)}")
    return {k: v for k, v in values.items() if k != "format"}


def _group(value: Any) -> StudyGroup:
    if isinstance(value, dict):
        _refuse_unknown(value, {"method", "settings"}, "a group")
        if "method" not in value:
            raise UserError("a group lacks its method")
        value = StudyGroup(**value)
    if not isinstance(value, StudyGroup):
        raise UserError("a group must have a method and settings")
    return StudyGroup(check("method", value.method), _settings("settings", value.settings))


def _settings(name: str, values: Any) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise UserError(f"{name} must be settings with their values")
    for key in values:
        if choosable(known(str(key))) in ("seed", "fold"):
            raise UserError(f"{key} is not a setting of a study: list its values in {key}s")
    return {key: check(key, values[key]) for key in KEYS if key in values}


def _refuse_unknown(values: Iterable[Any], allowed: set[str], owner: str) -> None:
    for key in values:
        if key not in allowed:
            raise UserError(f"{owner} has no {str(key)[:40]!r}: choose from {', '.join(sorted(allowed))}")


# Stores -------------------------------------------------------------------------------------------------------------

Question = TypeVar("Question", Study, Search)


class QuestionStore(Generic[Question]):
    """The studies or the searches beside the runs of a folder."""

    noun: ClassVar[str]
    place: ClassVar[str]  # the folder
    example: ClassVar[str]  # of a name
    if_taken: ClassVar[str]  # what to do if there is a question of a name
    reserved: ClassVar[frozenset[str]] = frozenset()  # names that a new question cannot have
    ending: ClassVar[str] = ""  # of the file or folder
    definition: ClassVar[str] = ""  # the file in a folder
    kind: type[Question]

    def __init__(self, runs: RunStore) -> None:
        self.runs, self.folder = runs, runs.root / self.place

    @classmethod
    def check_name(cls, name: Any) -> str:
        """Return a name, or raise an error that says what a name may be."""
        if not isinstance(name, str) or len(name) > MAX_NAME or not NAME.fullmatch(name):
            raise UserError(f"{str(name)[:MAX_NAME]!r} cannot be the name of a {cls.noun}: use up to {MAX_NAME} "
                            f"letters, digits, dots, dashes and underscores, such as {cls.example}")
        return name

    def path(self, name: str) -> Path:
        """Return the file of a study or the folder of a search, whether or not it exists."""
        return self.folder / f"{self.check_name(name)}{self.ending}"

    def exists(self, name: str) -> bool:
        return bool(NAME.fullmatch(name)) and len(name) <= MAX_NAME and (self.path(name) / self.definition).is_file()

    def read(self, name: str) -> Question:
        path = self.path(name) / self.definition
        try:
            if path.stat().st_size > MAX_BYTES:
                raise UserError(f"{path} is larger than a {self.noun} can be: delete it, or restore it")
            found = self.kind.from_dict(read_json(path))
        except (FileNotFoundError, NotADirectoryError):
            raise self._missing(name) from None
        except (ValueError, TypeError, OSError, RecursionError) as error:
            raise UserError(f"{path} cannot be read ({' '.join(str(error).split())}): delete it, or restore it") \
                from None
        except UserError as error:
            raise UserError(f"{path} is not valid: {error}") from None
        if found.name != name:
            raise UserError(f"{path} is not valid: its name is {found.name!r}, rename the "
                            f"{'folder' if self.definition else 'file'} or the {self.noun}")
        return found

    def write(self, question: Question, *, replace: bool = False) -> Path:
        """Write a study or search; one of that name is an error unless it may be replaced."""
        name = question.name
        if self.runs.only_recorded:
            raise UserError("recorded runs can only be read: choose another folder with --runs DIR")
        if name in self.reserved:
            raise UserError(f"a {self.noun} cannot have the name {name!r}, which is an action: choose another name")
        if self.path(name).exists() and not replace:
            raise UserError(f"there is a {self.noun} {name!r} already: {self.if_taken.format(name=name)}")
        path = self.path(name) / self.definition
        try:
            write_json(path, question.to_dict(), indent=2)
        except OSError as error:
            raise UserError(f"{path} cannot be written ({error.strerror or error}): use --runs DIR") from None
        return path

    def delete(self, name: str) -> None:
        """Delete a study or search; its runs stay."""
        path = self.path(name)
        if not path.exists():
            raise self._missing(name)
        try:
            shutil.rmtree(path) if self.definition else path.unlink()
        except OSError as error:
            raise UserError(f"the {self.noun} {name} cannot be deleted ({error.strerror or error})") from None

    def _missing(self, name: str) -> UserError:
        return UserError(f"there is no {self.noun} {name!r} in {self.folder}: see `acenode {self.noun} list`")


class StoredStudy(NamedTuple):
    """A study of a folder, or the reason why its file cannot be read."""

    name: str
    study: Study | None
    error: str = ""


class StudyStore(QuestionStore[Study]):
    """The studies beside the runs of a folder."""

    noun, place, example, kind = "study", STUDIES, "attention-on-digits", Study
    if_taken, ending = "choose another name, or delete it with `acenode study delete {name}`", ".json"

    def list(self) -> list[StoredStudy]:
        """List the studies by name, those that cannot be read with the reason."""
        def stored(name: str) -> StoredStudy:
            try:
                return StoredStudy(name, self.read(name))
            except UserError as error:
                return StoredStudy(name, None, str(error))

        return [stored(name) for name in sorted(path.stem for path in self.folder.glob("[!.]*.json"))]


class SearchStatus(NamedTuple):
    """Whether a search runs, and why it ended."""

    state: str  # of STATES; interrupted if its process is gone
    error: str = ""

    @property
    def running(self) -> bool:
        return self.state == "running"


class SearchStore(QuestionStore[Search]):
    """The searches beside the runs of a folder."""

    noun, place, example, kind = "search", SEARCHES, "rates-of-ace", Search
    if_taken = "choose another --name, or continue it with `acenode search resume {name}`"
    reserved = frozenset({"list", "show", "resume", "stop", "winner", "delete"})  # actions of the command `search`
    definition = "search.json"

    def journal(self, name: str) -> Path:
        """Return the file with a search's trials."""
        return self.path(name) / "journal.log"

    def names(self) -> list[str]:
        """List the searches by name."""
        return sorted(p.parent.name for p in self.folder.glob("*/search.json") if NAME.fullmatch(p.parent.name))

    def free_name(self, wanted: str) -> str:
        """Return a name that no search has yet: the wanted one, or with a number."""
        name, number = wanted[:MAX_NAME], 1
        while self.path(name).exists():
            number += 1
            name = f"{wanted[:MAX_NAME - 1 - len(str(number))]}-{number}"
        return name

    def delete(self, name: str) -> None:
        """Delete a search that is not running; its runs stay."""
        if self.status(name).running:
            raise UserError(f"{name} is running: stop it first with `acenode search stop {name}`")
        super().delete(name)

    def status(self, name: str) -> SearchStatus:
        """Return whether a search runs; `interrupted` if its process is gone."""
        try:
            found = read_json(self.path(name) / "status.json")
            state, process, heartbeat = found["state"], found["process"], float(found["heartbeat"])
            if state == "running" and not alive(process, heartbeat, self.path(name)):
                return SearchStatus("interrupted", "its process ended unexpectedly")
            return SearchStatus(state if state in STATES else "stopped", str(found.get("error") or ""))
        except FileNotFoundError:
            return SearchStatus("stopped")
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return SearchStatus("failed", "its status.json cannot be read")

    def write_status(self, name: str, state: str, error: str = "") -> None:
        """Write the state of a search that this process conducts."""
        write_json(self.path(name) / "status.json", {"state": state, "error": error or None, "heartbeat": time.time(),
                                                     "process": identity()}, make_folder=False)

    def lock(self, name: str) -> BaseFileLock:
        """Lock a search, whose holder must release it; an error if another thread or process conducts it."""
        found = try_lock(self.path(name) / "lock")
        if found is None:
            raise UserError(f"{name} is running already: stop it first with `acenode search stop {name}`")
        return found

    def stop(self, name: str) -> Path:
        """Return the file whose presence asks the process that conducts a search to stop."""
        return self.path(name) / "stop"
