"""Runs as a pandas frame: one row a run, with the documented columns."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from acenode.bench.synthetic import CREATED, finished_runs
from acenode.runs.catalogue import Catalogue
from acenode.runs.frame import COLUMNS, entries_frame
from acenode.runs.notes import write_notes
from acenode.runs.store import RunStore


def test_every_run_has_a_row_in_the_order_of_the_entries(tmp_path: Path) -> None:
    runs = finished_runs(tmp_path, 3)
    write_notes(runs[0], "good", ["a", "b"])
    (tmp_path / "damaged").mkdir()
    catalogue = Catalogue(RunStore(tmp_path))
    frame, entries = catalogue.frame(), catalogue.entries()
    assert list(frame.columns) == list(COLUMNS)
    assert frame["run"].tolist() == [entry.id for entry in entries] == [*(r.id for r in runs[::-1]), "damaged"]
    assert frame["test"].tolist()[:3] == [entry.value for entry in entries[:3]]
    first = frame.set_index("run").loc[runs[0].id]
    assert (first["state"], first["data"]) == ("finished", "sample")
    assert (first["experiment"], first["method"]) == ("mnist", "ace")
    assert (first["seed"], first["metric"], first["params"], first["seconds"]) == (0, "accuracy", 31_690, 30.0)
    assert (first["notes"], first["tags"], first["error"]) == ("good", "a, b", "")
    assert first["created"] == pd.Timestamp(CREATED, unit="s", tz="UTC")
    damaged = frame.iloc[3]
    assert damaged["state"] == "unreadable"
    assert "is not a run" in damaged["error"]
    assert damaged[["test", "seconds", "created"]].isna().all()


def test_settings_are_added_as_columns(tmp_path: Path) -> None:
    finished_runs(tmp_path, 2, penalty_weight=0.5)
    frame = entries_frame(Catalogue(RunStore(tmp_path)).entries(), settings=True)
    assert frame["config.penalty_weight"].tolist() == [0.5, 0.5]
    assert frame["config.seed"].tolist() == frame["seed"].tolist() == [1, 0]


def test_no_runs_give_an_empty_frame_with_all_columns(tmp_path: Path) -> None:
    frame = Catalogue(RunStore(tmp_path)).frame()
    assert frame.empty
    assert list(frame.columns) == list(COLUMNS)
    assert str(frame["created"].dtype).startswith("datetime64")
    assert entries_frame([], settings=True).empty
