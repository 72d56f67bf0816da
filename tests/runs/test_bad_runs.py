"""One bad run hurts nobody: it becomes one unreadable entry with a reason, which can be deleted."""

from __future__ import annotations

import gzip
import json
import os
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acenode import UserError, experiments
from acenode.cli import main
from acenode.execution import execute as execution
from acenode.execution.execute import create, execute
from acenode.execution.launcher import Launcher
from acenode.files import MAX_JSON, open_regular, parse_json
from acenode.runs import store as store_module
from acenode.runs.catalogue import Catalogue
from acenode.runs.entry import UNREADABLE
from acenode.runs.store import Run, RunStore
from acenode.training.task import Metric

FILES: dict[str, tuple[str, Any]] = {
    "null method": ("config.json", lambda d: d["config"].update(method=None)),
    "late creation": ("config.json", lambda d: d.update(created=1e308)),
    "negative creation": ("config.json", lambda d: d.update(created=-1e12)),
    "huge creation": ("config.json", lambda d: d.update(created=10**400)),
    "huge parameters": ("config.json", lambda d: d.update(params=10**400)),
    "surrogate": ("config.json", lambda d: d.update(data_note="\ud800")),
    "NaN progress": ("status.json", lambda d: d.update(progress=float("nan"))),
    "huge heartbeat": ("status.json", lambda d: d.update(heartbeat=10**400)),
    "list as state": ("status.json", lambda d: d.update(state=["queued"])),
}


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """Return a folder with a good run."""
    made = RunStore(tmp_path / "runs")
    create(made, experiments.get("mnist").configure("resnet"))
    return made


def bad_run(store: RunStore, kind: str) -> Run:
    run = create(store, experiments.get("mnist").configure("odenet"))
    if kind == "nested":
        (run.path / "config.json").write_bytes(b"[" * 5000 + b"]" * 5000)
    elif kind == "pipe":
        (run.path / "status.json").unlink()
        os.mkfifo(run.path / "status.json")
    elif kind == "folder":
        (run.path / "status.json").unlink()
        (run.path / "status.json").mkdir()
    elif kind == "large":
        with open(run.path / "status.json", "r+b") as file:
            file.truncate(MAX_JSON + 10)
    else:
        name, change = FILES[kind]
        values = json.loads((run.path / name).read_text())
        change(values)
        (run.path / name).write_text(json.dumps(values))
    return run


