"""The answer of a study against closed forms: differences, intervals, seeds that are needed, and words."""

from __future__ import annotations

import math

import pytest
from study_entries import attention_study, finished

from acenode.compare.statistics import paired_interval, pairs_needed, quantile
from acenode.compare.study_answer import TrivialReference, answer
from acenode.compare.study_grid import StudyGrid, make_grid
from acenode.compare.verdict import against
from acenode.runs.questions import Study, StudyGroup

T2 = 4.302652729911275  # 97.5% quantile of Student's t with two degrees of freedom


def grid(values: dict[int, list[float | None]], **given: object) -> StudyGrid:
    study = attention_study(**given)
    return make_grid(study, finished(study, values))


def test_quantiles_have_their_closed_forms() -> None:
    p = 0.975
    assert quantile(1) == pytest.approx(math.tan(math.pi * (p - 0.5)))
    assert quantile(2) == pytest.approx((2 * p - 1) * math.sqrt(2 / (4 * p * (1 - p))))
    assert quantile(2) == pytest.approx(T2)


def test_the_interval_is_that_of_paired_differences() -> None:
    low, high = paired_interval([1.0, 2.0, 3.0])
    assert (low, high) == (pytest.approx(2 - T2 / math.sqrt(3)), pytest.approx(2 + T2 / math.sqrt(3)))


def test_the_number_of_pairs_is_the_smallest_whose_interval_excludes_zero() -> None:
    for difference, spread in ((1.0, 1.0), (0.5, 1.0), (-0.3, 1.0), (2.0, 0.1)):
        n = pairs_needed(difference, spread)
        assert n is not None
        assert abs(difference) > quantile(n - 1) * spread / math.sqrt(n)
        assert n == 3 or abs(difference) <= quantile(n - 2) * spread / math.sqrt(n - 1)
    assert pairs_needed(1.0, 1.0) == 7  # t(6)/√7 = 0.925, t(5)/√6 = 1.049
    assert pairs_needed(2.0, 0.1) == 3
    assert pairs_needed(0.0, 1.0) is None


def test_a_difference_that_is_clear_helps_or_hurts() -> None:
    found = answer(grid({0: [0.91, 0.92, 0.93], 1: [0.85, 0.86, 0.88], 2: [0.90, 0.90, 0.91]}))
    evolving, fixed = found.comparisons
    half = 100 * T2 * math.sqrt(1 / 3) * 0.01 / math.sqrt(3)  # differences 0.01, 0.02, 0.02: s = 0.01/√3
    assert evolving.interval is not None
    assert evolving.difference == pytest.approx(0.05 / 3)
    assert 100 * evolving.interval[0] == pytest.approx(5 / 3 - half)
    assert (evolving.effect, fixed.effect) == ("helps", "hurts")
    assert evolving.text == ("evolving attention helps: accuracy +1.67 points against no attention, 95% interval +0.23 "
                             "to +3.10, 3 seeds")
    assert found.text.startswith("Evolving attention helps")
    assert found.best == "evolving attention"


def test_lower_values_help_where_lower_is_better() -> None:
    study = Study("host", "ushcn", (StudyGroup("ace"), StudyGroup("gru-ode-bayes")), seeds=(), folds=(0, 1, 2),
                  data="full", baseline=1)
    found = answer(make_grid(study, finished(study, {0: [0.30, 0.31, 0.32], 1: [0.40, 0.42, 0.42]})))
    assert found.comparisons[0].effect == "helps"
    assert found.best == "ACE-GRU-ODE-Bayes"
    assert "MSE −0.103 against GRU-ODE-Bayes" in found.text
    assert "3 folds" in found.text


