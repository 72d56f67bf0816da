"""Imported sets in the data folder: whole or not at all, listed, renamed, deleted; and the commands for that."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from importing_tables import labelled, table, wide

from acenode.cli import main
from acenode.data.importing.build import ImportedTable, ImportRequest, import_table
from acenode.data.importing.store import ImportedSets
from acenode.data.named_set import NamedSet
from acenode.errors import UserError


@pytest.fixture
def sets(tmp_path: Path) -> ImportedSets:
    return ImportedSets(tmp_path / "data", lambda: frozenset({"mnist"}))


def imported(name: str = "wells") -> ImportedTable:
    return import_table(table(labelled()), ImportRequest(name))


def test_a_set_is_written_and_read(sets: ImportedSets) -> None:
    made = imported()
    assert sets.write(made) == sets.folder / "wells"
    assert sorted(path.name for path in (sets.folder / "wells").iterdir()) == ["about.json", "import.json", "set.npz"]
    loaded = sets.load("wells")
    assert loaded.variables == ("a", "b")
    assert np.array_equal(loaded.series[3].x, made.set.series[3].x)
    assert sets.details("wells").columns == made.columns
    assert [stored.name for stored in sets.list()] == ["wells"]


def test_the_file_is_kept_only_if_asked(sets: ImportedSets) -> None:
    sets.write(imported(), table(labelled()))
    assert (sets.folder / "wells" / "original.csv").read_text() == labelled()


@pytest.mark.parametrize("fails", ["save", "rename"])
def test_nothing_is_half_imported(sets: ImportedSets, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*((NamedSet, "save", full) if fails == "save" else (Path, "rename", full)))
    with pytest.raises(UserError, match="no space left"):
        sets.write(imported())
    assert list(sets.folder.glob("*")) == []
    assert sets.names() == []


def test_what_a_killed_process_left_is_removed(sets: ImportedSets) -> None:
    (sets.folder / ".wells.1234.part").mkdir(parents=True)
    sets.write(imported())
    assert os.listdir(sets.folder) == ["wells"]


@pytest.mark.parametrize(("name", "words"), [("mnist", "experiment"), ("wells", "already"), ("../up", "cannot name"),
                                             ("Capital", "cannot name")])
def test_names_that_cannot_be_used(sets: ImportedSets, name: str, words: str) -> None:
    sets.write(imported())
    with pytest.raises(UserError, match=words):
        sets.check_free(name)


def test_rename_and_delete(sets: ImportedSets) -> None:
    sets.write(imported())
    sets.rename("wells", "springs")
    assert sets.names() == ["springs"]
    assert (sets.load("springs").name, sets.load("springs").title) == ("springs", "springs")
    with pytest.raises(UserError, match="no imported set 'wells': choose one of springs"):
        sets.rename("wells", "x")
    sets.delete("springs")
    assert os.listdir(sets.folder) == []
    with pytest.raises(UserError, match="no imported set"):
        sets.delete("springs")


def test_a_damaged_set_is_listed_with_the_reason(sets: ImportedSets) -> None:
    (sets.write(imported()) / "set.npz").write_bytes(b"junk")
    (stored,) = sets.list()
    assert stored.set is None
    assert "import it again" in stored.error
    sets.delete("wells")
    assert sets.names() == []


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path / "data"))
    file = tmp_path / "park.csv"
    file.write_text(wide(480))
    assert main(["data", "import", str(file), "--preview", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["series"] > 20
    assert not (tmp_path / "data").exists()
    assert main(["data", "import", str(file), "--name", "park", "--window", "12", "--given", "8", "--task", "forecast",
                 "--time", "time", "--id", "none", "--variables", "wind", "power"]) == 0
    out = capsys.readouterr().out
    assert "the first 8 hours of each are given" in out
    assert "acenode train park --method ace" in out
    assert main(["data", "list", "--json"]) == 0
    listed = {state["name"]: state for state in json.loads(capsys.readouterr().out)}
    assert listed["park"]["state"] == "ready"
    assert "mnist" in listed
    assert main(["data", "check", "park"]) == 0
    assert main(["data", "rename", "park", "farm"]) == 0
    assert main(["data", "delete", "farm"]) == 2
    assert "--yes" in capsys.readouterr().err
    assert main(["data", "delete", "farm", "--yes"]) == 0
    assert not list((tmp_path / "data" / "imported").iterdir())


def test_an_import_names_the_columns_that_it_ignores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                     capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path / "data"))
    file = tmp_path / "ward.csv"
    file.write_text(labelled().replace("label", "state"))
    assert main(["data", "import", str(file), "--preview"]) == 0
    assert "ignored: state (--label NAME makes one the label)" in capsys.readouterr().out.splitlines()
    assert main(["data", "import", str(file), "--preview", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ignored"] == ["state"]
    assert main(["data", "import", str(file), "--preview", "--label", "state"]) == 0
    out = capsys.readouterr().out
    assert "label: state" in out
    assert "ignored" not in out


def test_a_preview_checks_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                   capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path / "data"))
    file = tmp_path / "ward.csv"
    file.write_text(labelled())
    assert main(["data", "import", str(file), "--preview", "--name", "mnist"]) == 2
    assert "'mnist' is the name of an experiment" in capsys.readouterr().err
    assert main(["data", "import", str(file), "--preview", "--name", "ward"]) == 0
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("arguments", [("list", "--window", "3"), ("get", "mnist", "--yes"), ("check", "mnist", "more"),
                                       ("import", "x.csv", "--seed", "3"), ("import",), ("rename", "a"), ("delete",),
                                       ("import", "x.csv")])
def test_options_that_do_not_apply_get_a_sentence(arguments: tuple[str, ...], capsys: pytest.CaptureFixture) -> None:
    assert main(["data", *arguments]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
