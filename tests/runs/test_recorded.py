"""The recorded runs that come with the project: they open, print their tables, export, and are never written to."""

from __future__ import annotations

from pathlib import Path

import pytest

from acenode.cli import main
from acenode.errors import UserError
from acenode.results.player_data import describe
from acenode.runs.catalogue import Catalogue
from acenode.runs.recorded import recorded_runs
from acenode.runs.store import RunStore


def folder() -> Path:
    found = recorded_runs()
    assert found is not None
    return found


def files() -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder().rglob("*") if path.is_file()}


def test_every_recorded_run_is_finished_and_has_a_result() -> None:
    entries = Catalogue(RunStore(folder())).entries()
    assert len(entries) >= 39
    assert {e.state for e in entries} == {"finished"}
    for run in RunStore(folder()):
        assert run.result() is not None
        assert run.metrics()[0]
        assert run.description()["environment"]["device"]


def test_the_folder_of_recorded_runs_is_not_taken_for_a_run() -> None:
    """In the repository it lies in the default folder of runs, where it must be neither listed nor deleted."""
    store = RunStore(folder().parent)
    assert folder().name not in {run.id for run in store}
    assert store.find(folder().name) is None
    for access in (store.open, store.folder):
        with pytest.raises(UserError, match="there is no"):
            access(folder().name)


def test_recorded_runs_are_small() -> None:
    assert sum(path.stat().st_size for path in files()) < 40e6


def test_the_player_opens_recorded_ace_runs() -> None:
    for name in ("mnist-ace", "physionet-ace", "ushcn-ace"):
        run = next(r for r in RunStore(folder()) if r.id.startswith(name) and r.snapshots())
        assert describe(run)


def test_tables_and_exports_read_recorded_runs_without_writing_to_them(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    before = files()
    assert main(["table", "physionet", "--runs", "recorded"]) == 0
    assert "0.836 ± 0.008  3" in capsys.readouterr().out
    run = next(r.id for r in RunStore(folder()) if r.id.startswith("ushcn-ace"))
    assert main(["show", run, "--runs", "recorded"]) == 0
    assert main(["export", run, "--to", "html", "--runs", "recorded"]) == 0
    assert (tmp_path / f"{run}-html.html").exists()
    assert files() == before


@pytest.mark.parametrize("words", [["train", "mnist", "--method", "ace"], ["resume", "mnist"], ["stop", "mnist"]])
def test_recorded_runs_cannot_be_trained(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--runs", "recorded"]) == 2
    assert "recorded runs can only be read" in capsys.readouterr().err
