"""The index beside the runs: it saves reading the folders, and is never believed where the folders differ."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acenode import experiments
from acenode.bench.synthetic import finished_runs
from acenode.compare.groups import changed_in
from acenode.compare.table import measured
from acenode.config import Config
from acenode.execution.launcher import Launcher
from acenode.experiments.base import Experiment
from acenode.runs import catalogue as catalogue_module
from acenode.runs import index
from acenode.runs import store as store_module
from acenode.runs.catalogue import Catalogue
from acenode.runs.entry import Entry
from acenode.runs.notes import write_notes
from acenode.runs.store import Run, RunStore

COUNT = 12


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the names of the runs whose files are opened."""
    seen: list[str] = []
    whole = store_module.read_json

    def count(path: Path) -> Any:
        seen.append(path.parent.name)
        return whole(path)

    for place in ("acenode.runs.store.read_json", "acenode.runs.notes.read_json"):
        monkeypatch.setattr(place, count)
    return seen


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Return runs in a folder that has an index after it was listed once."""
    monkeypatch.setattr(catalogue_module, "INDEXED_AFTER", 10)
    return finished_runs(tmp_path, COUNT)


def entries(root: Path) -> list[Entry]:
    """List the runs as a new process does."""
    return Catalogue(RunStore(root)).entries()


def test_a_second_process_opens_no_file_of_a_run(runs: list[Run], tmp_path: Path, reads: list[str]) -> None:
    write_notes(runs[3], "good – gut", ["keep", "best"])
    first = entries(tmp_path)
    assert len(reads) == 2 * COUNT + 1
    reads.clear()
    assert entries(tmp_path) == first
    assert reads == []
    assert len(first) == COUNT  # the index itself is no run


def test_only_changed_runs_are_opened(runs: list[Run], tmp_path: Path, reads: list[str]) -> None:
    entries(tmp_path)
    runs[4].set_state("stopped")
    shutil.rmtree(runs[5].path)
    shutil.copytree(runs[6].path, tmp_path / "copy")
    reads.clear()
    found = {e.id: e.state for e in entries(tmp_path)}
    assert set(reads) == {runs[4].id, "copy"}
    assert found[runs[4].id] == "stopped"
    assert runs[5].id not in found
    assert "copy" in found


def _flip_digit(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"0.901", b"0.951"))


def _foreign(path: Path) -> None:
    content = json.dumps({"configs": [], "rows": [[[], [1, 2]]]}).encode()
    path.write_bytes(index._header(content) + content)


@pytest.mark.parametrize("damage", [
    _flip_digit, _foreign, Path.unlink, lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"\xff" * 99),
    lambda path: path.write_bytes(path.read_bytes()[:-9]),
    lambda path: (path.unlink(), os.mkfifo(path)), lambda path: (path.unlink(), path.mkdir()),
], ids=["flipped digit", "foreign", "missing", "empty", "not text", "cut", "pipe", "folder"])
def test_an_invalid_index_is_not_used(damage: Callable[[Path], object], runs: list[Run], tmp_path: Path,
                                      reads: list[str]) -> None:
    first = entries(tmp_path)
    reads.clear()
    damage(tmp_path / index.FILE)
    assert entries(tmp_path) == first
    assert len(reads) == 2 * COUNT
    if (tmp_path / index.FILE).is_file():  # written again
        reads.clear()
        assert entries(tmp_path) == first
        assert reads == []


def test_busy_and_unreadable_runs_are_always_read(runs: list[Run], tmp_path: Path, reads: list[str]) -> None:
    runs[0].set_state("running")
    (runs[1].path / "config.json").write_text("{")
    entries(tmp_path)
    reads.clear()
    entries(tmp_path)
    assert set(reads) == {runs[0].id, runs[1].id}


def test_a_folder_that_cannot_be_written_is_listed(runs: list[Run], tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(path: Path, content: bytes) -> None:
        raise PermissionError(30, "Read-only file system")

    monkeypatch.setattr(index, "write_atomic", read_only)
    assert len(entries(tmp_path)) == COUNT
    assert not (tmp_path / index.FILE).exists()


def test_small_folders_and_recorded_runs_have_no_index(runs: list[Run], tmp_path: Path,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(e.recorded for e in Catalogue(RunStore(tmp_path, recorded=tmp_path)).entries())
    assert not (tmp_path / index.FILE).exists()
    monkeypatch.undo()
    entries(tmp_path)
    assert not (tmp_path / index.FILE).exists()


def test_the_index_is_not_written_for_every_new_run(runs: list[Run], tmp_path: Path) -> None:
    listed = Catalogue(RunStore(tmp_path))
    listed.entries()
    before = (tmp_path / index.FILE).stat().st_ino
    for run in runs[:3]:
        run.set_state("stopped")
        listed.entries()
    assert (tmp_path / index.FILE).stat().st_ino == before
    for run in runs[1:]:
        shutil.rmtree(run.path)
    listed.entries()
    assert (tmp_path / index.FILE).stat().st_ino != before  # mostly about runs that no longer exist


def test_a_table_of_many_seeds_reads_each_configuration_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished_runs(tmp_path, 60)
    found = entries(tmp_path)
    calls = []
    whole, parse = Experiment.configure, Config.from_dict

    def configure(self: Experiment, *given: Any, **settings: Any) -> Config:
        calls.append("configure")
        return whole(self, *given, **settings)

    def from_dict(values: Any) -> Config:
        calls.append("from_dict")
        return parse(values)

    monkeypatch.setattr(Experiment, "configure", configure)
    monkeypatch.setattr(Config, "from_dict", staticmethod(from_dict))
    mnist = experiments.get("mnist")
    measured(mnist, found[:1])
    once = len(calls)
    table = measured(mnist, found)
    assert table["n"].max() == 60
    assert len(calls) <= 2 * once


def test_equal_values_of_other_types_are_told_apart() -> None:
    config = experiments.get("mnist").configure("ace", epochs=1).to_dict()
    assert changed_in(config) == {"epochs": 1}
    assert changed_in(config | {"epochs": True}) == {}  # not a valid configuration
    assert changed_in(config | {"epochs": [1]}) == {}
    assert changed_in(config | {"seed": 7, "device": "cpu"}) == {"epochs": 1}


def test_recovery_looks_only_at_the_given_runs(runs: list[Run], tmp_path: Path, reads: list[str]) -> None:
    dead = {"process": {"pid": 1, "started": "x", "host": "y"}, "heartbeat": 0}
    runs[2].set_state("running", **dead)
    store = RunStore(tmp_path)
    launcher = Launcher(store, tmp_path)
    interrupted = [e.run for e in Catalogue(store).entries() if e.state == "interrupted"]
    reads.clear()
    assert [run.id for run in launcher.recover(interrupted)] == [runs[2].id]
    assert set(reads) == {runs[2].id}
    assert runs[2].stored_state() == "interrupted"
    launcher.close()


def test_files_of_many_runs_are_looked_at_in_turns(runs: list[Run], tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """A replaced file is noticed at once, since its folder changes; one written in place within some listings."""
    looked: list[str] = []
    whole = catalogue_module.stamps_of
    monkeypatch.setattr(catalogue_module, "stamps_of", lambda place: (looked.append(place), whole(place))[1])
    monkeypatch.setattr(catalogue_module, "MANY", COUNT)
    monkeypatch.setattr(catalogue_module, "SETTLED", -1)
    catalogue = Catalogue(RunStore(tmp_path))
    catalogue.entries()
    assert len(looked) == COUNT
    looked.clear()
    for _ in range(catalogue_module.TURNS):
        catalogue.entries()
    assert sorted(looked) == sorted(str(run.path) for run in runs)  # each once
    write_notes(runs[3], "replaced", [])
    assert "replaced" in {entry.notes for entry in catalogue.entries()}
    path = runs[5].path / "status.json"
    path.write_text(path.read_text().replace('"finished"', '"stopped"'))
    for _ in range(catalogue_module.TURNS):
        states = {entry.id: entry.state for entry in catalogue.entries()}
    assert states[runs[5].id] == "stopped"
