"""A full disk, a folder that is deleted during training, and a clock that is set back."""

from __future__ import annotations

import errno
import json
import re
import shutil
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from quick_settings import QUICK
from short_runs import AfterEpoch, numbers

from acenode import UserError, experiments, files
from acenode.cli import main
from acenode.config import Config
from acenode.execution.execute import attempt, create, execute
from acenode.runs.catalogue import Catalogue
from acenode.runs.store import Run, RunStore, changed_lines, encode_record
from acenode.runs.writer import RESERVED, Reserve, RunWriter


def config(**given: Any) -> Config:
    return experiments.get("mnist").configure("resnet", **QUICK | {"epochs": 2} | given)


def full(path: Path) -> BinaryIO:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_run_that_cannot_be_created_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(files, "create", full)
    assert main(["train", "mnist", "--method", "resnet", "--runs", str(tmp_path / "runs")]) == 2
    assert "No space left on device): free disk space, or use --runs DIR" in capsys.readouterr().err
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_disk_that_fills_up_leaves_the_reason_and_a_run_to_resume(tmp_path: Path,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    store = RunStore(tmp_path / "runs")
    reference, run = (create(store, config()) for _ in range(2))
    execute(reference, tmp_path)
    real = files.create

    def fills_up(path: Path) -> BinaryIO:
        return full(path) if (run.path / "checkpoints" / "last.pt").exists() else real(path)

    monkeypatch.setattr(files, "create", fills_up)
    outcome = execute(run, tmp_path)
    words = "no room for the run's files (No space left on device): free disk space, then resume the run"
    assert (outcome.state, outcome.error) == ("failed", words)
    assert (run.status()["state"], run.status()["error"]) == ("failed", words)
    assert list(run.path.rglob(".*.part")) == []
    (entry,) = (e for e in Catalogue(store).entries() if e.id == run.id)
    assert (entry.state, entry.error) == ("failed", words)
    monkeypatch.undo()
    assert execute(run, tmp_path).state == "finished"
    assert numbers(run) == numbers(reference)
    assert list(run.path.rglob(".*.part")) == []


def test_the_reserve_is_disk_space_that_is_used_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "status.json"
    target.write_bytes(b"old")
    reserve = Reserve(target)
    reserve.make()
    assert reserve.path.stat().st_blocks * 512 >= RESERVED  # space, not a hole
    monkeypatch.setattr(files, "create", full)
    reserve.use(b"last")
    assert [p.name for p in tmp_path.iterdir()] == ["status.json"]
    assert target.read_bytes() == b"last"
    with pytest.raises(FileNotFoundError):
        reserve.use(b"again")


@pytest.mark.parametrize("leave", [(), ("lock",), ("lock", "log.txt")])
def test_a_run_deleted_during_training_stays_deleted(leave: tuple[str, ...], tmp_path: Path) -> None:
    run = create(RunStore(tmp_path / "runs"), config())

    def delete(status: dict[str, Any]) -> None:
        if status["epoch"] == 1 and (run.path / "config.json").exists():
            for path in run.path.iterdir():
                if path.name not in leave:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            if not leave:
                run.path.rmdir()

    with pytest.raises(UserError, match=f"{run.id} was deleted while it was trained"):
        execute(run, tmp_path, progress=delete)
    assert run.path.exists() == bool(leave)
    assert not leave or sorted(p.name for p in run.path.iterdir()) == sorted(leave)


def test_a_deleted_run_does_not_come_back_with_its_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = create(RunStore(tmp_path / "runs"), config())
    status = run.status()
    shutil.rmtree(run.path)
    assert attempt(run, tmp_path, threading.Event()) is None
    monkeypatch.setattr(Run, "_read", lambda self, name: dict(status))  # deleted after the status was read
    with pytest.raises(FileNotFoundError):
        run.set_state("stopped")
    assert not run.path.exists()


def test_a_clock_that_is_set_back_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RunStore(tmp_path / "runs")
    now = [time.time()]

    def back() -> float:
        now[0] -= 3600.0
        return now[0]

    run = create(store, config())
    monkeypatch.setattr(time, "time", back)
    writer = RunWriter(run)
    monkeypatch.setattr("acenode.runs.writer.HEARTBEAT_SECONDS", -1.0)
    writer.status("running")
    for progress in (0.1, 0.2):
        writer.heartbeat(progress=progress)
        assert run.status()["progress"] == progress
    assert execute(run, tmp_path).state == "finished"
    (entry,) = Catalogue(store).entries()
    assert (entry.state, entry.other_seconds) == ("finished", None)


# Checksums of metrics.jsonl -------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a run with ten steps."""
    made = create(RunStore(tmp_path / "runs"), config())
    RunWriter(made).append([{"kind": "step", "step": i, "L_h": i / 8, "note": '"}'} for i in range(10)])
    return made


def test_every_line_has_a_checksum_that_readers_do_not_see(run: Run) -> None:
    lines = (run.path / "metrics.jsonl").read_bytes()
    assert all(re.fullmatch(r"[0-9a-f]{8}", json.loads(line)["crc"]) for line in lines.splitlines())
    assert run.metrics()[0] == [{"kind": "step", "step": i, "L_h": i / 8, "note": '"}'} for i in range(10)]
    assert run.changed_metrics() == ""


@pytest.mark.parametrize(("old", "new"), [(b"0.375", b"0.875"), (b'"step": 3', b'"step": 2'), (b"L_h", b"L_g"),
                                          (b'"crc"', b'"crd"')])
def test_any_changed_byte_is_found(old: bytes, new: bytes, run: Run) -> None:
    lines = (run.path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    assert changed_lines(b"".join([*lines[:3], lines[3].replace(old, new), *lines[4:]])) == [4]


def test_a_changed_digit_is_reported_and_tolerated(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    path = run.path / "metrics.jsonl"
    path.write_bytes(path.read_bytes().replace(b"0.375", b"0.875"))
    assert [r["L_h"] for r in run.metrics()[0]][3:5] == [0.875, 0.5]
    assert run.changed_metrics().startswith("metrics.jsonl: line 4 was changed after training wrote it")
    assert main(["show", run.id, "--runs", str(run.path.parent)]) == 0
    assert "line 4 was changed" in capsys.readouterr().out
    assert main(["show", run.id, "--runs", str(run.path.parent), "--json"]) == 0
    assert "line 4 was changed" in json.loads(capsys.readouterr().out)["warning"]


def test_lines_without_checksums_are_not_reported(run: Run) -> None:
    path = run.path / "metrics.jsonl"
    old, new = b'{"kind": "step", "step": 0, "L_h": 1.0}\n' * 3, path.read_bytes()
    for content in (b"", old, old + new, old + new + new[:20]):  # resumed by this version; being written
        path.write_bytes(content)
        assert run.changed_metrics() == ""
    path.unlink()
    assert run.changed_metrics() == ""


def test_a_resumed_run_logs_changed_lines_once(tmp_path: Path) -> None:
    made = create(RunStore(tmp_path), config())
    assert execute(made, tmp_path, stop=AfterEpoch(made)).state == "stopped"  # type: ignore[arg-type]
    path = made.path / "metrics.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"epoch": 0', b'"epoch": 9', 1))
    assert execute(made, tmp_path).state == "finished"
    assert (made.path / "log.txt").read_text().count("metrics.jsonl: line 1 was changed") == 1


def test_many_changed_lines_are_summed_up(run: Run) -> None:
    path = run.path / "metrics.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"step": 7', b'"step": 8').replace(b'"step": 2', b'"step": 3'))
    assert run.changed_metrics().startswith("metrics.jsonl: 2 lines (3, 8) were changed after training wrote them")
    path.write_bytes(path.read_bytes().replace(b"step", b"stop"))
    assert "10 lines (1, 2, 3, 4, 5 …) were changed" in run.changed_metrics()
    assert changed_lines(encode_record({"step": 1}) + b"\xff\n" + encode_record({"step": 2})) == [2]
