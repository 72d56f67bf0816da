"""All runs of a folder at a glance: read once, and again only where a file has changed."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acenode import files
from acenode.config import Config
from acenode.errors import UserError
from acenode.files import Stamp
from acenode.runs import store as runs
from acenode.runs.notes import read_notes
from acenode.runs.store import Run, RunStore

WATCHED = ("config.json", "status.json", "result.json", "notes.json")
UNREADABLE = "unreadable"

Stamps = tuple[Stamp | None, ...]
Values = dict[str, float | None]


@dataclass(frozen=True)
class Entry:
    """One run as a list shows it. An unreadable folder has an id, a path and a reason, and nothing else."""

    id: str
    path: Path
    state: str  # one of runs.STATES, or "unreadable"
    error: str | None = None
    experiment: str = ""
    method: str = ""
    data: str = ""
    partial: bool = False  # only a part of the full data was there
    seed: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    created: float = 0.0
    began: float | None = None  # when it was last started or resumed
    params: int = 0
    progress: float = 0.0
    epoch: int = 0
    epochs: int = 0
    seconds: float | None = None  # of training
    beside: float | None = None  # seconds from start to end that were not training; none where it was resumed
    seconds_left: float | None = None
    best: float | None = None  # best validation value
    last: float | None = None  # the last epoch's validation value
    metric: str = ""
    value: float | None = None  # the test metric
    test: Values = field(default_factory=dict)  # at the best parameters
    test_last: Values = field(default_factory=dict)  # at the last ones, for comparison
    device: str = ""
    notes: str = ""
    tags: tuple[str, ...] = ()

    @property
    def run(self) -> Run:
        return Run(self.path)

    @property
    def busy(self) -> bool:
        """Whether it waits or trains."""
        return self.state in runs.BUSY

    @property
    def last_value(self) -> float | None:
        """The test metric at the last parameters."""
        return self.test_last.get(self.metric)


@dataclass(frozen=True)
class _Known:
    """An entry, the files it was read from, and who was to train it."""

    stamp: Stamps
    entry: Entry
    process: dict[str, Any] = field(default_factory=dict)
    heartbeat: float = 0.0

    def holds(self, stamp: Stamps) -> bool:
        """Whether it still is so: a process may also have died without a file changing."""
        return self.stamp == stamp and (not self.entry.busy or runs.alive(self.process, self.heartbeat))


class Catalogue:
    """Entries of a folder of runs; threads may share one."""

    def __init__(self, store: RunStore) -> None:
        self.store = store
        self._known: dict[str, _Known] = {}
        self._lock = threading.Lock()

    def entries(self) -> list[Entry]:
        """Every run, newest first; unreadable folders last."""
        with self._lock:
            found = [(run, self._look(run)) for run in self._folders()]
            entries = [entry for run, entry in found if entry.state != UNREADABLE or run.path.is_dir()]
            here = {entry.id for entry in entries}
            self._known = {name: known for name, known in self._known.items() if name in here}
        return sorted(entries, key=lambda entry: (entry.created, entry.id), reverse=True)

    def entry(self, run_id: str) -> Entry | None:
        """One run by its whole id; None where there is no such folder."""
        run = self.store.find(run_id)
        if run is None:
            return None
        with self._lock:
            return self._look(run)

    def _folders(self) -> list[Run]:
        try:
            return list(self.store)
        except OSError:  # the folder of runs went away, or may not be looked into
            return []

    def _look(self, run: Run) -> Entry:
        # before reading: a change in between is read again next time
        stamp = tuple(files.stamp(f"{run.path}/{name}") for name in WATCHED)
        known = self._known.get(run.id)
        if known is None or not known.holds(stamp):
            known = self._known[run.id] = _read(run, stamp)
        return known.entry


def _read(run: Run, stamp: Stamps) -> _Known:
    try:
        description, status = run.description(), run.status()
        config = Config.from_dict(description["config"])
        metric, test, test_last = _outcome(run, status, stamp)
        notes = read_notes(run) if stamp[3] else None
        environment = description.get("environment")
        entry = Entry(
            id=run.id, path=run.path, state=status["state"], error=_text(status.get("error")) or None,
            experiment=config.experiment, method=config.method, data=config.data, seed=config.seed,
            partial=bool(description.get("partial")),
            config={k: v for k, v in description["config"].items() if k != "format"},
            created=_number(description.get("created")) or 0.0, began=_number(status.get("began")),
            params=int(description.get("params", 0)), progress=_number(status.get("progress")) or 0.0,
            epoch=int(_number(status.get("epoch")) or 0), epochs=int(_number(status.get("epochs")) or 0),
            seconds=_number(status.get("seconds")), beside=_beside(status),
            seconds_left=_number(status.get("seconds_left")), best=_number(status.get("best")),
            last=_number(status.get("last")),
            metric=metric, value=test.get(metric), test=test, test_last=test_last,
            device=_text(environment.get("device")) if isinstance(environment, dict) else "",
            notes=notes.notes if notes else "", tags=notes.tags if notes else (),
        )
        return _Known(stamp, entry, status["process"], float(status["heartbeat"] or 0))
    except UserError as error:
        return _unreadable(run, stamp, str(error))
    except Exception as error:  # whatever else a foreign file can hold
        return _unreadable(run, stamp, f"{run.path} cannot be read ({type(error).__name__}): delete it, or restore it")


def _beside(status: dict[str, Any]) -> float | None:
    """Data, validation, snapshots and the test of a finished run. One that was resumed began again later."""
    began, ended, training = (_number(status.get(k)) for k in ("began", "heartbeat", "seconds"))
    if status["state"] != "finished" or began is None or ended is None or training is None:
        return None
    return ended - began - training if ended - began >= training else None


def _unreadable(run: Run, stamp: Stamps, reason: str) -> _Known:
    return _Known(stamp, Entry(run.id, run.path, UNREADABLE, " ".join(reason.split())))


def _outcome(run: Run, status: dict[str, Any], stamp: Stamps) -> tuple[str, Values, Values]:
    """Name of the metric and the test values at the best and the last parameters, from the status where it speaks of
    the result.json that is there."""
    result_stamp = stamp[2]
    if result_stamp is None:
        return _text(status.get("metric")), {}, {}
    source = status
    told = isinstance(status.get("test"), dict) and isinstance(status.get("test_last"), dict)
    if not told or status.get("result_bytes") != result_stamp[1]:
        source = run.result() or {}  # a run of an older version, or a file that was changed since
    return _text(source.get("metric")), _values(source.get("test")), _values(source.get("test_last"))


def _values(found: Any) -> Values:
    return {str(k): _number(v) for k, v in found.items()} if isinstance(found, dict) else {}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
