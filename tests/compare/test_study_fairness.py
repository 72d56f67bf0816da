"""Fairness of a study: settings and parameters that differ without being asked, and the equal study."""

from __future__ import annotations

from dataclasses import replace

from study_entries import attention_study, one

from acenode.compare.fairness import count, fairness, parameter_counts
from acenode.compare.study_grid import make_grid, preset
from acenode.runs.questions import Study, StudyGroup


def test_a_start_of_attention_that_changes_with_fixed_is_named_and_held_equal() -> None:
    note = fairness(make_grid(attention_study(held={}, baseline=0), []))[0]
    assert note.key == "initial"
    assert note.text == ("initial differs too: initial=conv in evolving attention; initial=correlation in fixed "
                         "attention")
    assert note.offer is not None
    assert note.offer.change == "hold initial=conv in all groups"
    equal = make_grid(note.offer.study, [])
    assert note.offer.study.name == "attention-equal"
    assert [row.config.get("initial") for row in equal.rows] == ["conv", "conv", None]
    assert "initial" not in {note.key for note in fairness(equal)}


def test_a_number_of_parameters_that_differs_is_named_and_made_equal_where_possible() -> None:
    """Without attention, ACE's f has one convolution and ODE-Net's has two."""
    study = Study("layers", "mnist", (StudyGroup("ace", {"attention": "none"}), StudyGroup("odenet")), baseline=1)
    grid = make_grid(study, [])
    assert parameter_counts(grid) == [15_346, 20_818]
    note, = fairness(grid)
    assert note.text == "the number of parameters differs: 15,346 in ACE-ODE-Net, 20,818 in ODE-Net"
    assert note.offer is not None
    assert note.offer.change == "f_layers=2 in ACE-ODE-Net: 20,818 parameters"
    assert parameter_counts(make_grid(note.offer.study, [])) == [20_818, 20_818]
    assert fairness(make_grid(note.offer.study, [])) == []


def test_a_width_is_searched_for_the_nearest_number() -> None:
    notes = fairness(make_grid(preset("ushcn", "host"), []))
    offers = [note.offer for note in notes if note.offer]
    sizes = [parameter_counts(make_grid(offer.study, [])) for offer in offers]
    for counts, (large, small) in zip(sizes, ((0, 2), (1, 2)), strict=True):
        assert abs(counts[large] - counts[small]) <= 0.05 * counts[large]


def test_no_equal_study_is_offered_where_there_is_none() -> None:
    notes = fairness(make_grid(preset("mnist", "host"), []))
    assert {note.key for note in notes} == {"params"}
    assert all(note.offer is None for note in notes)


def test_schedules_are_compared_fairly_and_sizes_may_differ_in_parameters() -> None:
    assert fairness(make_grid(preset("mnist", "schedule"), [])) == []
    assert "params" not in {note.key for note in fairness(make_grid(preset("mnist", "size"), []))}


def test_settings_that_only_one_group_has_are_no_difference() -> None:
    assert [note.key for note in fairness(make_grid(preset("ushcn", "attention"), []))] == ["params"]


def test_counts_are_those_of_runs_where_there_are_runs() -> None:
    study = attention_study()
    grid = make_grid(study, [one(study, 0, 0, 0.9, params=123)])
    assert parameter_counts(grid)[:2] == [123, count(grid.rows[1].config)]


def test_runs_on_a_part_of_the_data_are_named() -> None:
    study = replace(preset("ushcn", "schedule", "full"), name="folds")
    runs = [one(study, 0, 0, 0.4, partial=True, params=9), one(study, 1, 0, 0.5, params=9)]
    note, = fairness(make_grid(study, runs))
    assert note.text == "some runs are trained on a part of the data: alternating schedule"