@pytest.mark.parametrize("kind", [*FILES, "nested", "pipe", "folder", "large"])
def test_a_bad_run_is_one_unreadable_entry(kind: str, store: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    run = bad_run(store, kind)
    found = {e.id: e for e in Catalogue(store).entries()}
    assert found.pop(run.id).state == UNREADABLE
    assert [e.state for e in found.values()] == ["queued"]
    reason = Catalogue(store).entry(run.id).error  # type: ignore[union-attr]
    assert reason
    assert "\n" not in reason
    assert main(["list", "--runs", str(store.root)]) == 0
    assert re.search(rf"{run.id}\s+unreadable", capsys.readouterr().out)
    assert main(["show", run.id, "--runs", str(store.root)]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err
    launcher = Launcher(store, store.root)
    launcher.recover()
    launcher.close()
    store.folder(run.id).delete()
    assert len(Catalogue(store).entries()) == 1


def test_a_huge_process_number_is_not_alive(store: RunStore) -> None:
    run = next(iter(store))
    status = run.status()
    (run.path / "status.json").write_text(json.dumps(status | {
        "state": "running", "process": status["process"] | {"pid": 10**400}, "heartbeat": 0}))
    assert run.status()["state"] == "interrupted"


def test_damaged_lines_of_the_curves_are_left_out(store: RunStore) -> None:
    run = next(iter(store))
    lines = ['{"step": 0, "L_h": 1.0}', '{"step": 1, "L_h": NaN}', '{"step": 1e5, "note": "\\ud800"}',
             f'{{"step": 1{"0" * 400}}}', "[" * 5000 + "]" * 5000, '{"step": 2, "L_h": null}']
    (run.path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert run.metrics()[0] == [{"step": 0, "L_h": 1.0}, {"step": 1, "L_h": None}, {"step": 2, "L_h": None}]


def test_files_that_unpack_to_too_much_are_not_read(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    run = next(iter(store))
    (run.path / "metrics.jsonl").unlink(missing_ok=True)
    (run.path / "metrics.jsonl.gz").write_bytes(gzip.compress(b'{"step": 0}\n' * 1000))
    assert len(run.metrics()[0]) == 1000
    monkeypatch.setattr(store_module, "MAX_METRICS", 10_000)
    assert run.metrics() == ([], 0)
    with pytest.raises(OSError, match="unpacks to more than"):
        run.open_metrics()
    path = run.path / "large.npz"
    np.savez_compressed(path, x=np.zeros(store_module.MAX_SNAPSHOT // 2, np.uint8),
                        y=np.zeros(store_module.MAX_SNAPSHOT // 2, np.uint8))
    assert path.stat().st_size < 1_000_000
    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", lambda *_: pytest.fail("it was read"))
    with pytest.raises(UserError, match="it unpacks to 64 MB, more than 64"):
        run.snapshot(path)


@pytest.mark.parametrize("name", ["metrics.jsonl", "snapshots/epoch-00000.npz", "result.json", "notes.json"])
def test_a_pipe_in_place_of_a_file_blocks_nobody(name: str, store: RunStore) -> None:
    run = next(iter(store))
    (run.path / name).parent.mkdir(exist_ok=True)
    os.mkfifo(run.path / name)

    def read() -> None:
        with pytest.raises((UserError, OSError)):
            {"metrics.jsonl": run.open_metrics, "result.json": run.result,
             "notes.json": lambda: open_regular(run.path / name)}.get(
                name, lambda: run.snapshot(run.path / name))()  # type: ignore[operator]
        assert name != "metrics.jsonl" or run.metrics() == ([], 0)
        done.append(Catalogue(store).entries())

    done: list[Any] = []
    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(20)
    assert len(done) == 1


def test_json_is_read_strictly() -> None:
    assert parse_json(b'{"a": [1, "\\ud83d\\ude00"]}') == {"a": [1, "\U0001f600"]}
    assert parse_json(b"[NaN, -Infinity]", only_numbers=True) == [None, None]
    for wrong in (b"[" * 100_000, b'"\\udead"', b"\xff", b""):
        with pytest.raises(ValueError, match=".+"):
            parse_json(wrong)


def test_permission_denied_does_not_ask_to_delete_the_run(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("acenode.runs.store.read_json", denied)
    error = Catalogue(store).entries()[0].error or ""
    assert "may not be read (permission denied): change its permissions" in error
    assert "delete" not in error


def test_a_folder_that_cannot_be_read_is_not_an_empty_one(store: RunStore, monkeypatch: pytest.MonkeyPatch,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    def denied(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", denied)
    assert main(["list", "--runs", str(store.root)]) == 2
    caught = capsys.readouterr()
    assert "cannot be read (Permission denied): change its permissions" in caught.err
    assert "no runs" not in caught.out



def test_a_run_whose_test_is_nan_fails_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                capsys: pytest.CaptureFixture[str]) -> None:
    real = execution._test

    def nan(trainer: Any, task: Any) -> dict[str, Any]:
        return real(trainer, task) | {"test": {"mse": 0.5, "negll": float("nan")}}

    monkeypatch.setattr(execution, "_test", nan)
    store = RunStore(tmp_path)
    config = experiments.get("ushcn").configure("gru-simple", epochs=1)
    outcome = execute(create(store, config), tmp_path)
    assert outcome.state == "failed"
    rate = config.get("learning_rate")
    assert outcome.error == f"the test negll is nan, not a number: lower the learning rate (now {rate:g})"
    assert outcome.run.result() is None
    assert main(["show", outcome.run.id, "--runs", str(tmp_path)]) == 0
    (outcome.run.path / "result.json").write_text(json.dumps(  # as older versions wrote it
        {"test": {"mse": 0.5, "negll": None}, "test_last": {}, "metric": "mse", "best_epoch": 1}))
    assert main(["show", outcome.run.id, "--runs", str(tmp_path)]) == 0
    assert "not a number" in capsys.readouterr().out


def test_out_of_memory_while_loading_does_not_blame_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(*given: object) -> None:
        raise MemoryError("Unable to allocate 44 GiB")

    config = experiments.get("mnist").configure("resnet", epochs=1)
    run = create(RunStore(tmp_path), config)
    broken = type("Broken", (), {"make": staticmethod(too_large), "metric": Metric("accuracy")})
    monkeypatch.setattr(experiments, "get", lambda name: broken)
    error = execute(run, tmp_path).error or ""
    assert error.startswith("out of memory while the data was loaded: end other programs")
    assert "batch" not in error


def test_recovery_goes_on_after_a_run_that_cannot_be_written(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [*store, create(store, experiments.get("mnist").configure("resnet"))]
    for run in runs:
        status = run.status()
        (run.path / "status.json").write_text(json.dumps(status | {"state": "running", "heartbeat": 0,
                                                                   "process": {"pid": 1, "host": "y"}}))
    real = Run.set_state

    def read_only(self: Run, state: str, **values: Any) -> None:
        if self.id == sorted(r.id for r in runs)[0]:
            raise PermissionError(30, "Read-only file system")
        real(self, state, **values)

    monkeypatch.setattr(Run, "set_state", read_only)
    launcher = Launcher(store, store.root)
    assert [run.id for run in launcher.recover()] == sorted(r.id for r in runs)[1:]
    launcher.close()
