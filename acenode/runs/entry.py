"""Summarise a run's files in one entry, as lists and tables of runs show it."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acenode.config import Config
from acenode.errors import UserError
from acenode.files import Stamp, read_json, stamp, write_json
from acenode.runs import store
from acenode.runs.process import is_here
from acenode.runs.store import Run

FILES = ("config.json", "status.json", "result.json", "notes.json")  # that an entry is read from
UNREADABLE = "unreadable"

Stamps = tuple[Stamp | None, ...]
Values = dict[str, float | None]


@dataclass(frozen=True)
class Entry:
    """One run of a list. An unreadable folder has an id, a path and the reason in `error`, and nothing else."""

    id: str
    path: Path
    state: str  # one of store.STATES, or "unreadable"
    error: str | None = None
    experiment: str = ""
    method: str = ""
    data: str = ""
    partial: bool = False  # trained on a part of the full data
    data_note: str = ""  # how the full data was made, if it is not the published file
    seed: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    created: float = 0.0
    began: float | None = None  # when it was last started or resumed
    params: int = 0
    progress: float = 0.0
    epoch: int = 0
    epochs: int = 0
    seconds: float | None = None  # of training
    other_seconds: float | None = None  # from start to end without training; None if the run was resumed
    seconds_left: float | None = None
    best: float | None = None  # best validation value
    best_epoch: int = 0  # whose parameters were tested, from 1; 0 if unknown
    last: float | None = None  # validation value of the last epoch
    metric: str = ""
    value: float | None = None  # the test metric
    test: Values = field(default_factory=dict)  # at the best parameters
    test_last: Values = field(default_factory=dict)  # at the last ones, for comparison
    device: str = ""  # its title
    device_name: str = ""  # cpu, cuda:0, …: where it was last trained
    code: str = ""  # version and commit that trained it
    recorded: bool = False  # comes with the project and can only be read
    notes: str = ""
    tags: tuple[str, ...] = ()
    search: str = ""  # the search that the run is a trial of; such a run is never tested

    @property
    def run(self) -> Run:
        """The run's directory."""
        return Run(self.path, self.recorded)

    @property
    def busy(self) -> bool:
        """True if the run is queued or running."""
        return self.state in store.BUSY

    @property
    def resumable(self) -> bool:
        """True if the run ended early and can continue from its last checkpoint."""
        return self.state in ("stopped", "failed", "interrupted") and not self.recorded

    @property
    def last_value(self) -> float | None:
        """The test metric at the last parameters."""
        return self.test_last.get(self.metric)


@dataclass(frozen=True)
class CachedEntry:
    """An entry with the stamps of its files when they were read, and the process that was to train the run."""

    stamps: Stamps
    entry: Entry
    process: dict[str, Any] = field(default_factory=dict)
    heartbeat: float = 0.0
    exists: bool = True  # False if the folder was deleted before it was read

    def is_valid(self, stamps: Stamps) -> bool:
        """Return True if no file has changed and the process of a busy run is still alive."""
        if self.stamps != stamps or self.may_come_back:
            return False
        return not self.entry.busy or store.alive(self.process, self.heartbeat, self.entry.path,
                                                  queued=self.entry.state == "queued")

    @property
    def may_come_back(self) -> bool:
        """True for an interrupted run of another machine, whose heartbeat may change again without any file."""
        return self.entry.state == "interrupted" and bool(self.process) and not is_here(self.process)


def stamps_of(folder: Path | str) -> Stamps:
    """Return the stamps of the files in a run's folder, which change whenever a file does."""
    return tuple([stamp(f"{folder}/{name}") for name in FILES])


def read_entry(run: Run, stamps: Stamps) -> CachedEntry:
    """Read a run's files. Nothing in them raises an error: a folder that cannot be read gets an entry that says why."""
    try:
        description, status, result = run.description(), run.status(), stamps[2]
        config, environment = Config.from_dict(description["config"]), description.get("environment")
        notes = read_notes(run) if stamps[3] else Notes()
        number = {key: _number(status.get(key)) for key in (
            "began", "heartbeat", "progress", "epoch", "epochs", "seconds", "seconds_left", "best", "best_epoch",
            "last")}
        source = status if result else {"metric": status.get("metric")}
        in_status = isinstance(status.get("test"), dict) and isinstance(status.get("test_last"), dict)
        if result and not (in_status and status.get("result_bytes") == result[1]):
            source = run.result() or {}  # the status, which is smaller, is from an older version, or from before
        metric = _text(source.get("metric"))
        test, test_last = _values(source.get("test")), _values(source.get("test_last"))
        entry = Entry(
            id=run.id, path=run.path, state=status["state"], error=_text(status.get("error")) or None,
            experiment=config.experiment, method=config.method, data=config.data, seed=config.seed,
            partial=bool(description.get("partial")), data_note=_text(description.get("data_note")),
            config={k: v for k, v in description["config"].items() if k != "format"},
            created=_number(description.get("created")) or 0.0, params=int(description.get("params", 0)),
            progress=number["progress"] or 0.0, other_seconds=_other_seconds(status["state"], number),
            **{key: int(number[key] or 0) for key in ("epoch", "epochs", "best_epoch")},
            **{key: number[key] for key in ("began", "seconds", "seconds_left", "best", "last")},  # type: ignore[arg-type]
            metric=metric, value=test.get(metric), test=test, test_last=test_last,
            device=_text(environment.get("device")) if isinstance(environment, dict) else "",
            device_name=_text(status.get("device")), code=code_version(environment), recorded=run.recorded,
            notes=notes.notes, tags=notes.tags, search=_text(description.get("search")),
        )
        return CachedEntry(stamps, entry, status["process"], float(status["heartbeat"] or 0))
    except UserError as error:
        reason = str(error)
    except Exception as error:  # a foreign file can hold anything
        reason = f"{run.path} cannot be read ({type(error).__name__}): delete it, or restore it"
    return CachedEntry(stamps, unreadable_entry(run, reason), exists=run.path.is_dir())


