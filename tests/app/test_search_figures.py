"""The charts of a search: which trials they show, and where."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from acenode_app.results.search_figures import MOST, SearchFigures, sampled, whole_ticks

from acenode.compare.metrics import metric_format
from acenode.config.ranges import SearchRange
from acenode.search.journal import TrialRecord

RATE, ATTENTION = SearchRange("learning_rate", 0.001, 1.0, True), SearchRange("attention", values=("evolving", "none"))


def trial(number: int, value: float | None, state: str = "finished", **params: Any) -> TrialRecord:
    return TrialRecord(number, state, params or {"learning_rate": 0.1, "attention": "none"}, value)


def drawn(*trials: TrialRecord, metric: str = "accuracy") -> SearchFigures:
    sign = -1 if metric == "accuracy" else 1
    done = sorted((t for t in trials if t.state == "finished"), key=lambda t: (sign * (t.value or 0), t.number))
    found: Any = SimpleNamespace(search=SimpleNamespace(ranges=(RATE, ATTENTION)), trials=trials,
                                 measure=metric_format(metric), ranked=lambda: done)
    return SearchFigures(found)


@pytest.mark.parametrize(("metric", "best"), [("accuracy", [90, 95]), ("mse", [0.9, 0.8])])
def test_the_best_trial_so_far_leaves_out_pruned_ones(metric: str, best: list[float]) -> None:
    trials = [trial(0, 0.9), trial(1, 0.99, "pruned"), trial(2, 0.8), trial(3, 0.95), trial(4, None, "running")]
    pruned, finished, line = drawn(*trials, metric=metric).best().data
    assert (list(pruned.x), list(finished.x)) == ([1], [0, 2, 3])
    assert list(line.y)[:2] == pytest.approx(best)
    assert line.x[-1] == 3


def test_many_trials_are_sampled_with_the_best_among_them() -> None:
    trials = [trial(n, n * 7919 % 10007 / 10007) for n in range(10_000)]
    ranked = [t.number for t in sorted(trials, key=lambda t: -(t.value or 0))]
    few = [t.number for t in sampled(trials, ranked)]
    assert 400 < len(few) <= MOST
    assert few == sorted(few)
    assert set(ranked[:50]) <= set(few)


def test_slices_have_the_settings_and_mark_the_best_trial() -> None:
    found = drawn(trial(0, 0.9, learning_rate=0.5, attention="evolving"), trial(1, 0.95, learning_rate=0.01))
    rate, attention = found.slice(RATE), found.slice(ATTENTION)
    assert list(rate.data[1].x) == [0.5, 0.01]
    assert list(rate.data[2].x) == [0.01]
    assert rate.layout.xaxis.type == "log"
    assert list(attention.layout.xaxis.ticktext) == ["evolving", "none"]
    assert abs(attention.data[1].x[0]) <= 0.5


@pytest.mark.parametrize(("low", "high", "log", "ticks"), [
    (1, 2, False, [1, 2]), (2, 8, True, [2, 3, 4, 5, 6, 7, 8]), (1, 64, False, [])])
def test_whole_numbers_have_whole_ticks(low: int, high: int, log: bool, ticks: list[int]) -> None:
    assert whole_ticks(SearchRange("f_layers", low, high, log)) == ticks
    assert whole_ticks(SearchRange("learning_rate", low, high, log)) == []


def test_parallel_coordinates_have_a_labelled_axis_for_each_setting_and_the_value() -> None:
    figure = drawn(trial(0, 0.9), trial(1, 0.95, learning_rate=0.0316227766)).parallel()
    assert list(figure.layout.xaxis.ticktext) == ["Learning rate", "Attention", "Validation<br>accuracy (%)"]
    assert [a.text for a in figure.layout.annotations] == ["0.001", "1", "evolving", "none", "90", "95"]
    assert list(figure.data[-1].x) == [2, 2]
    best = figure.data[2]
    assert list(best.y) == [pytest.approx(0.5), None, 1, None]
