"""All formats of `export`: where files go, error messages, and complete files or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from acenode import files
from acenode.errors import UserError
from acenode.export import FORMATS, export
from acenode.runs.store import Run


def test_unknown_format_lists_the_formats(ace) -> None:
    with pytest.raises(UserError) as error:
        export(ace, "pdf")
    assert str(error.value) == "there is no export 'pdf': choose one of csv, html, tensorboard, attention"


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
def test_out_sets_the_destination(pairs, tmp_path: Path, to: str) -> None:
    folder = export(pairs, to, tmp_path / "elsewhere")
    assert folder == tmp_path / "elsewhere" / {"html": "pairs.html", "attention": "pairs-attention.csv"}.get(to, "")
    assert not (pairs.path / "export").exists()


def test_attention_to_a_file_and_into_a_folder(pairs, tmp_path: Path) -> None:
    assert export(pairs, "attention", tmp_path / "mine.csv") == tmp_path / "mine.csv"
    assert export(pairs, "attention", tmp_path) == tmp_path / "pairs-attention.csv"


def test_html_to_a_file_and_into_a_folder(ace, tmp_path: Path) -> None:
    assert export(ace, "html", tmp_path / "mine.html") == tmp_path / "mine.html"
    assert export(ace, "html", tmp_path) == tmp_path / "ace.html"
    assert export(ace, "html") == ace.path / "export" / "report.html"


@pytest.mark.parametrize("to", FORMATS)
def test_an_unwritable_destination_is_refused(pairs, tmp_path: Path, to: str) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot be written .* --out"):
        export(pairs, to, tmp_path / "file" / "below")


@pytest.mark.parametrize("to", FORMATS)
def test_a_failed_export_leaves_no_files(pairs, to: str, monkeypatch: pytest.MonkeyPatch) -> None:

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(UserError, match="No space left"):
        export(pairs, to)
    assert [p for p in (pairs.path / "export").rglob("*") if p.is_file()] == []
