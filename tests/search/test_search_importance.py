"""Importance of the settings of a search equals Optuna's PED-ANOVA."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import warnings
from typing import Any

import pytest

from acenode.config.ranges import SearchRange, read_ranges
from acenode.search.journal import TrialRecord
from acenode.search.results import importance


def drawn(one: SearchRange, numbers: random.Random) -> Any:
    if one.values:
        return numbers.choice(one.values)
    assert one.low is not None
    assert one.high is not None
    if one.log:
        found = math.exp(numbers.uniform(math.log(one.low), math.log(one.high)))
        return round(found) if one.whole else found
    return numbers.randint(int(one.low), int(one.high)) if one.whole else numbers.uniform(one.low, one.high)


def trials_of(ranges: tuple[SearchRange, ...], count: int, lacking: str = "") -> list[TrialRecord]:
    """Draw trials whose value depends on the first setting most; every third lacks a setting, if one is named."""
    numbers, found = random.Random(count), []
    for i in range(count):
        params = {one.key: drawn(one, numbers) for one in ranges if one.key != lacking or i % 3}
        value = -(math.log10(params[ranges[0].key]) + 1) ** 2 + 0.3 * numbers.gauss(0, 1)
        value += 0.2 * len(str(params.get(ranges[-1].key, "")))
        found.append(TrialRecord(i, "finished", params, value))
    return found


def by_optuna(ranges: tuple[SearchRange, ...], trials: list[TrialRecord], higher: bool) -> dict[str, float]:
    optuna = pytest.importorskip("optuna")
    kinds: dict[str, Any] = {}
    for one in ranges:
        if one.values:
            kinds[one.key] = optuna.distributions.CategoricalDistribution(list(one.values))
        else:
            kind = optuna.distributions.IntDistribution if one.whole else optuna.distributions.FloatDistribution
            kinds[one.key] = kind(one.low, one.high, log=one.log)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(direction="maximize" if higher else "minimize")
        study.add_trials([optuna.trial.create_trial(
            params=t.params, distributions={key: kinds[key] for key in t.params}, value=t.value) for t in trials])
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=min(0.5, max(0.1, 5 / len(trials))))
        return optuna.importance.get_param_importances(study, evaluator=evaluator)


@pytest.mark.parametrize(("over", "count", "lacking"), [
    ("learning_rate=log:1e-3..1, momentum=0..0.9", 10, ""),
    ("learning_rate=log:1e-3..1, momentum=0..0.9, f_layers=1..2", 300, ""),
    ("learning_rate=log:1e-3..1, batch_size=log:16..512, attention=evolving,fixed,none", 120, ""),
    ("learning_rate=log:1e-3..1, momentum=0..0.9, penalty_weight=0,1e-4,1e-3", 120, "momentum"),
    ("learning_rate=log:1e-3..1, units=2..200", 60, ""),
    ("learning_rate=1e-3,1e-2,1e-1", 40, "")])
@pytest.mark.parametrize("higher", [True, False])
def test_importance_equals_optunas(over: str, count: int, lacking: str, higher: bool) -> None:
    ranges = read_ranges([over])
    trials = trials_of(ranges, count, lacking)
    ours, theirs = importance(ranges, trials, higher), by_optuna(ranges, trials, higher)
    assert list(ours) == list(theirs)
    for key, share in theirs.items():
        assert ours[key] == pytest.approx(share, rel=1e-6, abs=1e-9)


def test_importance_needs_ten_finished_trials_within_their_ranges() -> None:
    ranges = read_ranges(["learning_rate=log:1e-3..1"])
    trials = trials_of(ranges, 12)
    assert importance(ranges, trials[:9], True) == {}
    assert importance(ranges, trials, True) == {"learning_rate": pytest.approx(1)}
    assert importance(read_ranges(["learning_rate=log:2..9"]), trials, True) == {}  # the file was edited


def test_importance_imports_neither_optuna_nor_scikit_learn() -> None:
    code = ("import sys, acenode.search.results\n"
            "assert not {'optuna', 'sklearn', 'scipy', 'torch'} & sys.modules.keys(), 'imported'")
    subprocess.run([sys.executable, "-c", code], check=True)