def test_two_seeds_never_suffice_and_the_answer_says_how_many_would() -> None:
    found = answer(grid({0: [0.91, 0.90], 2: [0.90, 0.91]}))
    assert found.comparisons[0].effect == "unknown"
    assert found.best is None
    clear = answer(grid({0: [0.90, 0.90], 2: [0.10, 0.11]})).comparisons[0]
    assert (clear.effect, clear.more) == ("unknown", 1)
    assert "cannot be told with 2 seeds: at least 3 are required, whatever the interval (accuracy" in clear.text
    # differences 0.02 and 0.00: mean 0.01, deviation 0.01·√2; |d| > t(n−1)·√2·|d|/√n first at n = 11
    open_ = answer(grid({0: [0.92, 0.90], 2: [0.90, 0.90]})).comparisons[0]
    assert open_.more == 9
    assert open_.text == ("evolving against no attention: cannot be told with 2 seeds: about 9 more would be needed "
                          "(accuracy +1.00 point, 95% interval −11.71 to +13.71)")


def test_a_number_of_seeds_that_nobody_trains_is_not_given() -> None:
    found = answer(grid({0: [0.91, 0.90, 0.803], 2: [0.90, 0.91, 0.80]})).comparisons[0]
    assert found.more is not None
    assert found.more > 50
    assert "cannot be told with 3 seeds: more than 50 more seeds would be needed (accuracy" in found.text


def test_a_comparison_is_named_by_both_groups() -> None:
    assert against("evolving attention", "fixed attention") == "evolving against fixed attention"
    assert against("evolving attention, ACE", "no attention, ACE") == "evolving against no attention, ACE"
    assert against("ACE-ODE-Net", "ODE-Net") == "ACE-ODE-Net against ODE-Net"
    assert against("Augmented ODE-Net", "ODE-Net") == "Augmented ODE-Net against ODE-Net"


def test_in_a_study_of_three_groups_the_two_others_are_compared_too() -> None:
    found = answer(grid({0: [0.91, 0.92, 0.93], 1: [0.85, 0.86, 0.88], 2: [0.90, 0.90, 0.91]}))
    assert found.between is not None
    assert found.between.difference == pytest.approx((0.06 + 0.06 + 0.05) / 3)
    assert found.between.text.startswith("evolving attention helps: accuracy +5.67 points against fixed attention")
    assert found.between.text[1:] in found.text
    assert found.findings == (*found.comparisons, found.between)
    assert answer(grid({0: [0.91], 2: [0.90]})).between is None  # fixed attention is not measured


def test_one_seed_and_no_seed_have_no_interval() -> None:
    found = answer(grid({0: [0.92], 2: [0.90]}))
    assert found.comparisons[0].interval is None
    assert "cannot be told with 1 seed: at least 2 more are needed" in found.comparisons[0].text
    assert found.comparisons[1].text == "fixed attention: not measured yet"


def test_a_group_that_waits_for_the_baseline_says_so() -> None:
    assert answer(grid({0: [0.92]})).comparisons[0].sentence == (
        "Evolving attention: no run of no attention has finished yet.")
    assert answer(grid({0: [0.92], 2: [None, 0.90]})).comparisons[0].sentence == (
        "Evolving attention: no run of no attention with the same seed has finished yet.")


def test_only_seeds_that_both_have_are_compared() -> None:
    found = answer(grid({0: [0.9, None, 0.8], 2: [None, 0.5, 0.7]}))
    assert found.comparisons[0].pairs == 1
    assert found.comparisons[0].difference == pytest.approx(0.1)


def test_equal_values_make_no_difference() -> None:
    found = answer(grid({0: [0.1 + 0.2, 0.5, 0.6], 2: [0.3, 0.5, 0.6]})).comparisons[0]
    assert found.effect == "unknown"
    assert found.text == "evolving attention makes no difference: equal to no attention in 3 seeds"


def test_a_difference_without_direction_needs_too_many_seeds() -> None:
    found = answer(grid({0: [0.9, 0.8, 0.85], 2: [0.8, 0.9, 0.85]})).comparisons[0]
    assert found.more is None
    assert "cannot be told with 3 seeds: more than 50 more seeds would be needed" in found.text


