"""Read the trials of a search from Optuna's journal, line by line as it grows, without Optuna and without the runs.

Optuna reads its journal too, but needs seconds for 10,000 trials. Lines that only its pruners need are skipped here.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acenode.config.ranges import SearchRange
from acenode.errors import UserError
from acenode.files import open_regular, stamp

CREATE, PARAM, STATE, USER_ATTR = 4, 5, 6, 8  # optuna.storages.journal.JournalOperation
STATES = {0: "running", 1: "finished", 2: "pruned", 3: "failed", 4: "queued"}  # optuna.trial.TrialState
REPORT = b'{"op_code":7,'  # beginning of the lines with validation after an epoch
RUN, DEFAULT, REASON = "run", "default", "reason"  # the keys that a search stores with a trial


@dataclass
class TrialRecord:
    """One trial: the settings tried and how it ended."""

    number: int
    state: str = "running"  # running | finished | pruned | failed | queued
    params: dict[str, Any] = field(default_factory=dict)
    value: float | None = None  # best validation value; of a pruned trial, the last one
    run: str = ""
    default: bool = False  # tries the defaults
    reason: str = ""  # why it was pruned or failed
    revision: int = 0  # of the journal when the trial last changed


class SearchJournal:
    """The trials of one search. Threads may share one; `refresh` reads what was appended since the last call."""

    def __init__(self, path: Path, ranges: tuple[SearchRange, ...]) -> None:
        self.path, self.lock = path, threading.Lock()
        self.ranges: Mapping[str, SearchRange] = {one.key: one for one in ranges}
        self.generation = 0  # changes when the file is replaced by another one
        self._start()

    def _start(self) -> None:
        self.trials: list[TrialRecord] = []
        self.offset, self.inode, self.revision = 0, 0, 0

    def refresh(self) -> list[TrialRecord]:
        """Read new lines and return all trials in order; an incomplete last line is left for the next call."""
        with self.lock:
            _, size, inode = stamp(self.path) or (0, 0, 0)
            if size < self.offset or (self.inode and inode != self.inode):
                self.generation += bool(self.offset)
                self._start()
            self.inode = inode
            if size > self.offset:
                self._read()
            return self.trials

    def _read(self) -> None:
        try:
            with open_regular(self.path) as file:
                file.seek(self.offset)
                data = file.read(os.fstat(file.fileno()).st_size - self.offset)
        except OSError as error:
            raise UserError(f"{self.path} cannot be read ({error.strerror or error}): change its permissions, or "
                            "restore it") from None
        end = data.rfind(b"\n") + 1
        self.offset += end
        for line in data[:end].splitlines():
            if not line.startswith(REPORT):
                with contextlib.suppress(ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
                    self._apply(json.loads(line))

    def _apply(self, log: Any) -> None:
        """Apply one line; an unknown or damaged one changes nothing."""
        operation = log["op_code"]
        self.revision += 1
        if operation == CREATE:
            trial = TrialRecord(len(self.trials), STATES[log.get("state", 0)], revision=self.revision)
            self._set_attributes(trial, log.get("user_attrs") or {})
            self.trials.append(trial)
        elif operation in (PARAM, STATE, USER_ATTR):
            trial = self.trials[log["trial_id"]]
            trial.revision = self.revision
            if operation == PARAM:  # Optuna writes the index of a listed value, and whole numbers as floats
                found, value = self.ranges[log["param_name"]], log["param_value_internal"]
                trial.params[found.key] = found.values[int(value)] if found.values else \
                    int(value) if found.whole else float(value)
            elif operation == STATE:
                trial.state, trial.value = STATES[log["state"]], _number(log.get("values"))
            else:
                self._set_attributes(trial, log["user_attr"])

    def _set_attributes(self, trial: TrialRecord, given: dict[str, Any]) -> None:
        trial.run = str(given.get(RUN, trial.run))
        trial.reason = str(given.get(REASON, trial.reason))
        trial.default = bool(given.get(DEFAULT, trial.default))


def _number(values: Any) -> float | None:
    if not isinstance(values, list) or not values or not isinstance(values[0], int | float):
        return None
    return float(values[0]) if math.isfinite(values[0]) else None
