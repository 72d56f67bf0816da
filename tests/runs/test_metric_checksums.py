"""Checksums of metrics.jsonl: a changed digit is reported and tolerated, files without checksums are read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from quick_settings import QUICK

from acenode import experiments
from acenode.cli import main
from acenode.execution.execute import create, execute
from acenode.runs.metric_lines import changed_lines, describe, encode, without_checksums
from acenode.runs.recorded import recorded_runs
from acenode.runs.store import Run, RunStore
from acenode.runs.writer import RunWriter


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a run with ten steps."""
    made = create(RunStore(tmp_path / "runs"), experiments.get("mnist").configure("resnet", **QUICK | {"epochs": 2}))
    RunWriter(made).append([{"kind": "step", "step": i, "L_h": i / 8, "note": '"}'} for i in range(10)])
    return made


def flip(run: Run, old: bytes, new: bytes) -> None:
    path = run.path / "metrics.jsonl"
    assert old in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(old, new, 1))


def test_every_line_has_a_checksum_that_readers_do_not_see(run: Run) -> None:
    lines = (run.path / "metrics.jsonl").read_bytes()
    assert all(re.fullmatch(r"[0-9a-f]{8}", json.loads(line)["crc"]) for line in lines.splitlines())
    assert run.metrics()[0] == [{"kind": "step", "step": i, "L_h": i / 8, "note": '"}'} for i in range(10)]
    assert [json.loads(line) for line in without_checksums(lines).splitlines()] == run.metrics()[0]
    assert run.changed_metrics() == ""


@pytest.mark.parametrize(("old", "new"), [(b"0.375", b"0.875"), (b'"step": 3', b'"step": 2'), (b"L_h", b"L_g"),
                                          (b'"crc"', b'"crd"')])
def test_any_changed_byte_is_found(old: bytes, new: bytes, run: Run) -> None:
    lines = (run.path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    assert changed_lines(b"".join([*lines[:3], lines[3].replace(old, new), *lines[4:]])) == [4]


def test_a_changed_digit_is_reported_and_tolerated(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    flip(run, b"0.375", b"0.875")
    assert [r["L_h"] for r in run.metrics()[0]][3:5] == [0.875, 0.5]
    assert run.changed_metrics().startswith("metrics.jsonl: line 4 was changed after training wrote it")
    assert main(["show", run.id, "--runs", str(run.path.parent)]) == 0
    assert "line 4 was changed" in capsys.readouterr().out
    assert main(["show", run.id, "--runs", str(run.path.parent), "--json"]) == 0
    assert "line 4 was changed" in json.loads(capsys.readouterr().out)["warning"]


def test_lines_without_checksums_are_not_reported(run: Run) -> None:
    path = run.path / "metrics.jsonl"
    new = path.read_bytes()
    path.write_bytes(b'{"kind": "step", "step": 0, "L_h": 1.0}\n' * 3)
    assert run.changed_metrics() == ""
    path.write_bytes(path.read_bytes() + new)  # resumed by this version
    assert run.changed_metrics() == ""
    path.write_bytes(path.read_bytes() + new[:20])  # being written
    assert run.changed_metrics() == ""
    path.unlink()
    assert run.changed_metrics() == ""


def test_a_resumed_run_logs_changed_lines_once(tmp_path: Path) -> None:
    made = create(RunStore(tmp_path), experiments.get("mnist").configure("resnet", **QUICK | {"epochs": 2}))

    class AfterEpoch:
        def is_set(self) -> bool:
            return any(r["kind"] == "epoch" for r in made.metrics()[0])

    assert execute(made, tmp_path, stop=AfterEpoch()).state == "stopped"  # type: ignore[arg-type]
    flip(made, b'"epoch": 0', b'"epoch": 9')
    assert execute(made, tmp_path).state == "finished"
    assert (made.path / "log.txt").read_text().count("metrics.jsonl: line 1 was changed") == 1
    assert made.changed_metrics() != ""


def test_many_changed_lines_are_summed_up() -> None:
    assert describe([]) == ""
    assert describe([2, 7]).startswith("metrics.jsonl: 2 lines (2, 7) were changed after training wrote them")
    assert "12 lines (1, 2, 3, 4, 5 …) were changed" in describe(range(1, 13))
    assert changed_lines(encode({"step": 1}) + b"\xff\n" + encode({"step": 2})) == [2]


def test_recorded_runs_have_no_changed_lines() -> None:
    folder = recorded_runs()
    assert folder is not None
    for run in list(RunStore(folder, recorded=folder))[::20]:
        assert run.metrics()[0]
        assert run.changed_metrics() == ""
