"""Searches: which settings of a method are tried, how often and how they are chosen, kept in runs/searches/NAME/.

    search.json    what is searched; never changes but for the number of trials
    journal.log    every trial, as Optuna writes it: its settings, its run, validation after each epoch, how it ended
    status.json    running | stopped | finished | failed, the process that conducts it, a heartbeat
    stop           requests that the search stop        lock    held by the process that conducts it

Trials are ordinary runs beside the others, except that they are never tested.
"""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import BaseFileLock

from acenode.config.ranges import SearchRange, ranges_text, read_ranges
from acenode.config.vocabulary import check, choosable, known
from acenode.errors import UserError
from acenode.files import read_json, write_json
from acenode.runs.lock import try_lock_file
from acenode.runs.process import alive, identity
from acenode.runs.store import NAME, SEARCHES, RunStore

FORMAT = 1  # of search.json; a newer one is refused
MAX_NAME, MAX_TRIALS = 60, 100_000
MAX_BYTES = 200_000  # of search.json
SAMPLERS = {"tpe": "TPE", "random": "random"}
PRUNERS = {"median": "median of the trials so far", "halving": "successive halving", "hyperband": "Hyperband",
           "none": "none"}
RESERVED = frozenset({"list", "show", "resume", "stop", "winner", "delete"})  # actions of the command `search`
NOT_RUNNING = frozenset({"stopped", "finished", "failed", "interrupted"})


