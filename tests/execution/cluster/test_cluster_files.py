"""A run directory is copied while it is written: in order, complete, and also when metrics are cut."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from acenode import experiments
from acenode.errors import UserError
from acenode.execution.cluster.files import (
    ChangedFiles,
    FileChange,
    FolderKeeper,
    apply_changes,
    own_folder,
    sees,
    shared_probe,
)
from acenode.execution.execute import create
from acenode.files import write_atomic
from acenode.runs.process import try_lock
from acenode.runs.store import Run, RunStore
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


def test_what_a_file_refers_to_is_written_before_it_and_files_of_the_machine_or_user_are_not_sent(
        folders: tuple[Path, Path]) -> None:
    here, _ = folders
    for name in ("status.json", "checkpoints/last.pt", "metrics.jsonl", "result.json", "snapshots/epoch-00001.npz",
                 "lock", "stop", "notes.json", ".status.json.12.part", ".shared-1", "snapshots/.x.npz"):
        write_atomic(here / name, b"x")
    names = [change.name for change in ChangedFiles(here, sent=False).collect()]
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


def test_a_receiver_without_the_beginning_asks_for_all(folders: tuple[Path, Path]) -> None:
    assert not apply_changes(folders[1], [FileChange("metrics.jsonl", b"two\n", 4)])


@pytest.mark.parametrize("name", ["../x.json", "/etc/passwd", "snapshots/", "notes.json", "lock",
                                  "snapshots/../../x.npz"])
def test_other_names_are_refused(folders: tuple[Path, Path], name: str) -> None:
    with pytest.raises(ValueError, match="not a file of a run"):
        apply_changes(folders[1], [FileChange(name, b"x")])


# The folder keeper ----------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return create(RunStore(tmp_path), experiments.get("mnist").configure("odenet"))


def test_a_run_whose_files_are_sent_is_locked_until_its_end(run: Run) -> None:
    keeper, path = FolderKeeper(), str(run.path)
    lock = try_lock(run.path / "lock")
    assert lock is not None
    with pytest.raises(UserError, match="being trained already"):
        keeper.files(path, "a")
    lock.release()
    assert keeper.begin(path, "a") == 1
    assert not run.locked  # a worker that sees the folder locks it itself
    assert {file.name for file in keeper.files(path, "a")} == {"config.json", "status.json"}
    assert run.locked
    assert keeper.check(path, "a") == "go on"
    run.request_stop()
    assert keeper.check(path, "a") == keeper.write(path, "a", []) == "stop"
    keeper.end(path)
    assert not run.locked


def test_a_worker_that_was_taken_for_dead_writes_nothing_any_more(run: Run) -> None:
    keeper, path = FolderKeeper(), str(run.path)  # restarted: it goes on with the worker that it finds
    assert keeper.write(path, "a", [FileChange("log.txt", b"a\n", 0)]) == "go on"
    assert run.locked
    assert keeper.begin(path, "b") == 2
    assert keeper.write(path, "a", [FileChange("log.txt", b"old\n", 0)]) == keeper.check(path, "a") == "replaced"
    assert (run.path / "log.txt").read_bytes() == b"a\n"
    assert keeper.write(path, "b", [FileChange("log.txt", b"b\n", 0)]) == "go on"
    assert (run.path / "log.txt").read_bytes() == b"b\n"
    keeper.end(path)


# Temporary folders of killed processes are deleted by the next process ------------------------------------------------


def test_the_folder_is_deleted_and_those_of_dead_processes_with_it(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    left, others = tmp_path / f"lab-{ended.pid}-x", [tmp_path / "lab-1-y", tmp_path / "lab-notes-z"]
    for folder in (left, *others):
        folder.mkdir()
    with own_folder("lab", tmp_path) as made:
        assert sorted(tmp_path.iterdir()) == sorted([made, *others])
    assert sorted(tmp_path.iterdir()) == sorted(others)


# A worker finds out whether it sees a run directory and the locks in it -----------------------------------------------


def test_the_file_is_seen_while_it_is_locked_there_and_deleted_afterwards(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with shared_probe(tmp_path / "runs") as path:
        assert sees(path)
        unlocked = tmp_path / path.name  # of a file system whose locks end at the machine
        unlocked.write_bytes(path.read_bytes())
        assert not sees(unlocked)
    assert not sees(path)
    assert list((tmp_path / "runs").iterdir()) == []
