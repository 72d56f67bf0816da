"""The sentence and the table about ACE and its host methods, on made-up numbers."""

from __future__ import annotations

import math

import pytest

from acenode.compare.against_host import prediction_note, summary, table
from acenode.compare.cells import Measured, count_sentence, length_sentence
from acenode.compare.verdict import Contest, judge


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
    assert (found.verdict, found.reason) == ("open", "only 2 runs of ACE, 3 are needed")
    assert judge(contest(values(9.0), values(1.0, 1.0, 1.0))).reason == "only 1 run of ACE, 3 are needed"
    assert judge(contest({}, values(1.0))).reason == "ACE is not measured"
    assert judge(contest(values(1.0), {})).reason == "ODE-Net is not measured"


def test_different_numbers_of_epochs_decide_nothing() -> None:
    found = judge(contest(values(9.0, 9.1, 9.2), values(1.0, 1.1, 1.2), ace_epochs=frozenset({40}),
                          other_epochs=frozenset({20})))
    assert (found.verdict, found.reason) == ("open", "the methods were trained for different numbers of epochs")


def test_equal_differences_without_spread_are_decided() -> None:
    assert judge(contest(values(2.0, 3.0, 4.0), values(1.0, 2.0, 3.0))).verdict == "ahead"
    assert judge(contest(values(1.0, 2.0, 3.0), values(1.0, 2.0, 3.0))).verdict == "open"


def test_the_summary_names_what_is_decided() -> None:
    ahead = judge(Contest("A accuracy", "ODE-Net", values(3.0, 3.1, 3.2), values(1.0, 1.1, 1.25)))
    behind = judge(Contest("B MSE", "Latent-ODE", values(3.0, 3.1, 3.2), values(1.0, 1.1, 1.25), False))
    few = judge(Contest("C AUC", "Latent-ODE", values(3.0), values(1.0)))
    assert summary([ahead, behind, few]) == ("Here ACE is ahead of the method it extends in 1 of 3 comparisons (A "
                                             "accuracy) and behind in 1 (B MSE); 1 is undecided.")
    assert summary([behind]) == ("Here ACE is ahead of the method it extends in 0 of 1 comparisons and behind in 1 "
                                 "(B MSE).")
    assert summary([ahead, few]).endswith("(A accuracy) and behind in none; 1 is undecided.")
    none = judge(Contest("F MSE", "GRU-ODE-Bayes", values(1.0), {}))
    assert summary([ahead, few, few, none]).endswith("; 2 are undecided and 1 cannot be made yet.")
    near = judge(contest(values(3.0, 5.0, 7.0), values(2.0, 3.0, 4.0)))
    assert summary([few, near]) == ("1 of 2 comparisons have enough runs; in none of these is ACE clearly ahead of the "
                                    "method it extends, or behind it.")


def test_the_table_gives_difference_interval_and_verdict() -> None:
    ahead = judge(Contest("A accuracy", "ODE-Net", values(3.0, 3.1, 3.2), values(1.0, 1.1, 1.25)))
    near = judge(Contest("E NegLL", "GRU-ODE-Bayes", values(3.0, 5.0, 7.0), values(2.0, 3.0, 4.0), False,
                         unit=" nats"))
    few = judge(Contest("D AUC", "Latent-ODE", values(0.75, 0.25), values(0.25), partial=True))
    none = judge(Contest("F MSE", "GRU-ODE-Bayes", values(1.0), {}))
    assert [list(row.values()) for row in table([ahead, near, few, none])] == [
        ["A accuracy, higher is better", "ODE-Net", "+1.983", "+1.912 to +2.055", "3 pairs", "ACE is ahead"],
        ["E NegLL, lower is better", "GRU-ODE-Bayes", "+2.0 nats", "−0.5 to +4.5", "3 pairs", "undecided"],
        ["D AUC on a part of the data, higher is better", "Latent-ODE", "+0.25", "", "2 and 1 runs",
         "undecided: only 1 run of Latent-ODE, 3 are needed"],
        ["F MSE, higher is better", "GRU-ODE-Bayes", "", "", "", "undecided: GRU-ODE-Bayes is not measured"]]


def test_a_difference_and_its_interval_have_the_same_decimals() -> None:
    (row,) = table([judge(contest(values(99.55, 99.62, 99.49), values(99.50, 99.60, 99.56)))])
    assert (row["Difference"], row["95% interval"]) == ("+0.00", "−0.16 to +0.16")


def test_a_silhouette_is_told_apart_from_measures_of_prediction() -> None:
    better, worse = values(1.0, 1.1, 1.2), values(0.5, 0.61, 0.69)
    silhouette, open_ = judge(contest(better, worse, predicts=False)), judge(contest(better, better))
    assert prediction_note([silhouette, open_, open_]).endswith("in any of the 2 measures of prediction.")
    assert prediction_note([silhouette, judge(contest(better, worse))]) == ""
    assert prediction_note([open_]) == ""


def test_cells_that_are_not_compared_are_counted_apart() -> None:
    text = count_sentence(["within", "better", "better", "worse", "partial", "single", "missing", "missing"])
    assert text == ("Of the paper's 8 values 6 are measured: 1 within the margin of error, 2 better, 1 worse, 1 "
                    "from a single run and 1 on partial data. Single runs and values on partial data are not compared "
                    "with the paper's.")
    assert count_sentence(["within", "single"]).endswith("Single runs are not compared with the paper's.")
    assert count_sentence(["within"] * 2) == ("All 2 of the paper's values are measured: 2 within the margin of "
                                              "error, 0 better and 0 worse.")


def test_all_of_the_data_is_not_compared_with_a_part() -> None:
    found = judge(contest(values(9.0, 9.1, 9.2), values(1.0, 1.1, 1.2), partial=True, same_data=False))
    assert (found.verdict, found.reason) == ("open", "one of the methods was measured on a part of the data")


def test_cells_of_shorter_runs_are_counted() -> None:
    def cell(mark: str, epochs: int, printed: int) -> Measured:
        return Measured(mark=mark, epochs=epochs, paper_epochs=printed)  # type: ignore[arg-type]

    mnist, cifar = {"mnist/ace/accuracy": cell("within", 40, 160)}, {"cifar10/ace/accuracy": cell("worse", 20, 160)}
    ushcn, mortality = {"ushcn/ace/mse": cell("worse", 120, 300)}, {"physionet/ace/auc": cell("worse", 30, 30)}
    again = {"mnist/odenet/accuracy": cell("within", 40, 160)}
    assert length_sentence(mnist | cifar | again | ushcn | mortality) == (
        "4 values, 2 of the worse ones among them, come from shorter training than the paper's: MNIST and CIFAR10 20 "
        "to 40 of 160 epochs; USHCN climate 120 of 300 epochs.")
    assert length_sentence(mnist) == "1 value comes from shorter training than the paper's: MNIST 40 of 160 epochs."
    assert length_sentence(mortality) == ""
