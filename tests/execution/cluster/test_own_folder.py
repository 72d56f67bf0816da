"""Temporary folders of killed processes are deleted by the next process."""

from __future__ import annotations

import subprocess
from pathlib import Path

from acenode.execution.cluster.own_folder import own_folder


def test_the_folder_is_deleted_and_those_of_dead_processes_with_it(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    left, others = tmp_path / f"lab-{ended.pid}-x", [tmp_path / "lab-1-y", tmp_path / "lab-notes-z"]
    for folder in (left, *others):
        folder.mkdir()
    with own_folder("lab", tmp_path) as made:
        assert sorted(tmp_path.iterdir()) == sorted([made, *others])
    assert sorted(tmp_path.iterdir()) == sorted(others)
