"""Faults that generated cases have found, each by itself."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from acenode.bench.synthetic import finished_runs
from acenode.cli import main
from acenode.data.folder import read_npz


def test_a_pipe_is_not_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "mine.csv")
    assert main(["data", "import", str(tmp_path / "mine.csv"), "--preview"]) == 2
    assert "it is not a regular file" in capsys.readouterr().err
    os.mkfifo(tmp_path / "mine.npz")
    with pytest.raises(ValueError, match="it is not a regular file"):
        read_npz(tmp_path / "mine.npz", ["x"])
    assert main(["data", "import", str(tmp_path), "--preview"]) == 2
    assert "is a folder: choose a file" in capsys.readouterr().err


def test_a_result_without_its_best_epoch_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = finished_runs(tmp_path, 1)
    (run.path / "result.json").write_text('{"test": {"accuracy": 0.5}, "validation": NaN}')
    assert main(["show", run.id, "--runs", str(tmp_path)]) == 0
    assert "best epoch           ?" in capsys.readouterr().out
    assert main(["show", run.id, "--runs", str(tmp_path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert shown["result"] == {"test": {"accuracy": 0.5}, "validation": None}


def test_an_argument_with_a_line_break_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["list", "a\nb"])
    assert capsys.readouterr().err.count("\n") == 1
