"""Runs as a pandas frame, one row for each run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from acenode.runs.entry import Entry

COLUMNS = {
    "run": "id of the run",
    "state": "queued, running, stopped, finished, failed, interrupted or unreadable",
    "error": "why a run failed or cannot be read; empty otherwise",
    "experiment": "experiment", "method": "method", "data": "sample or full",
    "partial": "True if only a part of the full data was present",
    "recorded": "True for a recorded run, which comes with the project",
    "seed": "seed", "device": "device that trained it", "params": "number of parameters",
    "created": "when the run was created (UTC)",
    "began": "when it was last started or resumed (UTC)",
    "progress": "0 to 1", "epoch": "epochs done", "epochs": "epochs planned",
    "seconds": "training time",
    "other_seconds": "time from start to end without training; NaN if the run was resumed",
    "seconds_left": "estimated training time left",
    "metric": "name of the metric of the next four columns",
    "test": "test value at the best parameters", "test_last": "test value at the last parameters",
    "validation": "best validation value", "validation_last": "validation value of the last epoch",
    "tags": "tags, separated by commas", "notes": "notes",
}
"""The columns of `entries_frame` and what they hold. Values that were not measured are NaN (or NaT)."""

_NUMBERS = ("seconds", "other_seconds", "seconds_left", "test", "test_last", "validation", "validation_last")
_TIMES = ("created", "began")


def entries_frame(entries: Iterable[Entry], settings: bool = False) -> pd.DataFrame:
    """Return a frame with a row for each entry and the columns of `COLUMNS`.

    With `settings`, a column `config.KEY` follows for every setting of any of the runs.
    """
    entries = list(entries)
    frame = pd.DataFrame([_row(entry) for entry in entries], columns=list(COLUMNS))
    frame = frame.astype(dict.fromkeys(_NUMBERS, float))
    for name in _TIMES:
        frame[name] = pd.to_datetime(frame[name].astype(float), unit="s", utc=True)
    if settings:
        found = pd.DataFrame([entry.config for entry in entries], index=frame.index).add_prefix("config.")
        frame = pd.concat([frame, found], axis=1)
    return frame


def _row(entry: Entry) -> dict[str, Any]:
    return {
        "run": entry.id, "state": entry.state, "error": entry.error or "", "experiment": entry.experiment,
        "method": entry.method, "data": entry.data, "partial": entry.partial, "recorded": entry.recorded,
        "seed": entry.seed, "device": entry.device,
        "params": entry.params, "created": entry.created or None, "began": entry.began,
        "progress": entry.progress, "epoch": entry.epoch, "epochs": entry.epochs, "seconds": entry.seconds,
        "other_seconds": entry.other_seconds, "seconds_left": entry.seconds_left, "metric": entry.metric,
        "test": entry.value, "test_last": entry.last_value, "validation": entry.best, "validation_last": entry.last,
        "tags": ", ".join(entry.tags), "notes": entry.notes,
    }
