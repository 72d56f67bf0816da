"""The study that the fields of the form describe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from acenode_app.questions import study_draft
from acenode_app.questions.study_draft import StudyDraft, Varied

from acenode import experiments
from acenode.compare.study_grid import check_study, group_names, preset
from acenode.errors import UserError
from acenode.runs.questions import StudyGroup, StudyStore
from acenode.runs.store import RunStore

START = preset("mnist", "attention")


def test_a_draft_that_was_not_changed_is_the_preset() -> None:
    seeds, folds = study_draft.repeats_texts(START)
    assert StudyDraft(START, seeds, folds, held=study_draft.settings_line(START.held)).study() == START


def test_fields_change_length_seeds_baseline_and_what_is_held() -> None:
    study = StudyDraft(START, "0-4", "", {"epochs": 1}, "rtol=0.01 initial=conv", 0, "mine", "Why?").study()
    assert (study.name, study.question, study.baseline, study.seeds) == ("mine", "Why?", 0, (0, 1, 2, 3, 4))
    assert study.held == {"epochs": 1, "initial": "conv", "rtol": 0.01}


@pytest.mark.parametrize(("fields", "words"), [
    ({"seeds": "x"}, "seed"), ({"seeds": "0", "held": "rtol"}, "written as"), ({"held": "rtol=1 rtol=1"}, "twice"),
    ({"held": "attention=none"}, "varies"), ({"name": "a b"}, "name")])
def test_a_wrong_field_says_what_to_do(fields: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        StudyDraft(START, **fields).study()


def test_lengths_are_a_trial_a_quick_look_and_the_default() -> None:
    trial, quick, usual = study_draft.lengths(START)
    assert [length.title for length in (quick, usual)] == ["Quick look: 3 epochs", "Default: 12 epochs"]
    assert (quick.held, usual.held) == ({"epochs": 3}, {})
    assert StudyDraft(START, length=trial.held).study().held["solver"] == "rk4"  # it applies to images
    full = preset("mnist", "attention", "full")
    assert study_draft.lengths(full)[-1].title == f"Default: {full.held['epochs']} epochs"
    assert StudyDraft(full, length={}).study().held["epochs"] == full.held["epochs"]
    assert study_draft.lengths(preset("ushcn", "attention"))[0].title.startswith("Quick look")


def test_a_question_of_ones_own_combines_methods_and_values() -> None:
    mnist = experiments.get("mnist")
    study = study_draft.own_start(mnist, "sample", Varied(["ace", "odenet"], {"attention": ["evolving", "fixed"]}))
    assert study.groups == (StudyGroup("ace", {"attention": "evolving"}), StudyGroup("ace", {"attention": "fixed"}),
                            StudyGroup("odenet"))  # which has no attention to vary
    assert group_names(check_study(study)) == ["evolving attention, ACE-ODE-Net", "fixed attention, ACE-ODE-Net",
                                               "ODE-Net"]
    assert "attention" in study_draft.settings_that_vary(mnist)
    assert "snapshots" not in study_draft.settings_that_vary(mnist)
    assert study_draft.read_values("rtol", "0.01, 0.001 0.01") == [0.01, 0.001]
    with pytest.raises(UserError, match="choose two methods"):
        study_draft.own_start(mnist, "sample", Varied(["ace"]))


def test_a_stored_study_is_used_again_only_if_it_is_the_same(tmp_path: Path) -> None:
    store = StudyStore(RunStore(tmp_path))
    assert study_draft.stored_as(START, store) == START
    store.write(START)
    assert study_draft.stored_as(START, store).name == START.name
    longer = replace(START, seeds=(0, 1, 2, 3))
    assert study_draft.stored_as(longer, store).name == "mnist-attention-2"
    store.path("mnist-attention-2").write_text("{")
    assert study_draft.stored_as(longer, store).name == "mnist-attention-3"
