"""Whether one group is better than another: intervals in closed form, and the words of Compare and of ACE's hosts."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd
import pytest
from catalogue_entries import entry

from acenode import experiments
from acenode.compare.against_host import Compared, compared, contests, prediction_note, summary, table
from acenode.compare.cells import measure_all
from acenode.compare.groups import grouped_frame
from acenode.compare.verdict import (
    ComparedGroups,
    Contest,
    compare_groups,
    comparison_table,
    judge,
    pairs_needed,
    quantile,
)
from acenode.runs.entry import Entry

T2 = 4.302652729911275  # 97.5% quantile of Student's t with two degrees of freedom
HOST = (0.90, 0.91, 0.92)


def test_the_number_of_pairs_is_the_smallest_whose_interval_excludes_zero() -> None:
    for difference, spread in ((1.0, 1.0), (0.5, 1.0), (-0.3, 1.0), (2.0, 0.1)):
        n = pairs_needed(difference, spread)
        assert abs(difference) > quantile(n - 1) * spread / math.sqrt(n)
        assert n == 3 or abs(difference) <= quantile(n - 2) * spread / math.sqrt(n - 1)
    assert pairs_needed(1.0, 1.0) == 7  # t(6)/√7 = 0.925, t(5)/√6 = 1.049
    assert (pairs_needed(2.0, 0.1), pairs_needed(0.0, 1.0)) == (3, None)


def runs(method: str, values: tuple[float | None, ...], first: int = 0) -> list[Entry]:
    return [entry(method, value, seed=first + n) for n, value in enumerate(values)]


def found(entries: list[Entry], baseline: str = "ODE-Net", epoch: str = "best") -> ComparedGroups:
    return compare_groups(grouped_frame(entries), baseline, epoch)


def row(of: ComparedGroups, name: str) -> dict[str, str]:
    shown = comparison_table(of)
    return next(dict(zip(shown.heads, cells, strict=True)) for cells in shown.rows if cells[0].startswith(name))


def test_a_clear_difference_helps() -> None:
    answer = found([*runs("odenet", HOST), *runs("ace", (0.92, 0.93, 0.942))])
    # differences 2, 2, 2.2 points: mean 2.0667, s = 0.11547, t(2) = 4.3027, half = 0.28684
    assert answer.sentences[0] == (
        "ACE-ODE-Net helps: accuracy +2.07 points against ODE-Net, 95% interval +1.78 to +2.35, 3 seeds.")
    assert row(answer, "ACE")["Difference (95% interval)"] == "+2.07 (+1.78 to +2.35)"
    assert row(answer, "ACE-ODE-Net (best)")["Effect"] == "helps"
    assert row(answer, "ODE-Net (baseline)")["Effect"] == "baseline"
    assert answer.groups["difference"]["ACE-ODE-Net"] == pytest.approx(0.062 / 3)


def test_only_seeds_of_both_groups_count_and_two_cannot_tell() -> None:
    answer = found([*runs("odenet", HOST), *runs("ace", (0.92, 0.93, 0.99), first=1)])
    compared_pairs = answer.comparisons["ACE-ODE-Net"]
    assert (compared_pairs.pairs, compared_pairs.difference) == (2, pytest.approx(0.01))
    assert row(answer, "ACE")["Effect"] == "cannot be told"
    apart = found([*runs("odenet", HOST), *runs("ace", HOST, first=7)])
    assert apart.sentences == ["ACE-ODE-Net: no run of ODE-Net with the same seed has finished yet."]
    assert row(apart, "ACE")["Difference (95% interval)"] == "+0.00 (other seeds)"
    other = found([*runs("odenet", HOST), entry(value=0.99, data="full")], "ODE-Net (sample)")
    assert (other.sentences, row(other, "ACE")["Effect"]) == ([], "not comparable")
    nothing = found([*runs("odenet", HOST), entry(value=None, schedule="joint")])
    assert pd.isna(nothing.groups["difference"]["ACE-ODE-Net schedule=joint"])


def test_without_test_values_the_baseline_is_compared_in_validation() -> None:
    entries = [replace(e, best=e.value, last=0.8 * (e.value or 0), value=None)
               for e in [*runs("odenet", HOST), *runs("ace", HOST)]]
    answer = found(entries)
    assert answer.sentences[0].startswith("ACE-ODE-Net makes no difference")
    assert answer.sentences[-1] == "These are validation values, because ODE-Net has no test result."
    halves = [replace(entry(m, None), best=b, last=0.8 * b) for m, b in (("odenet", 0.5), ("ace", 0.75))]
    assert found(halves).groups["difference"]["ACE-ODE-Net"] == 0.25
    assert found(halves, epoch="last").groups["difference"]["ACE-ODE-Net"] == pytest.approx(0.2)


def test_folds_are_called_folds() -> None:
    def folds(method: str, shift: float) -> list[Entry]:
        return [replace(entry(method, 0.5 + 0.01 * n + shift, experiment="ushcn", fold=n), metric="mse")
                for n in range(5)]

    (text,) = found([*folds("gru-ode-bayes", 0.0), *folds("augmented", 0.1)], "GRU-ODE-Bayes").sentences
    assert text.endswith("5 folds.")
    assert " hurts: MSE +0.100 against GRU-ODE-Bayes" in text  # lower is better


def test_the_best_group_is_better_than_all_others_by_three_shared_seeds() -> None:
    def best(entries: list[Entry]) -> list[str]:
        groups = found(entries).groups
        return groups.index[groups["best"]].tolist()

    both = [e for n in range(3) for e in (entry("odenet", 0.8 + 0.01 * n, seed=n), entry(value=0.9, seed=n))]
    assert best(both) == ["ACE-ODE-Net"]
    assert best([replace(e, metric="loss") for e in both]) == ["ODE-Net"]
    assert best(both[:4]) == best(both[:-1]) == []  # a third seed of one group only
    assert best([*both, entry("resnet", 0.99)]) == []  # the best mean is of a single run
    assert best([*runs("odenet", (0.8, 0.9, 0.85)), *runs("ace", (0.9, 0.85, 0.95))]) == []  # it may be chance


# ACE and its hosts --------------------------------------------------------------------------------------------------


def values(*numbers: float, first: int = 0) -> dict[tuple[int, int | None], float]:
    return {(first + seed, 0): number for seed, number in enumerate(numbers)}


BETTER, WORSE = values(1.0, 1.1, 1.2), values(0.5, 0.61, 0.69)
NEAR = (values(3.0, 5.0, 7.0), values(2.0, 3.0, 4.0))  # differences 1, 2, 3


def contest(ace: dict[tuple[int, int | None], float], other: dict[tuple[int, int | None], float],
            **given: object) -> Contest:
    return Contest("SVHN accuracy", "ODE-Net", ace, other, **given)  # type: ignore[arg-type]


def test_pairs_and_means_have_intervals_in_closed_form() -> None:
    paired = judge(contest(*NEAR))
    half = T2 / math.sqrt(3)
    assert (paired.pairs, paired.advantage, paired.interval) == (3, 2.0, pytest.approx((2 - half, 2 + half)))
    welch = judge(contest(values(5.0, 6.0, 7.0, first=10), values(1.0, 2.0, 3.0)))
    half = 2.7764451051977987 * math.sqrt(2 / 3)  # equal variances of 1: four degrees of freedom
    assert (welch.verdict, welch.pairs, welch.interval) == ("ahead", 0, pytest.approx((4 - half, 4 + half)))
    other = values(10.0, 20.0, 30.0, 40.0)
    ace = {key: value + 1 + 0.01 * key[0] for key, value in other.items()}
    assert judge(contest(ace, other)).verdict == "ahead"  # pairs find what means do not
    apart = judge(contest({(seed + 100, 0): value for (seed, _), value in ace.items()}, other))
    assert (apart.verdict, apart.pairs) == ("open", 0)


@pytest.mark.parametrize(("given", "verdict", "reason"), [
    (contest(BETTER, WORSE), "ahead", ""), (contest(WORSE, BETTER), "behind", ""),
    (contest(WORSE, BETTER, higher_is_better=False), "ahead", ""),
    (contest(BETTER, WORSE, higher_is_better=False), "behind", ""),
    (contest(values(2.0, 3.0, 4.0), values(1.0, 2.0, 3.0)), "ahead", ""),  # without spread
    (contest(BETTER, BETTER), "open", "the interval of the difference includes zero"),
    (contest(values(9.0, 9.0), BETTER), "open", "only 2 runs of ACE, 3 are needed"),
    (contest(values(9.0), BETTER), "open", "only 1 run of ACE, 3 are needed"),
    (contest({}, BETTER), "open", "ACE is not measured"), (contest(BETTER, {}), "open", "ODE-Net is not measured"),
    (contest(BETTER, WORSE, ace_epochs=40, other_epochs=20), "open",
     "the methods were trained for different numbers of epochs"),
    (contest(BETTER, WORSE, partial=True, same_data=False), "open",
     "one of the methods was measured on a part of the data")])
def test_a_verdict_follows_the_metric_or_says_why_there_is_none(given: Contest, verdict: str, reason: str) -> None:
    assert (judge(given).verdict, judge(given).reason) == (verdict, reason)


def test_the_summary_and_the_table_name_what_is_decided() -> None:
    one, other = values(3.0, 3.1, 3.2), values(1.0, 1.1, 1.25)
    ahead, behind = judge(Contest("A accuracy", "ODE-Net", one, other)), judge(Contest("B MSE", "L", one, other, False))
    near = judge(Contest("E NegLL", "GRU-ODE-Bayes", *NEAR, False, unit=" nats"))
    few = judge(Contest("D AUC", "Latent-ODE", values(0.75, 0.25), values(0.25), partial=True))
    none = judge(Contest("F MSE", "GRU-ODE-Bayes", values(1.0), {}))
    assert summary([ahead, behind, few]) == ("Here ACE is ahead of the method it extends in 1 of 3 comparisons (A "
                                             "accuracy) and behind in 1 (B MSE); 1 is undecided.")
    assert summary([ahead, few, few, none]).endswith(
        "(A accuracy) and behind in none; 2 are undecided and 1 cannot be made yet.")
    assert summary([few, near]) == ("1 of 2 comparisons have enough runs; in none of these is ACE clearly ahead of the "
                                    "method it extends, or behind it.")
    assert [list(texts.values()) for texts in table([ahead, near, few, none])] == [
        ["A accuracy, higher is better", "ODE-Net", "+1.983", "+1.912 to +2.055", "3 pairs", "ACE is ahead"],
        ["E NegLL, lower is better", "GRU-ODE-Bayes", "+2.0 nats", "−0.5 to +4.5", "3 pairs", "undecided"],
        ["D AUC on a part of the data, higher is better", "Latent-ODE", "+0.25", "", "2 and 1 runs",
         "undecided: only 1 run of Latent-ODE, 3 are needed"],
        ["F MSE, higher is better", "GRU-ODE-Bayes", "", "", "", "undecided: GRU-ODE-Bayes is not measured"]]
    (even,) = table([judge(contest(values(99.55, 99.62, 99.49), values(99.50, 99.60, 99.56)))])
    assert (even["Difference"], even["95% interval"]) == ("+0.00", "−0.16 to +0.16")  # the same decimals


def test_a_silhouette_is_told_apart_from_measures_of_prediction() -> None:
    silhouette, undecided = judge(contest(BETTER, WORSE, predicts=False)), judge(contest(BETTER, BETTER))
    assert prediction_note([silhouette, undecided, undecided]).endswith("in any of the 2 measures of prediction.")
    assert prediction_note([silhouette, judge(contest(BETTER, WORSE))]) == prediction_note([undecided]) == ""


def full(name: str, method: str, numbers: list[float], data: str = "full", partial: bool = False, *,
         folds: bool = False, **given: object) -> list[Entry]:
    """Return a finished run for each value, with seeds from 0."""
    metric = experiments.get(name).metric.name
    return [replace(entry(method, value, experiment=name, data=data, seed=seed, metric=metric,
                          **{"fold": seed} if folds else {}, **given), partial=partial)
            for seed, value in enumerate(numbers)]


def test_every_column_with_both_methods_is_a_contest() -> None:
    none = {c.title: c for c in contests(measure_all([]))}
    assert (none["CIFAR10 silhouette"].host, none["USHCN climate NegLL"].host) == ("ODE-Net", "GRU-ODE-Bayes")
    assert len(none) == 10  # three image sets, silhouette, USHCN twice, PhysioNet thrice, Human Activity
    assert [title for title, c in none.items() if not c.predicts] == ["CIFAR10 silhouette"]
    entries = [*full("mnist", "ace", [0.99, 0.991, 0.992], epochs=40),
               *full("mnist", "odenet", [0.98, 0.9811, 0.9822], epochs=40),
               *full("ushcn", "ace", [0.5, 0.51, 0.52, 0.53, 0.54], folds=True),
               *full("ushcn", "gru-ode-bayes", [0.6, 0.612, 0.624, 0.636, 0.648], folds=True),
               *full("svhn", "ace", [0.9] * 3, epochs=40), *full("svhn", "odenet", [0.8] * 3, epochs=20)]
    measured = {c.title: c for c in contests(measure_all(entries))}
    mnist, ushcn, svhn = (measured[f"{name}"] for name in ("MNIST accuracy", "USHCN climate MSE", "SVHN accuracy"))
    assert mnist.ace == pytest.approx({(0, 0): 99.0, (1, 0): 99.1, (2, 0): 99.2})  # in the printed unit
    assert (judge(mnist).verdict, judge(mnist).pairs, mnist.unit) == ("ahead", 3, " points")
    assert judge(mnist).advantage == pytest.approx(0.99)
    assert set(ushcn.ace) == {(0, i) for i in range(5)}  # folds are paired too, and lower errors are better
    assert judge(ushcn).verdict == "ahead"
    assert judge(svhn).reason == "the methods were trained for different numbers of epochs"


def only(name: str, *entries: Entry) -> Compared:
    (one,) = compared(experiments.get(name), entries)
    return one


def test_the_head_of_a_page_compares_ace_with_its_host() -> None:
    ace = full("cifar10", "ace", list(HOST), epochs=40)
    one = only("cifar10", *ace, *full("cifar10", "odenet", [0.80, 0.81, 0.82], epochs=40))
    assert (one.verdict, one.measure, one.where) == ("ahead", "accuracy", "on the full data")
    assert (one.ace.title, one.ace.value, one.ace.cell) == ("ACE-ODE-Net", "91.00 ± 1.00%", "cifar10/ace/accuracy")
    assert (one.host.title, one.host.value, one.repeats, one.numbers) == (
        "ODE-Net", "81.00 ± 1.00%", "3 seeds, 40 of 160 epochs",
        "difference +10.00 points, 95% interval +10.00 to +10.00")
    few = only("cifar10", *ace[:1], *full("cifar10", "odenet", [0.8], epochs=40))
    assert (few.verdict, few.numbers) == ("open", "only 1 run of ACE, 3 are needed")
    part = only("activity", *(run for method in ("ace", "latent-ode")
                              for run in full("activity", method, [0.7, 0.9, 0.8], partial=True)))
    assert (part.verdict, part.where) == ("open", "on a part of the data")
    both = [replace(run, test={"mse": 0.5 + 0.01 * run.seed, "negll": 1.0 + 0.1 * run.seed})
            for method in ("ace", "gru-ode-bayes") for run in full("ushcn", method, [0.5, 0.6, 0.7])]
    assert [each.measure for each in compared(experiments.get("ushcn"), both)] == ["MSE", "NegLL"]
    sample = [run for method in ("ace", "odenet") for run in full("cifar10", method, list(HOST), "sample")]
    for entries in ([], ace, sample):  # nothing is said unless both are measured on the full data
        assert compared(experiments.get("cifar10"), entries) == []


def test_named_variables_are_compared_with_the_model_without_attention() -> None:
    one = only("oscillators", *full("oscillators", "ace", [0.02, 0.03, 0.025], "sample"),
               *full("oscillators", "no-attention", [0.31, 0.30, 0.32], "sample"))
    assert (one.verdict, one.measure, one.where, one.host.title) == ("ahead", "MSE", "", "No attention")
    assert one.numbers.startswith("difference −0.285, 95% interval ")
    assert one.repeats == "3 seeds, 80 epochs"
    assert one.host.runs == tuple(f"oscillators-no-attention-{seed}-0.0" for seed in range(3))
