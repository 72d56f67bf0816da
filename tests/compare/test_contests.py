"""All cells measured from runs, and ACE beside its host method."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from catalogue_entries import entry

from acenode.compare.against_host import contests
from acenode.compare.cells import (
    MARKS,
    Measured,
    difference_text,
    mark,
    mark_legend,
    mark_text,
    mean_text,
    measure_all,
    params_text,
    printed_text,
    repeats_text,
    shown_mark,
    terminal_legend,
)
from acenode.compare.paper import CELLS
from acenode.compare.verdict import judge
from acenode.runs.catalogue import Entry


def full(method: str, value: float, experiment: str = "mnist", metric: str = "accuracy", **given: Any) -> Entry:
    found = entry(method, value, experiment=experiment, data="full", **given)
    return dataclasses.replace(found, metric=metric, test={metric: value})


def test_every_column_with_both_methods_is_a_contest() -> None:
    found = {c.title: c.host for c in contests(measure_all([]))}
    assert found["CIFAR10 accuracy"] == found["CIFAR10 silhouette"] == "ODE-Net"
    assert found["USHCN climate MSE"] == found["USHCN climate NegLL"] == "GRU-ODE-Bayes"
    assert len(found) == 10  # three image sets, silhouette, USHCN twice, PhysioNet thrice, Human Activity
    assert all(judge(c).reason == "ACE is not measured" for c in contests(measure_all([])))


def test_values_are_paired_by_seed_in_the_printed_unit() -> None:
    entries = [full("ace", 0.99 + 0.001 * seed, seed=seed, epochs=40) for seed in range(3)]
    entries += [full("odenet", 0.98 + 0.0011 * seed, seed=seed, epochs=40) for seed in range(3)]
    (contest,) = [c for c in contests(measure_all(entries)) if c.title == "MNIST accuracy"]
    assert contest.ace == pytest.approx({(0, 0): 99.0, (1, 0): 99.1, (2, 0): 99.2})
    finding = judge(contest)
    assert (finding.verdict, finding.pairs) == ("ahead", 3)
    assert finding.advantage == pytest.approx(0.99)
    assert contest.unit == " points"


def test_folds_are_paired_too_and_lower_errors_are_better() -> None:
    entries = [full("ace", 0.5 + 0.01 * fold, "ushcn", "mse", seed=fold, fold=fold) for fold in range(5)]
    entries += [full("gru-ode-bayes", 0.6 + 0.012 * fold, "ushcn", "mse", seed=fold, fold=fold) for fold in range(5)]
    (contest,) = [c for c in contests(measure_all(entries)) if c.title == "USHCN climate MSE"]
    assert set(contest.ace) == {(0, i) for i in range(5)}
    assert judge(contest).verdict == "ahead"


def test_different_lengths_are_not_compared() -> None:
    entries = [full("ace", 0.99, seed=s, epochs=40) for s in range(3)]
    entries += [full("odenet", 0.98, seed=s, epochs=20) for s in range(3)]
    (contest,) = [c for c in contests(measure_all(entries)) if c.title == "MNIST accuracy"]
    assert judge(contest).reason == "the methods were trained for different numbers of epochs"


def test_texts_of_a_cell() -> None:
    cell = CELLS["mnist/ace/accuracy"]  # 99.68 ± 0.03 in the paper
    measured = measure_all([full("ace", v, seed=s, epochs=40) for s, v in enumerate((0.9950, 0.9960))])[cell.key]
    assert printed_text(cell) == "99.68 ± 0.03"
    assert mean_text(cell, measured) == "99.55 ± 0.07"
    assert difference_text(cell, measured) == "−0.13"
    assert repeats_text(measured) == "2 seeds, 40 of 160 epochs"
    assert mark_text(measured) == "▼ worse"
    sized = dataclasses.replace(measured, entries=(dataclasses.replace(measured.entries[0], params=283_338),))
    assert (cell.printed.params, params_text(cell, sized)) == ("0.28M", "0.28M")
    assert params_text(CELLS["ushcn/ace/mse"], sized) == ""  # the paper prints none
    assert mean_text(cell, Measured()) == "–"
    assert (difference_text(cell, Measured()), repeats_text(Measured())) == ("", "")
    single = measure_all([full("ace", 0.9, epochs=40)])[cell.key]
    assert (single.mark, shown_mark(single), mark_text(single)) == ("worse", "single", "◇ one run")
    assert mark_text(Measured()) == "○ not measured"
    near = dataclasses.replace(measured, difference=-0.001)
    assert difference_text(cell, near) == "0.00"


def test_marks_are_told_apart_without_colours() -> None:
    assert len({m.symbol for m in MARKS.values()}) == len({m.word for m in MARKS.values()}) == 6
    assert all(f"{m.symbol} {m.word}" in mark_legend() for m in MARKS.values())


def test_the_legend_states_the_whole_rule_of_the_marks() -> None:
    """A mean outside the paper's deviation is still within, if the standard error with our own runs is larger."""
    cell = CELLS["mnist/ace/accuracy"]
    assert cell.printed.std is not None
    outside = cell.printed.mean + 2 * cell.printed.std
    assert mark(cell, outside, 10 * cell.printed.std, 3) == "within"
    assert mark(cell, outside, cell.printed.std, 3) == "better"
    for legend in (mark_legend(), terminal_legend()):
        assert "the larger of two numbers: the paper's standard deviation, and the standard error" in legend
        assert "our own runs" in legend
