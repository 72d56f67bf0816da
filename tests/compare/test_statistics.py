"""Statistics over seeds, against arithmetic by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from catalogue_entries import entry

from acenode.compare import groups, statistics
from acenode.compare.groups import IGNORED, differing
from acenode.compare.verdict import compare_groups
from acenode.runs.catalogue import Entry


def names(entries: list[Entry], by: str = "settings") -> list[str]:
    return groups.grouped_frame(entries, by)["group"].unique().tolist()


def over_seeds(entries: list[Entry], by: str = "settings") -> pd.DataFrame:
    """Return the statistics of the test values."""
    return statistics.over_seeds(groups.grouped_frame(entries, by), "test")


def test_mean_and_sample_deviation_over_seeds() -> None:
    found = over_seeds([entry(value=0.90), entry(value=0.94, seed=1), entry(value=None, seed=2)]).iloc[0]
    assert found["mean"] == pytest.approx(0.92)
    assert found["std"] == pytest.approx(0.0282842712)  # over n - 1
    assert found["n"] == 2  # a run without a value does not count
    assert found["seeds"] == [0, 1]


def test_the_latest_run_of_a_seed_counts() -> None:
    found = over_seeds([entry(value=0.5, created=2.0), entry(value=0.9, created=1.0)]).iloc[0]
    assert (found["n"], found["mean"]) == (1, 0.5)


def test_one_seed_has_no_deviation() -> None:
    found = over_seeds([entry(value=0.9)]).iloc[0]
    assert found["mean"] == 0.9
    assert pd.isna(found["std"])


def test_a_group_without_values() -> None:
    found = over_seeds([entry(value=None)]).iloc[0]
    assert found["n"] == 0
    assert pd.isna(found["mean"])


def test_folds_are_repetitions_like_seeds() -> None:
    runs = [entry("gru-d", 0.1 * (n + 1), experiment="ushcn", fold=n) for n in range(3)]
    found = over_seeds(runs)
    assert found.index.tolist() == ["GRU-D"]
    assert (found["n"].iloc[0], found["seeds"].iloc[0]) == (3, [0, 0, 0])
    assert found["mean"].iloc[0] == pytest.approx(0.2)


def test_recording_settings_and_the_device_do_not_make_another_group() -> None:
    runs = [entry(), entry(seed=1, snapshots=3, device="cpu", analysis=False)]
    assert names(runs) == ["ACE-ODE-Net"]
    assert differing(runs) == []
    assert {"seed", "fold", "device", "snapshots", "analysis"} <= IGNORED


def test_experiments_and_data_are_never_mixed() -> None:
    assert names([entry(value=0.9), entry(value=0.5, experiment="cifar10"), entry(data="full")]) == [
        "mnist ACE-ODE-Net (sample)", "cifar10 ACE-ODE-Net (sample)", "mnist ACE-ODE-Net (full)"]


def test_values_on_other_data_are_neither_mixed_nor_compared() -> None:
    runs = [entry("gru-d", experiment="ushcn", sample=s) for s in ("climate", "ou", "ou")]
    assert names(runs, "method") == ["GRU-D (sample=climate) (targets=3)", "GRU-D (sample=ou) (targets=1)"]
    first, second = names(runs)
    found = compare_groups(groups.grouped_frame(runs), first).groups
    assert found["comparable"].tolist() == [True, False]
    assert not found["best"].any()
    by_method = groups.grouped_frame(runs, "method")
    assert by_method["question"].iloc[-1] == found["question"][second]


def test_grouped_by_method_every_setting_counts() -> None:
    assert over_seeds([entry(value=0.9), entry(value=0.7, schedule="joint")], "method")["n"].tolist() == [2]


def test_grouped_by_a_setting() -> None:
    assert names([entry(), entry(attention="fixed"), entry("odenet")], "attention") == [
        "attention=evolving", "attention=fixed", "attention=–"]


def test_the_difference_to_the_baseline() -> None:
    runs = groups.grouped_frame([entry("odenet", 0.95), entry(value=0.9), entry(value=None, schedule="joint")])
    found = compare_groups(runs, "ODE-Net").groups
    assert found["difference"]["ACE-ODE-Net"] == pytest.approx(-0.05)
    assert pd.isna(found["difference"]["ACE-ODE-Net schedule=joint"])


def test_without_test_values_the_baseline_is_compared_in_validation() -> None:
    def validated(method: str, best: float, last: float) -> Entry:
        return replace(entry(method, None), best=best, last=last)

    runs = groups.grouped_frame([validated("odenet", 0.5, 0.4), validated("ace", 0.75, 0.6)])
    assert compare_groups(runs, "ODE-Net").groups["difference"]["ACE-ODE-Net"] == 0.25
    assert compare_groups(runs, "ODE-Net", "last").groups["difference"]["ACE-ODE-Net"] == pytest.approx(0.2)


def best(entries: list[Entry]) -> list[str]:
    found = compare_groups(groups.grouped_frame(entries), "ODE-Net").groups
    return found.index[found["best"]].tolist()


def test_the_best_group_depends_on_the_direction_of_the_metric() -> None:
    runs = [e for n in range(3) for e in (entry("odenet", 0.8 + 0.01 * n, seed=n), entry(value=0.9, seed=n))]
    assert best(runs) == ["ACE-ODE-Net"]
    assert best([replace(e, metric="loss") for e in runs]) == ["ODE-Net"]


def test_fewer_than_three_seeds_never_give_a_best_group() -> None:
    runs = [e for n in range(3) for e in (entry("odenet", 0.8, seed=n), entry(value=0.9 + 0.01 * n, seed=n))]
    assert best(runs) == ["ACE-ODE-Net"]
    assert best(runs[:4]) == []
    assert best(runs[:-1]) == []  # a third seed of one group only
    assert best([*runs, entry("resnet", 0.99)]) == []  # the best mean is of a single run


def test_groups_whose_difference_may_be_chance_have_no_best() -> None:
    spread = ((0.8, 0.9), (0.9, 0.85), (0.85, 0.95))
    assert best([e for n, (host, ace) in enumerate(spread)
                 for e in (entry("odenet", host, seed=n), entry(value=ace, seed=n))]) == []


def test_the_papers_value_is_shown_for_its_own_settings_only() -> None:
    def printed(**given: Any) -> str:
        return groups.runs_frame([entry(**given)])["paper"].iloc[0]

    assert printed(data="full") == "99.68 ± 0.03"
    assert printed(data="full", size="large") == "99.58"
    assert printed() == ""  # the sample
    assert printed(data="full", schedule="joint") == ""
    assert printed(data="full", epochs=1) == ""


def test_a_part_of_the_data_is_a_group_of_its_own_without_a_value_of_the_paper() -> None:
    runs = [entry(data="full"), replace(entry(data="full", seed=1), partial=True)]
    assert names(runs) == ["ACE-ODE-Net (full)", "ACE-ODE-Net (full, partial)"]
    found = compare_groups(groups.grouped_frame(runs), "ACE-ODE-Net (full)").groups
    assert found["paper"].tolist() == ["99.68 ± 0.03", ""]


def test_only_differing_settings_are_listed() -> None:
    assert differing([entry(), entry(seed=1)]) == []
    assert differing([entry(), entry(seed=1)], ignored=frozenset()) == ["seed"]
    assert differing([entry(), entry(rtol=1e-5)]) == ["rtol"]
    assert "experiment" in differing([entry(), entry(experiment="svhn")])


def test_a_setting_that_older_runs_lack_has_the_value_they_had() -> None:
    old = entry(experiment="ushcn")
    old = replace(old, config={k: v for k, v in old.config.items() if k != "g"})
    assert differing([old, entry(experiment="ushcn", g="rows")]) == []
    assert differing([old, entry(experiment="ushcn", g="matrix")]) == ["g"]