def test_a_best_group_has_three_seeds_and_is_better_than_every_other_one() -> None:
    assert answer(grid({0: [0.9, 0.9, 0.9], 1: [0.8, 0.8, 0.8], 2: [0.7, 0.7]})).best is None
    assert answer(grid({0: [0.9, 0.9, 0.9], 1: [0.8, 0.8, 0.8], 2: [0.7, 0.7, 0.7]})).best == "evolving attention"
    assert answer(grid({0: [0.9, 0.9, 0.9], 1: [0.8, 0.9, 0.7], 2: [0.7, 0.7, 0.7]})).best is None


def test_more_folds_than_there_are_are_asked_for_as_seeds() -> None:
    study = Study("host", "ushcn", (StudyGroup("ace"), StudyGroup("gru-ode-bayes")), seeds=(), folds=(0, 1, 2),
                  data="full", baseline=1)
    # differences 0.01, 0, 0.02: mean and deviation are equal, which takes seven pairs
    text = answer(make_grid(study, finished(study, {0: [0.41, 0.42, 0.44], 1: [0.40, 0.42, 0.42]}))).text
    assert "with 3 folds: about 4 more runs of each would be needed, with other seeds on the 5 folds (MSE" in text


def test_groups_that_do_not_beat_the_trivial_reference_are_named() -> None:
    found = answer(grid({0: [0.9, 0.9, 0.9], 2: [0.1, 0.1, 0.1]}), [TrivialReference("majority class", 0.1)])
    assert found.notes == ("No attention is not better than the majority class (10.00%).", "6 of 9 runs are finished.")
    assert found.text.endswith("6 of 9 runs are finished.")


def test_the_answer_starts_by_saying_that_no_group_learned_anything() -> None:
    majority = [TrivialReference("majority class", 0.1003)]
    found = answer(grid({0: [0.10, 0.10, 0.10], 1: [0.09, 0.09, 0.09], 2: [0.08, 0.08, 0.08]}), majority)
    assert found.comparisons[0].effect == "helps"
    assert found.text.startswith("No group beats always answering the most frequent class (10.03%): the runs learned "
                                 "nothing yet, train longer. Evolving attention helps")
    assert found.sentences[0] == found.warning
    assert found.notes == ()  # the warning says it already
    assert answer(grid({0: [0.10], 1: [0.5], 2: [0.08]}), majority).warning == ""
    # 10.87 ± 1.21 %: untrained networks differ by as much
    lucky = answer(grid({0: [0.1003, 0.1226, 0.1031], 2: [0.0975, 0.1003, 0.0975]}), majority)
    assert lucky.warning.startswith("No group clearly beats always answering the most frequent class (10.03%)")
    assert "No attention is not better" not in lucky.text
    assert answer(grid({}), majority).warning == ""


def test_runs_between_two_trivial_references_learned_too_little() -> None:
    study = Study("host", "ushcn", (StudyGroup("ace"), StudyGroup("gru-ode-bayes")), seeds=(), folds=(0, 1),
                  data="full", baseline=1)
    trivial = [TrivialReference("mean", 1.0), TrivialReference("last value", 0.5)]

    def warning(ace: float, *more: TrivialReference) -> str:
        return answer(make_grid(study, finished(study, {0: [ace, ace], 1: [1.1, 1.2]})), [*trivial, *more]).warning

    nothing = "No group beats repeating the last value (0.500): the runs learned nothing yet, train longer."
    assert warning(1.0) == nothing
    assert warning(0.7) == nothing.replace("nothing yet, train longer", "too little to compare them, train longer if "
                                           "validation still improves")
    assert warning(0.4, TrivialReference("ridge", 0.3)) == ""  # a regression has learned too


def test_an_answer_of_short_runs_says_so_first() -> None:
    values = {0: [0.91, 0.92, 0.93], 1: [0.85, 0.86, 0.88], 2: [0.90, 0.90, 0.91]}
    found = answer(grid(values, held={"epochs": 1}))
    assert found.sentences[0] == "Trained for 1 epoch, where the default is 12: longer training may change the answer."
    assert found.comparisons[0].effect == "helps"
    assert answer(grid(values, held={"epochs": 5})).warning.startswith("Trained for 5 epochs")
    assert answer(grid(values, held={"epochs": 6})).warning == ""
    assert answer(grid({}, held={"epochs": 1})).warning == ""