@dataclass(frozen=True)
class Search:
    """What a search tries.

    Args:
        name: its name, which is that of its folder.
        experiment: the experiment whose validation metric is the objective.
        method: the method whose settings are searched.
        ranges: the settings that vary.
        trials: how many settings are tried in all.
        data: `sample` or `full`.
        held: settings that all trials share, where they are not the defaults.
        sampler: `tpe` or `random`.
        pruner: which trials are stopped early: `median`, `halving`, `hyperband` or `none`.
        seed: of the sampler, and of every trial's parameters and data order.
        device: that trains the trials.

    Raises:
        UserError: if a value is malformed. Whether the experiment has this method and these settings is checked by
            `acenode.search.plan`.
    """

    name: str
    experiment: str
    method: str
    ranges: tuple[SearchRange, ...]
    trials: int
    data: str = "sample"
    held: Mapping[str, Any] = field(default_factory=dict)
    sampler: str = "tpe"
    pruner: str = "median"
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        check_name(self.name)
        for key in ("experiment", "method", "data", "seed", "device"):
            check(key, getattr(self, key))
        object.__setattr__(self, "held", {k: check(choosable(known(k)), v) for k, v in self.held.items()})
        if type(self.trials) is not int or not 1 <= self.trials <= MAX_TRIALS:
            raise UserError(f"a search has 1 to {MAX_TRIALS} trials, not {self.trials}")
        for what, value, choices in (("sampler", self.sampler, SAMPLERS), ("pruner", self.pruner, PRUNERS)):
            if value not in choices:
                raise UserError(f"there is no {what} {value!r}: choose one of {', '.join(choices)}")
        both = [one.key for one in self.ranges if one.key in self.held]
        if both:
            raise UserError(f"{both[0]} is searched and held equal: leave one out")

    def to_dict(self) -> dict[str, Any]:
        """Return the content of search.json."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "ranges"}
        return {"format": FORMAT, **values, "held": dict(self.held), "over": ranges_text(self.ranges)}

    @classmethod
    def from_dict(cls, values: Any) -> Search:
        """Read the content of search.json; an unknown key is an error."""
        if not isinstance(values, dict) or not isinstance(values.get("over"), str):
            raise UserError("it is not a search: it must be an object with a name, an experiment and `over`")
        version = values.get("format", FORMAT)
        if type(version) is not int or version > FORMAT:
            raise UserError(f"it was written by a newer version (format {version}, this one reads {FORMAT}): "
                            "update acenode")
        given = {k: v for k, v in values.items() if k not in ("format", "over")}
        allowed = {f.name for f in dataclasses.fields(cls)} - {"ranges"}
        if unknown := sorted(given.keys() - allowed):
            raise UserError(f"a search has no {unknown[0]!r}")
        if lacking := sorted({"name", "experiment", "method", "trials"} - given.keys()):
            raise UserError(f"the search lacks {', '.join(lacking)}")
        if not isinstance(given.get("held", {}), dict):
            raise UserError("held must be an object of settings")
        return cls(ranges=read_ranges([values["over"]]), **given)


@dataclass(frozen=True)
class SearchStatus:
    """Whether a search runs, and why it ended."""

    state: str  # running | stopped | finished | failed, or interrupted if its process is gone
    error: str = ""

    @property
    def running(self) -> bool:
        return self.state == "running"


def check_name(name: Any) -> str:
    """Return the name of a search, or raise an error that says what a name may be."""
    if not isinstance(name, str) or len(name) > MAX_NAME or not NAME.fullmatch(name):
        raise UserError(f"{str(name)[:MAX_NAME]!r} cannot be the name of a search: use up to {MAX_NAME} letters, "
                        "digits, dots, dashes and underscores, such as rates-of-ace")
    return name


class SearchStore:
    """The searches beside the runs of a folder."""

    def __init__(self, runs: RunStore) -> None:
        self.runs, self.folder = runs, runs.root / SEARCHES

    def path(self, name: str) -> Path:
        """Return the folder of a search, whether or not it exists."""
        return self.folder / check_name(name)

    def journal(self, name: str) -> Path:
        """Return the file with a search's trials."""
        return self.path(name) / "journal.log"

    def names(self) -> list[str]:
        """List the searches by name."""
        return sorted(path.parent.name for path in self.folder.glob("*/search.json")
                      if NAME.fullmatch(path.parent.name))

    def free_name(self, wanted: str) -> str:
        """Return a name that no search has yet: the wanted one, or with a number."""
        name, number = wanted[:MAX_NAME], 1
        while self.path(name).exists():
            number += 1
            name = f"{wanted[:MAX_NAME - 1 - len(str(number))]}-{number}"
        return name

    def read(self, name: str) -> Search:
        """Read a search."""
        path = self.path(name) / "search.json"
        try:
            if path.stat().st_size > MAX_BYTES:
                raise UserError(f"{path} is larger than a search can be: delete it, or restore it")
            search = Search.from_dict(read_json(path))
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(f"there is no search {name!r} in {self.folder}: see `acenode search list`") from None
        except (ValueError, TypeError, OSError, RecursionError) as error:
            raise UserError(f"{path} cannot be read ({' '.join(str(error).split())}): delete it, or restore it") \
                from None
        except UserError as error:
            raise UserError(f"{path} is not valid: {error}") from None
        if search.name != name:
            raise UserError(f"{path} is not valid: its name is {search.name!r}, rename the folder or the search")
        return search

    def create(self, search: Search) -> None:
        """Write a new search; one of that name is an error."""
        if self.runs.only_recorded:
            raise UserError("recorded runs can only be read: choose another folder with --runs DIR")
        if search.name in RESERVED:
            raise UserError(f"a search cannot have the name {search.name!r}, which is an action: choose another name")
        if self.path(search.name).exists():
            raise UserError(f"there is a search {search.name!r} already: choose another --name, or continue it with "
                            f"`acenode search resume {search.name}`")
        self.write(search)

    def write(self, search: Search) -> None:
        """Write search.json."""
        path = self.path(search.name) / "search.json"
        try:
            write_json(path, search.to_dict(), indent=2)
        except OSError as error:
            raise UserError(f"{path} cannot be written ({error.strerror or error}): use --runs DIR") from None

    def delete(self, name: str) -> None:
        """Delete a search that is not running; its runs stay."""
        path = self.path(name)
        if not path.is_dir():
            raise UserError(f"there is no search {name!r} in {self.folder}: see `acenode search list`")
        if self.status(name).running:
            raise UserError(f"{name} is running: stop it first with `acenode search stop {name}`")
        try:
            shutil.rmtree(path)
        except OSError as error:
            raise UserError(f"the search {name} cannot be deleted ({error.strerror or error})") from None

    # Status -----------------------------------------------------------------------------------------------------

    def status(self, name: str) -> SearchStatus:
        """Return whether a search runs; `interrupted` if its process is gone."""
        try:
            found = read_json(self.path(name) / "status.json")
            state, process, heartbeat = found["state"], found["process"], float(found["heartbeat"])
            if state == "running" and not alive(process, heartbeat, self.path(name)):
                return SearchStatus("interrupted", "its process ended unexpectedly")
            return SearchStatus(state if state in NOT_RUNNING | {"running"} else "stopped",
                                str(found.get("error") or ""))
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
        found = try_lock_file(self.path(name) / "lock")
        if found is None:
            raise UserError(f"{name} is running already: stop it first with `acenode search stop {name}`")
        return found

    def request_stop(self, name: str) -> None:
        """Ask the process that conducts a search to stop."""
        (self.path(name) / "stop").touch()

    def stop_requested(self, name: str) -> bool:
        return (self.path(name) / "stop").exists()

    def cancel_stop(self, name: str) -> None:
        (self.path(name) / "stop").unlink(missing_ok=True)
