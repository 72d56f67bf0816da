"""Generated cases of bad input, faults that they have found, and a short soak; `make fuzz` and `make soak` run long."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import fuzz

from acenode.bench.browser import free_port
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


# A few hundred generated cases of bad input; `make fuzz` runs thousands -----------------------------------------------


@pytest.mark.parametrize(("kind", "count"), [("run folders", 40), ("command lines", 100), ("addresses", 80),
                                             ("data files", 80)])
def test_nothing_fails_hangs_or_shows_nothing(kind: str, count: int) -> None:
    assert fuzz.run(kind, range(count), seed=1) == []


def test_faults_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Faulty:
        def __init__(self, folder: Path) -> None:
            self.errors = iter([KeyError("x"), fuzz.HangError()])

        def case(self, rng: object) -> None:
            raise next(self.errors)

        def close(self) -> None:
            pass

    monkeypatch.setitem(fuzz.KINDS, "faulty", Faulty)
    assert [line.split(": ")[1] for line in fuzz.run("faulty", range(2))] == ["KeyError", "HangError"]


@pytest.mark.long
def test_a_short_soak_loses_nothing() -> None:
    """So that the long one (`make soak`) works whenever it is wanted."""
    command = [sys.executable, str(Path(__file__).parent / "soak.py"), "--minutes", "0.3", "--port", str(free_port())]
    found = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    counts = {name.strip(): int(count) for name, count in re.findall(r"^(\w[\w ]+?) +(\d+)$", found.stdout, re.M)}
    assert found.returncode == 0, found.stdout + found.stderr
    assert counts["runs lost"] == counts["numbers changed"] == counts["unreadable folders"] == 0
    assert counts["runs"] > 0
    assert counts["requests"] > 0