def unreadable_entry(run: Run, reason: str) -> Entry:
    """Return the entry of a run that cannot be read."""
    return Entry(run.id, run.path, UNREADABLE, " ".join(reason.split()), recorded=run.recorded)


def code_version(environment: Any) -> str:
    """Return the version of acenode and the commit, as far as they were written."""
    if not isinstance(environment, dict):
        return ""
    versions = environment.get("versions")
    version = _text(versions.get("acenode")) if isinstance(versions, dict) else ""
    return " ".join(filter(None, (version, _text(environment.get("commit")))))


def _other_seconds(state: str, status: dict[str, float | None]) -> float | None:
    """Return the time that a finished run spent on data, validation, snapshots and the test. None for a resumed run,
    whose `began` is the time of the resumption."""
    began, ended, training = status["began"], status["heartbeat"], status["seconds"]
    if state != "finished" or began is None or ended is None or training is None or ended - began < training:
        return None
    return ended - began - training


def _values(found: Any) -> Values:
    return {str(k): _number(v) for k, v in found.items()} if isinstance(found, dict) else {}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


# Notes and tags of the user, in notes.json --------------------------------------------------------------------------

MAX_NOTES, MAX_TAGS, MAX_TAG = 10_000, 20, 40  # characters, tags, characters of a tag


@dataclass(frozen=True)
class Notes:
    """Notes and tags of a run."""

    notes: str = ""
    tags: tuple[str, ...] = ()


def read_notes(run: Run) -> Notes:
    """Return the run's notes; empty if there are none or the file is damaged."""
    try:
        value = read_json(run.path / "notes.json")
        return _checked(value.get("notes", ""), value.get("tags", []))
    except (OSError, ValueError, AttributeError, UserError):
        return Notes()


def write_notes(run: Run, notes: str, tags: Iterable[str]) -> Notes:
    """Write notes and tags, and return them as written: tags stripped, each once. Invalid ones raise an error and
    leave the file unchanged."""
    run.refuse_recorded("annotated")
    kept = _checked(notes, tags)
    try:
        write_json(run.path / "notes.json", {"notes": kept.notes, "tags": list(kept.tags)}, make_folder=False)
    except FileNotFoundError:
        raise UserError(f"{run.id} no longer exists: it was deleted") from None
    except OSError as error:
        raise UserError(f"the notes of {run.id} cannot be written ({error.strerror or error}): fix that, "
                        "then save them again") from None
    return kept


def _checked(notes: Any, tags: Any) -> Notes:
    if not isinstance(notes, str):
        raise UserError("notes must be text")
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise UserError("tags must be a list of words")
    notes, tags = notes.replace("\r\n", "\n"), list(tags)
    if not all(isinstance(tag, str) for tag in tags):
        raise UserError("a tag must be text")
    tags = [tag.strip() for tag in tags]
    for what, text in (("the notes", notes.replace("\n", "").replace("\t", "")), *(("a tag", tag) for tag in tags)):
        bad = next((c for c in text if unicodedata.category(c) in ("Cc", "Cs")), None)  # Cs: half of a surrogate pair
        if bad is not None:
            raise UserError(f"{what} may not contain the control character U+{ord(bad):04X}: remove it")
    if len(notes) > MAX_NOTES:
        raise UserError(f"the notes have {len(notes):,} characters: at most {MAX_NOTES:,} are allowed")
    if long := next((tag for tag in tags if len(tag) > MAX_TAG), None):
        raise UserError(f"the tag {long[:MAX_TAG]!r}… has {len(long)} characters: at most {MAX_TAG} are allowed")
    tidy = tuple(dict.fromkeys(filter(None, tags)))  # each once, in order
    if len(tidy) > MAX_TAGS:
        raise UserError(f"there are {len(tidy)} tags: at most {MAX_TAGS} are allowed")
    return Notes(notes, tidy)
