"""A run directory is copied while it is written: in order, complete, and also when metrics are cut."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from acenode import experiments
from acenode.execution.cluster.changed_files import ChangedFiles, FileChange, all_files, apply_changes
from acenode.execution.execute import create
from acenode.files import write_atomic
from acenode.runs.store import RunStore
from acenode.runs.writer import RunWriter


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "snapshots").mkdir()
    return here, there


def send(changed: ChangedFiles, there: Path) -> list[str]:
    """Apply what has changed and return the names."""
    changes = changed.collect()
    assert apply_changes(there, changes)
    changed.received()
    return [change.name for change in changes]


def test_appended_lines_are_sent_once_and_whole_files_when_they_are_replaced(folders: tuple[Path, Path]) -> None:
    here, there = folders
    changed = ChangedFiles(here, sent=False)
    (here / "metrics.jsonl").write_bytes(b"one\n")
    write_atomic(here / "status.json", b"{}")
    assert send(changed, there) == ["metrics.jsonl", "status.json"]
    with open(here / "metrics.jsonl", "ab") as file:
        file.write(b"two\n")
    (change,) = changed.collect()
    assert (change.name, change.content, change.offset) == ("metrics.jsonl", b"two\n", 4)
    assert send(changed, there) == ["metrics.jsonl"]
    assert send(changed, there) == []
    write_atomic(here / "status.json", b"[]")
    assert send(changed, there) == ["status.json"]
    assert (there / "metrics.jsonl").read_bytes() == b"one\ntwo\n"
    assert (there / "status.json").read_bytes() == b"[]"


def test_what_a_file_refers_to_is_written_before_it(folders: tuple[Path, Path]) -> None:
    here, _ = folders
    for name in ("status.json", "checkpoints/last.pt", "metrics.jsonl", "result.json", "snapshots/epoch-00001.npz"):
        write_atomic(here / name, b"x")
    names = [change.name for change in all_files(here)]
    assert names == ["metrics.jsonl", "snapshots/epoch-00001.npz", "checkpoints/last.pt", "result.json", "status.json"]


def test_metrics_that_were_cut_and_have_grown_again_are_sent_in_full(folders: tuple[Path, Path]) -> None:
    here, there = folders
    run = create(RunStore(here), experiments.get("mnist").configure("odenet"))
    writer = RunWriter(run)
    writer.append([{"step": i} for i in range(4)])
    size = (run.path / "metrics.jsonl").stat().st_size
    writer.append([{"step": 4}])
    changed = ChangedFiles(run.path, sent=False)
    send(changed, there)
    writer.truncate_metrics(size)
    writer.append([{"step": 40}, {"step": 50}])  # now longer than what was sent
    send(changed, there)
    assert (there / "metrics.jsonl").read_bytes() == (run.path / "metrics.jsonl").read_bytes()


def test_files_that_are_the_machine_s_or_the_user_s_own_are_not_sent(folders: tuple[Path, Path]) -> None:
    here, _ = folders
    for name in ("lock", "stop", "notes.json", ".status.json.12.part", ".shared-1", "snapshots/.x.npz"):
        (here / name).write_bytes(b"x")
    assert all_files(here) == []


def test_changes_that_were_not_received_are_sent_again(folders: tuple[Path, Path]) -> None:
    here, there = folders
    changed = ChangedFiles(here, sent=False)
    (here / "log.txt").write_bytes(b"one\n")
    changed.collect()  # lost
    assert send(changed, there) == ["log.txt"]


def test_a_copy_that_starts_complete_sends_only_what_is_new(folders: tuple[Path, Path]) -> None:
    here, there = folders
    (here / "log.txt").write_bytes(b"one\n")
    assert send(ChangedFiles(here, sent=True), there) == []


def test_a_receiver_without_the_beginning_asks_for_all(folders: tuple[Path, Path]) -> None:
    _, there = folders
    assert not apply_changes(there, [FileChange("metrics.jsonl", b"two\n", 4)])
    assert not os.listdir(there / "snapshots")


@pytest.mark.parametrize("name", ["../x.json", "/etc/passwd", "notes.json", "snapshots/../../x.npz", "lock"])
def test_other_names_are_refused(folders: tuple[Path, Path], name: str) -> None:
    with pytest.raises(ValueError, match="not a file of a run"):
        apply_changes(folders[1], [FileChange(name, b"x")])
