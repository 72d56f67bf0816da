"""The folder keeper: it passes stop requests on, holds the lock, and refuses workers that were replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from acenode import experiments
from acenode.errors import UserError
from acenode.execution.cluster.changed_files import FileChange
from acenode.execution.cluster.folder_keeper import FolderKeeper
from acenode.execution.execute import create
from acenode.runs.lock import is_locked, try_lock
from acenode.runs.store import Run, RunStore


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return create(RunStore(tmp_path), experiments.get("mnist").configure("odenet"))


def test_a_stop_request_in_the_run_directory_reaches_the_worker(run: Run) -> None:
    keeper = FolderKeeper()
    assert keeper.begin(str(run.path), "a") == 1
    assert keeper.check(str(run.path), "a") == "go on"
    run.request_stop()
    assert keeper.check(str(run.path), "a") == "stop"
    assert keeper.write(str(run.path), "a", []) == "stop"


def test_a_run_whose_files_are_sent_is_locked_until_its_end(run: Run) -> None:
    keeper = FolderKeeper()
    keeper.begin(str(run.path), "a")
    assert not is_locked(run)  # a worker that sees the folder locks it itself
    assert {file.name for file in keeper.files(str(run.path), "a")} == {"config.json", "status.json"}
    assert is_locked(run)
    keeper.end(str(run.path))
    assert not is_locked(run)


def test_a_run_that_another_process_trains_is_refused(run: Run) -> None:
    lock = try_lock(run)
    assert lock is not None
    with pytest.raises(UserError, match="being trained already"):
        FolderKeeper().files(str(run.path), "a")
    lock.release()


def test_a_worker_that_was_taken_for_dead_writes_nothing_any_more(run: Run) -> None:
    keeper = FolderKeeper()
    assert keeper.begin(str(run.path), "a") == 1
    assert keeper.begin(str(run.path), "b") == 2
    assert keeper.write(str(run.path), "a", [FileChange("log.txt", b"a\n", 0)]) == "replaced"
    assert not (run.path / "log.txt").exists()
    assert keeper.write(str(run.path), "b", [FileChange("log.txt", b"b\n", 0)]) == "go on"
    assert (run.path / "log.txt").read_bytes() == b"b\n"


def test_a_restarted_keeper_goes_on_with_the_worker_that_it_finds(run: Run) -> None:
    keeper = FolderKeeper()
    assert keeper.write(str(run.path), "a", [FileChange("log.txt", b"a\n", 0)]) == "go on"
    assert is_locked(run)
    keeper.end(str(run.path))


def test_a_deleted_run_stops_and_stays_deleted(run: Run) -> None:
    keeper = FolderKeeper()
    keeper.begin(str(run.path), "a")
    run.delete()
    assert keeper.check(str(run.path), "a") == "stop"
