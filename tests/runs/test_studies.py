"""Studies on disk: what is stored, what is refused, and that runs/studies is not a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from study_entries import attention_study

from acenode.errors import UserError
from acenode.runs.catalogue import Catalogue
from acenode.runs.questions import MAX_GROUPS, Study, StudyGroup, StudyStore
from acenode.runs.store import RunStore


def test_a_study_is_read_as_it_was_written(tmp_path: Path) -> None:
    store, study = StudyStore(RunStore(tmp_path)), attention_study(question="Does it help?", seeds=(0, 5))
    assert store.write(study) == tmp_path / "studies" / "attention.json"
    assert store.read("attention") == study
    assert [(found.name, found.study) for found in store.list()] == [("attention", study)]


def test_the_folder_of_studies_is_not_a_run(tmp_path: Path) -> None:
    runs = RunStore(tmp_path, recorded=tmp_path / "recorded")
    StudyStore(runs).write(attention_study())
    (tmp_path / "recorded" / "studies").mkdir(parents=True)
    assert list(runs) == list(runs.recorded_runs()) == []
    assert Catalogue(runs).entries() == []
    assert runs.find("studies") is None
    with pytest.raises(UserError):
        runs.folder("studies")


def test_a_name_is_taken_once_and_free_after_deleting(tmp_path: Path) -> None:
    store = StudyStore(RunStore(tmp_path))
    store.write(attention_study())
    with pytest.raises(UserError, match="there is a study 'attention' already"):
        store.write(attention_study(seeds=(7,)))
    store.write(attention_study(seeds=(7,)), replace=True)
    assert store.read("attention").seeds == (7,)
    store.delete("attention")
    assert not store.exists("attention")
    for action in (store.read, store.delete):
        with pytest.raises(UserError, match="there is no study 'attention'"):
            action("attention")


@pytest.mark.parametrize(("change", "message"), [
    ({"colour": "red"}, "a study has no 'colour'"),
    ({"format": 2}, "newer version"),
    ({"name": "../evil"}, "cannot be the name of a study"),
    ({"question": "two\nlines"}, "the question must be one line"),
    ({"data": "some"}, "choose one of sample, full"),
    ({"groups": "ace"}, "groups must be a list"),
    ({"groups": [{"method": "ace"}]}, "a study compares 2 to"),
    ({"groups": [{"method": "ace"}] * 2}, "two groups are equal"),
    ({"groups": [{"method": "ace"}, {"method": "odenet", "size": "large"}]}, "a group has no 'size'"),
    ({"groups": [{"method": "ace"}, {"settings": {}}]}, "a group lacks its method"),
    ({"groups": [{"method": "ace"}, {"method": "ace", "settings": {"rtol": -1}}]}, "rtol must be above 0"),
    ({"groups": [{"method": "ace"}, {"method": "ace", "settings": {"attension": "fixed"}}]}, "did you mean attention"),
    ({"groups": [{"method": f"m{i}"} for i in range(MAX_GROUPS + 1)]}, "a study compares 2 to"),
    ({"held": {"attention": "fixed"}}, "attention varies and is held equal"),
    ({"held": {"fold": 1}}, "list its values in folds"),
    ({"seeds": []}, "at least one seed or fold"),
    ({"seeds": [0, 0]}, "a seed is given twice"),
    ({"seeds": [-1]}, "seed must be at least 0"),
    ({"seeds": list(range(51))}, "at most 50 seeds"),
    ({"folds": [5]}, "fold must be at least 0 and at most 4"),
    ({"baseline": 3}, "the baseline is the number of a group"),
    ({"baseline": True}, "the baseline is the number of a group"),
])
def test_a_file_is_checked_like_a_form(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    store = StudyStore(RunStore(tmp_path))
    path = store.write(attention_study(baseline=0))
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=message):
        store.read("attention")
    assert [found.study for found in store.list()] == [None]


@pytest.mark.parametrize("content", ["", "[]", "nonsense", '{"name": "attention"}', "[" * 100_000, "x" * 300_000])
def test_a_damaged_file_is_an_error_and_is_listed(tmp_path: Path, content: str) -> None:
    store = StudyStore(RunStore(tmp_path))
    store.write(attention_study()).write_text(content)
    with pytest.raises(UserError):
        store.read("attention")
    assert [(found.name, found.study, bool(found.error)) for found in store.list()] == [("attention", None, True)]


def test_repeats_are_seeds_folds_or_both() -> None:
    groups = (StudyGroup("ace"), StudyGroup("gru-ode-bayes"))

    def study(**given: Any) -> Study:
        return Study("folds", "ushcn", groups, **given)

    assert study(seeds=(3, 4)).repeats == ((3, None), (4, None))
    assert study(seeds=(), folds=(0, 2)).repeats == ((0, 0), (2, 2))
    assert study(seeds=(7, 8), folds=(0, 2)).repeats == ((7, 0), (8, 0), (7, 2), (8, 2))


def test_what_varies_is_what_groups_give() -> None:
    assert attention_study().varied == {"attention"}
    assert Study("x", "mnist", (StudyGroup("ace"), StudyGroup("odenet"))).varied == {"method"}


def test_studies_are_not_written_beside_recorded_runs_alone(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="recorded runs can only be read"):
        StudyStore(RunStore(tmp_path, recorded=tmp_path)).write(attention_study())
