"""Which runs of a study are played side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from study_entries import attention_study, finished, one

from acenode.compare.study_grid import fullest, make_grid, playable
from acenode.runs.entry import Entry
from acenode.runs.questions import StudyGroup


def with_snapshot(entry: Entry, root: Path) -> Entry:
    """Return the run in a folder that has a snapshot."""
    folder = root / entry.id / "snapshots"
    folder.mkdir(parents=True)
    (folder / "epoch-00001.npz").touch()
    return replace(entry, path=root / entry.id)


def test_one_run_of_each_group_with_the_same_seed_evolving_first(tmp_path: Path) -> None:
    groups = tuple(StudyGroup("ace", {"attention": kind}) for kind in ("none", "fixed", "evolving"))
    study = attention_study(groups=groups, baseline=0)
    runs = finished(study, {0: [0.7, 0.7, None], 1: [None, 0.8, 0.8], 2: [0.9, 0.9, None]})
    found = playable(make_grid(study, [with_snapshot(run, tmp_path) for run in runs]))
    assert [repeat for repeat, _ in found] == [0, 1, 2]
    assert fullest(found) == (1, None)
    assert list(found[1, None]) == ["evolving attention", "fixed attention", "no attention"]
    assert {entry.seed for entry in found[1, None].values()} == {1}


def test_runs_that_train_are_played_but_not_exported(tmp_path: Path) -> None:
    study = attention_study()
    training = with_snapshot(one(study, 0, 0, None, state="running"), tmp_path)
    without = finished(study, {1: [0.8]})  # it has no snapshots
    grid = make_grid(study, [training, *without])
    assert list(playable(grid)[0, None]) == ["evolving attention"]
    assert playable(grid, finished=True) == {}
    assert fullest({}) is None
