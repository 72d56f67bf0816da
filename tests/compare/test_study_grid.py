"""The grid of a study: which configurations, names, runs and players belong to it; and the presets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from catalogue_entries import entry
from study_entries import attention_study, finished, one

from acenode.compare.study_grid import (
    check_study,
    fullest,
    group_config,
    group_names,
    kind_of,
    make_grid,
    playable,
    preset,
    presets,
    repeat_title,
    set_study,
)
from acenode.errors import UserError
from acenode.experiments import EXPERIMENTS
from acenode.runs.questions import Study, StudyGroup


def named(*groups: tuple[str, dict[str, object]], experiment: str = "mnist") -> list[str]:
    return group_names(Study("x", experiment, tuple(StudyGroup(method, given) for method, given in groups)))


def test_names_say_only_what_differs_with_the_distinguishing_part_first() -> None:
    assert group_names(attention_study()) == ["evolving attention", "fixed attention", "no attention"]
    assert named(("ace", {}), ("odenet", {})) == ["ACE-ODE-Net", "ODE-Net"]
    assert named(("ace", {"attention": "evolving"}), ("ace", {"attention": "fixed"}), ("odenet", {})) == [
        "evolving attention, ACE-ODE-Net", "fixed attention, ACE-ODE-Net", "ODE-Net"]
    assert named(("ace", {"rtol": 1e-2}), ("ace", {"rtol": 1e-3})) == ["0.01 rtol", "0.001 rtol"]
    assert named(("ace", {"penalty": "l1"}), ("ace", {"penalty": "none", "detach_attention": True})) == [
        "l1 penalty, no detach attention", "no penalty, detach attention"]


def test_a_setting_that_is_held_is_used_where_it_applies() -> None:
    study = attention_study(held={"initial": "dense", "epochs": 3, "schedule": "joint"})
    configs = [group_config(study, group, (4, None)) for group in study.groups]
    assert [c.get("initial") for c in configs] == ["dense", "dense", None]
    assert [c.get("schedule") for c in configs] == ["joint", None, None]
    assert [c.get("epochs") for c in configs] == [3, 3, 3]
    assert {c.seed for c in configs} == {4}


@pytest.mark.parametrize(("change", "message"), [
    ({"experiment": "imagenet"}, "there is no experiment"),
    ({"metric": "mse"}, "mnist has no metric 'mse'"),
    ({"groups": (StudyGroup("ace"), StudyGroup("resnext"))}, "has no method"),
    ({"groups": (StudyGroup("ace"), StudyGroup("ace", {"schedule": "alternating"}))}, "groups 1 and 2 train the same"),
    ({"groups": (StudyGroup("ace"), StudyGroup("odenet", {"schedule": "joint"}))}, "does not apply to odenet"),
    ({"held": {"augment": 4}}, "augment applies to none of the groups"),
    ({"folds": (1,)}, "fold"),
])
def test_a_study_must_fit_its_experiment(change: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_study(replace(attention_study(baseline=0), **change))


def test_cells_have_state_progress_and_value() -> None:
    study = attention_study()
    runs = [*finished(study, {0: [0.9, 0.8]}), one(study, 1, 0, None, state="running", progress=0.25),
            one(study, 1, 1, None, state="stopped", progress=0.5), one(study, 2, 0, None, state="queued")]
    grid = make_grid(study, runs)
    evolving, fixed, none = grid.rows
    assert [(cell.state, cell.progress, cell.value) for cell in evolving.cells] == [
        ("finished", 1.0, 0.9), ("finished", 1.0, 0.8), ("missing", 0.0, None)]
    assert [(cell.state, cell.progress) for cell in fixed.cells] == [
        ("running", 0.25), ("stopped", 0.5), ("missing", 0.0)]
    assert (evolving.mean, evolving.std) == (pytest.approx(0.85), pytest.approx(0.1 / 2**0.5))
    assert (fixed.mean, none.std) == (None, None)
    assert (grid.finished, len(grid.running), grid.progress) == (2, 2, pytest.approx(2.75 / 9))
    assert [(cell.config.get("attention"), cell.config.seed) for cell in grid.wanted] == [
        ("fixed", 1), ("none", 1), ("evolving", 2), ("fixed", 2), ("none", 2)]
    assert grid.baseline is none


def test_runs_belong_by_configuration_whatever_device_and_snapshots() -> None:
    study = attention_study()
    run = one(study, 0, 0, 0.9)
    other = replace(run, config=run.config | {"device": "cuda", "snapshots": 30, "analysis": False})
    assert make_grid(study, [other]).rows[0].values == {(0, None): 0.9}
    for key, value in (("epochs", 99), ("schedule", "joint"), ("rtol", 0.5)):
        assert make_grid(study, [replace(run, config=run.config | {key: value})]).finished == 0
    assert make_grid(study, [replace(run, data="full", config=run.config | {"data": "full"})]).finished == 0
    default = entry("ace", 0.7, seed=1)  # although the study names its settings
    assert make_grid(study, [default]).rows[0].values == {(1, None): 0.7}


def test_of_several_runs_the_latest_finished_one_counts_and_one_on_all_data_before_a_part() -> None:
    study = attention_study()
    early, late = (one(study, 0, 0, value, created=at) for value, at in ((0.8, 1.0), (0.9, 2.0)))
    busy = one(study, 0, 0, None, state="running", created=3.0)
    assert make_grid(study, [busy, late, early]).rows[0].cells[0].value == 0.9
    assert make_grid(study, [replace(late, partial=True), early]).rows[0].cells[0].value == 0.8
    behind, ahead = (one(study, 0, 0, None, state="stopped", progress=p) for p in (0.1, 0.6))
    assert make_grid(study, [ahead, behind]).rows[0].cells[0].progress == 0.6
    assert make_grid(study, [ahead, busy]).rows[0].cells[0].state == "running"


def test_a_run_without_a_setting_that_was_added_later_counts() -> None:
    study = Study("old", "ushcn", (StudyGroup("ace"), StudyGroup("ace", {"g": "matrix"})), seeds=(0,))
    run = one(study, 0, 0, 0.4)
    del run.config["g"]
    assert [row.values for row in make_grid(study, [run]).rows] == [{(0, None): 0.4}, {}]


def test_columns_are_named_by_seed_and_fold() -> None:
    study = Study("folds", "ushcn", (StudyGroup("ace"), StudyGroup("augmented")), seeds=(), folds=(1,))
    assert repeat_title(study, study.repeats[0]) == "fold 1"
    assert repeat_title(replace(study, seeds=(3,)), (3, 1)) == "fold 1, seed 3"
    assert repeat_title(attention_study(), (2, None)) == "seed 2"


@pytest.mark.parametrize("data", ["sample", "full"])
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_has_presets_that_can_be_configured(experiment: str, data: str) -> None:
    found = {kind_of(study): study for study in presets(experiment, data)}
    assert found.keys() - {"size"} == {"attention", "host", "schedule"}
    assert ("size" in found) == (experiment in ("mnist", "svhn", "cifar10"))
    for study in found.values():
        grid = make_grid(study, [])
        assert len({row.name for row in grid.rows}) == len(grid.rows)
        assert len(study.repeats) >= 3
        assert grid.study.data == data
    assert make_grid(found["attention"], []).baseline.name == "no attention"


def test_presets_of_others() -> None:
    host = preset("liver", "host")  # named variables
    assert [group.method for group in host.groups] == ["ace", "mixed", "no-attention"]
    assert host.baseline == 2
    study, short = set_study("liver", "classify"), set_study("liver", "classify", 3)
    assert [row.name for row in make_grid(study, []).rows] == ["ACE", "No attention"]
    assert (study.seeds, study.baseline, study.held) == ((0, 1, 2), 1, {})
    assert (short.held, short.name != study.name) == ({"epochs": 3}, True)  # both can be stored


def test_runs_with_snapshots_are_played_side_by_side_evolving_first(tmp_path: Path) -> None:
    groups = tuple(StudyGroup("ace", {"attention": kind}) for kind in ("none", "fixed", "evolving"))
    study = attention_study(groups=groups, baseline=0)
    runs = [*finished(study, {0: [0.7, 0.7, None], 1: [None, 0.8, 0.8], 2: [0.9, 0.9, None]}),
            one(study, 2, 2, None, state="running", id="busy")]
    for run in runs:
        (tmp_path / run.id / "snapshots").mkdir(parents=True)
        (tmp_path / run.id / "snapshots" / "epoch-00001.npz").touch()
    grid = make_grid(study, [replace(run, path=tmp_path / run.id) for run in runs])
    found, done = playable(grid), playable(grid, finished=True)
    assert [repeat for repeat, _ in found] == [0, 1, 2]
    assert fullest(found) == (1, None)
    assert list(found[1, None]) == ["evolving attention", "fixed attention", "no attention"]
    assert {entry.seed for entry in found[1, None].values()} == {1}
    assert (list(found[2, None]), list(done[2, None])) == (["evolving attention", "fixed attention"],
                                                           ["fixed attention"])  # what trains is not exported
    assert playable(make_grid(study, finished(study, {1: [0.8]}))) == {}  # it has no snapshots
    assert fullest({}) is None
