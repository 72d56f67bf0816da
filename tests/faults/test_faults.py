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


# A few hundred generated cases of bad input; `make fuzz` runs thousands -----------------------------------------------



@pytest.mark.parametrize(("kind", "count"), [("run folders", 40), ("command lines", 100), ("addresses", 80),
                                             ("data files", 80)])
def test_nothing_fails_hangs_or_shows_nothing(kind: str, count: int) -> None:
    found = fuzz.run(kind, range(count), seed=1)
    assert (found.cases, found.tracebacks, found.hangs, found.empty) == (count, 0, 0, 0), "\n".join(found.found)


def test_a_fault_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Faulty:
        name = "faulty"

        def __init__(self, folder: Path) -> None:
            pass

        def case(self, rng: object) -> None:
            raise next(errors)

        def close(self) -> None:
            pass

    errors = iter([KeyError("x"), fuzz.EmptyPageError("page"), fuzz.HangError()])
    monkeypatch.setitem(fuzz.KINDS, "faulty", Faulty)
    found = fuzz.run("faulty", range(3))
    assert (found.cases, found.tracebacks, found.hangs, found.empty) == (3, 1, 1, 1)
    assert len(found.found) == 3


# A short soak, so that the long one (`make soak`) works whenever it is wanted -----------------------------------------


SOAK = Path(__file__).parent / "soak.py"


@pytest.mark.long
def test_a_short_soak_loses_nothing() -> None:
    command = [sys.executable, str(SOAK), "--minutes", "0.3", "--port", str(free_port())]
    found = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    counts = {name.strip(): int(count) for name, count in re.findall(r"^(\w[\w ]+?) +(\d+)$", found.stdout, re.M)}
    assert found.returncode == 0, found.stdout + found.stderr
    assert counts["runs lost"] == counts["numbers changed"] == counts["unreadable folders"] == 0
    assert counts["runs"] > 0
    assert counts["requests"] > 0
