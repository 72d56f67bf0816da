"""All formats of `export`: where files go, error messages, and complete files or none."""

from __future__ import annotations

from pathlib import Path

import pytest
from export_runs import metrics

from acenode import files
from acenode.errors import UserError
from acenode.export import FORMATS, export
from acenode.runs.store import Run


def test_unknown_format_lists_the_formats(ace) -> None:
    with pytest.raises(UserError) as error:
        export(ace, "pdf")
    assert str(error.value) == "there is no export 'pdf': choose one of csv, html, tensorboard"


@pytest.mark.parametrize("to", FORMATS)
def test_a_run_without_metrics_is_refused(make, to: str) -> None:
    run = make(status={"state": "queued"})
    with pytest.raises(UserError, match="has no metrics yet"):
        export(run, to)
    assert not (run.path / "export").exists()


@pytest.mark.parametrize("to", FORMATS)
def test_a_folder_without_a_run_is_refused(tmp_path: Path, to: str) -> None:
    with pytest.raises(UserError, match="is not a run"):
        export(Run(tmp_path), to)


@pytest.mark.parametrize("to", FORMATS)
def test_out_sets_the_destination(ace, tmp_path: Path, to: str) -> None:
    folder = export(ace, to, tmp_path / "elsewhere")
    assert folder == tmp_path / "elsewhere" / ("ace.html" if to == "html" else "")
    assert not (ace.path / "export").exists()


def test_html_to_a_file_and_into_a_folder(ace, tmp_path: Path) -> None:
    assert export(ace, "html", tmp_path / "mine.html") == tmp_path / "mine.html"
    assert export(ace, "html", tmp_path) == tmp_path / "ace.html"
    assert export(ace, "html") == ace.path / "export" / "report.html"


@pytest.mark.parametrize("to", FORMATS)
def test_an_unwritable_destination_is_refused(ace, tmp_path: Path, to: str) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot be written .* --out"):
        export(ace, to, tmp_path / "file" / "below")


@pytest.mark.parametrize("to", FORMATS)
def test_a_failed_export_leaves_no_files(make, to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make(records=metrics())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(UserError, match="No space left"):
        export(run, to)
    assert [p for p in (run.path / "export").rglob("*") if p.is_file()] == []
