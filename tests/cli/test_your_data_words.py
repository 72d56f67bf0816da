"""What commands call a user's own set: your data, never a sample."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trained_sets import TINY, import_set

from acenode.cli import main
from acenode.export import export
from acenode.runs.store import RunStore


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("ACENODE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("ACENODE_RECORDED", "")
    monkeypatch.setattr("acenode.experiments.named_report.report", lambda *_: {})  # takes longer than training
    import_set(tmp_path / "data", "wind")
    return tmp_path


def test_an_imported_set_is_your_data(folder: Path, capsys: pytest.CaptureFixture) -> None:
    given = [f"--set={key}={value}" for key, value in TINY.items() if key not in ("epochs", "device")]
    assert main(["train", "wind", "--method", "ace", "--epochs", "1", "--device", "cpu", *given]) == 0
    printed = capsys.readouterr()
    assert "ace on wind (your data), seed 0" in printed.out + printed.err
    assert main(["list"]) == 0
    assert "  your data  " in capsys.readouterr().out
    assert main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["data"] == "sample"  # scripts read it
    assert main(["table", "wind"]) == 0
    out = capsys.readouterr().out
    assert "On your data (Imported from mine.csv; cut into windows of 12 hours):" in out.splitlines()
    assert "sample (" not in out
    assert main(["experiments"]) == 0
    assert "your data: Imported from mine.csv" in capsys.readouterr().out
    (run,) = RunStore(folder / "runs")
    report = export(run, "html", folder / "report.html").read_text()
    assert "<title>ACE on wind (your data)" in report
    assert "Data: your data (Imported from mine.csv; cut into windows of 12 hours)." in report
    assert "Not comparable" not in report.split("<script")[0]
