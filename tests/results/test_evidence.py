"""The paragraph about ACE and its host methods, on made-up numbers."""

from __future__ import annotations

import math

import pytest

from acenode.results.evidence import Contest, count_sentence, judge, paragraph


def values(*numbers: float) -> dict[tuple[int, int], float]:
    return {(seed, 0): number for seed, number in enumerate(numbers)}


def contest(ace: dict[tuple[int, int], float], other: dict[tuple[int, int], float], **given: object) -> Contest:
    return Contest("SVHN accuracy", "ODE-Net", ace, other, **given)  # type: ignore[arg-type]


def test_paired_interval_has_its_closed_form() -> None:
    found = judge(contest(values(3.0, 5.0, 7.0), values(2.0, 3.0, 4.0)))  # differences 1, 2, 3
    half = 4.302652729749464 / math.sqrt(3)  # t quantile with two degrees of freedom
    assert found.pairs == 3
    assert found.advantage == pytest.approx(2.0)
    assert found.interval == pytest.approx((2 - half, 2 + half))
    assert found.verdict == "open"
    assert "includes zero" in found.reason


def test_ahead_and_behind_follow_the_direction_of_the_metric() -> None:
    better, worse = values(1.0, 1.1, 1.2), values(0.5, 0.61, 0.69)
    assert judge(contest(better, worse)).verdict == "ahead"
    assert judge(contest(worse, better)).verdict == "behind"
    assert judge(contest(worse, better, higher_is_better=False)).verdict == "ahead"
    assert judge(contest(better, worse, higher_is_better=False)).verdict == "behind"


def test_pairs_find_what_means_do_not() -> None:
    other = values(10.0, 20.0, 30.0, 40.0)
    ace = {key: value + 1 + 0.01 * key[0] for key, value in other.items()}
    assert judge(contest(ace, other)).verdict == "ahead"
    apart = {(seed + 100, fold): value for (seed, fold), value in ace.items()}  # no seed in common
    found = judge(contest(apart, other))
    assert (found.verdict, found.pairs) == ("open", 0)


def test_welch_interval_has_its_closed_form() -> None:
    ace = {(seed + 10, 0): v for seed, v in enumerate((5.0, 6.0, 7.0))}
    found = judge(contest(ace, values(1.0, 2.0, 3.0)))
    half = 2.7764451051977987 * math.sqrt(2 / 3)  # equal variances of 1: four degrees of freedom
    assert found.interval == pytest.approx((4 - half, 4 + half))
    assert found.verdict == "ahead"


def test_too_few_runs_decide_nothing() -> None:
    found = judge(contest(values(9.0, 9.0), values(1.0, 1.0, 1.0)))
    assert (found.verdict, found.reason) == ("open", "2 runs of a method")
    assert judge(contest(values(9.0), values(1.0, 1.0, 1.0))).reason == "1 run of a method"
    assert judge(contest({}, values(1.0))).reason == "ACE is not measured"
    assert judge(contest(values(1.0), {})).reason == "ODE-Net is not measured"


def test_different_numbers_of_epochs_decide_nothing() -> None:
    found = judge(contest(values(9.0, 9.1, 9.2), values(1.0, 1.1, 1.2), ace_epochs=frozenset({40}),
                          other_epochs=frozenset({20})))
    assert (found.verdict, found.reason) == ("open", "the methods were trained for different numbers of epochs")


def test_equal_differences_without_spread_are_decided() -> None:
    assert judge(contest(values(2.0, 3.0, 4.0), values(1.0, 2.0, 3.0))).verdict == "ahead"
    assert judge(contest(values(1.0, 2.0, 3.0), values(1.0, 2.0, 3.0))).verdict == "open"


def test_paragraph_names_the_columns_under_their_verdicts() -> None:
    ahead = judge(Contest("A accuracy", "ODE-Net", values(3.0, 3.1, 3.2), values(1.0, 1.1, 1.25)))
    behind = judge(Contest("B MSE", "Latent-ODE", values(3.0, 3.1, 3.2), values(1.0, 1.1, 1.25), False))
    few = judge(Contest("C AUC", "Latent-ODE", values(3.0), values(1.0)))
    also_few = judge(Contest("D AUC", "Latent-ODE", values(3.0, 2.0), values(1.0), partial=True))
    text = paragraph([ahead, behind, few, also_few], ["within", "worse", "missing"])
    assert text.startswith("ACE is ahead of its host method in A accuracy (+1.983 against ODE-Net, 95% interval "
                           "+1.912 to +2.055, 3 pairs).")
    assert "It is behind in B MSE (+1.983 against Latent-ODE" in text
    assert "It cannot be told where a method has fewer than 3 runs: C AUC and D AUC on a part of the data." in text
    assert text.endswith("Of the paper's 3 table cells 2 are measured: 1 within the paper's spread, 0 better and "
                         "1 worse.")


def test_paragraph_gives_the_numbers_of_what_is_open() -> None:
    ace, other = values(3.0, 5.0, 7.0), values(2.0, 3.0, 4.0)
    near = judge(Contest("E NegLL", "GRU-ODE-Bayes", ace, other, False, unit=" nats"))
    none = judge(Contest("F MSE", "GRU-ODE-Bayes", values(1.0), {}))
    text = paragraph([near, none], [])
    assert ("It cannot be told where the interval of the difference includes zero: E NegLL (+2.0 nats against "
            "GRU-ODE-Bayes, 95% interval −0.5 to +4.5, 3 pairs); where the host method is not measured: F "
            "MSE.") in text


def test_a_difference_and_its_interval_have_the_same_decimals() -> None:
    text = paragraph([judge(contest(values(99.55, 99.62, 99.49), values(99.50, 99.60, 99.56)))], ["within"])
    assert "(+0.00 against ODE-Net, 95% interval −0.16 to +0.16, 3 pairs)" in text


def test_paragraph_without_any_decision() -> None:
    text = paragraph([judge(contest(values(3.0), values(1.0)))], [])
    assert text.startswith("In no table do the measured runs show ACE ahead of its host method or behind it.")
    only_behind = paragraph([judge(contest(values(1.0, 1.1, 1.2), values(2.0, 2.1, 2.25)))], [])
    assert only_behind.startswith("ACE is behind its host method in SVHN accuracy")
    assert "It is ahead in no table." in only_behind


def test_partial_cells_are_counted_apart() -> None:
    text = count_sentence(["within", "better", "better", "worse", "partial", "missing", "missing"])
    assert text == ("Of the paper's 7 table cells 5 are measured: 1 within the paper's spread, 2 better, 1 worse and 1 "
                    "on partial data, which the paper's values are not compared with.")
