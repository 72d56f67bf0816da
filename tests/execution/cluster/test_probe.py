"""A worker finds out whether it sees a run directory and the locks in it."""

from __future__ import annotations

from pathlib import Path

from acenode.execution.cluster.probe import sees, shared_probe


def test_the_file_is_seen_while_it_is_locked_and_deleted_afterwards(tmp_path: Path) -> None:
    with shared_probe(tmp_path) as path:
        assert sees(path)
    assert not sees(path)
    assert list(tmp_path.iterdir()) == []


def test_another_machine_s_folder_of_the_same_name_is_not_shared(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    with shared_probe(tmp_path / "here") as path:
        assert not sees(tmp_path / "there" / path.name)


def test_a_file_system_whose_locks_end_at_the_machine_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    with shared_probe(tmp_path) as path:
        unlocked = tmp_path / "copy" / path.name
        unlocked.write_bytes(path.read_bytes())  # seen, but without its lock
        assert not sees(unlocked)


def test_a_file_that_a_killed_driver_left_is_deleted(tmp_path: Path) -> None:
    (tmp_path / ".shared-0123").touch()
    with shared_probe(tmp_path) as path:
        assert [p.name for p in tmp_path.iterdir()] == [path.name]
