"""Which runs form a group, and statistics over their seeds against arithmetic by hand."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from catalogue_entries import entry, full

from acenode.compare.groups import IGNORED, differing, grouped_frame, runs_frame
from acenode.compare.verdict import compare_groups, over_seeds
from acenode.runs.catalogue import Entry


def names(entries: list[Entry], by: str = "settings") -> list[str]:
    return grouped_frame(entries, by)["group"].unique().tolist()


def test_statistics_over_seeds_and_folds() -> None:
    def row(*entries: Entry) -> pd.Series:
        return over_seeds(grouped_frame(entries), "test").iloc[0]

    found = row(entry(value=0.90), entry(value=0.94, seed=1), entry(value=None, seed=2))
    assert (found["mean"], found["std"]) == (pytest.approx(0.92), pytest.approx(0.0282842712))  # over n - 1
    assert (found["n"], found["seeds"]) == (2, [0, 1])  # a run without a value does not count
    found = row(entry(value=0.5, created=2.0), entry(value=0.9, created=1.0))  # the latest of a seed counts
    assert (found["n"], found["mean"]) == (1, 0.5)
    assert pd.isna(found["std"])
    found = row(entry(value=None))
    assert found["n"] == 0
    assert pd.isna(found["mean"])
    found = row(*(entry("gru-d", 0.1 * (n + 1), experiment="ushcn", fold=n) for n in range(3)))
    assert (found.name, found["n"], found["seeds"], found["mean"]) == ("GRU-D", 3, [0, 0, 0], pytest.approx(0.2))


def test_what_groups_are_called_and_what_is_never_mixed() -> None:
    runs = [entry(), entry(seed=1, snapshots=3, device="cpu", analysis=False)]
    assert names(runs) == ["ACE-ODE-Net"]
    assert {"seed", "fold", "device", "snapshots", "analysis"} <= IGNORED
    assert names([entry(value=0.9), entry(value=0.5, experiment="cifar10"), entry(data="full")]) == [
        "mnist ACE-ODE-Net (sample)", "cifar10 ACE-ODE-Net (sample)", "mnist ACE-ODE-Net (full)"]
    assert names([entry(data="full"), replace(entry(data="full", seed=1), partial=True)]) == [
        "ACE-ODE-Net (full)", "ACE-ODE-Net (full, partial)"]
    both = grouped_frame([entry(value=0.9), entry(value=0.7, schedule="joint")], "method")
    assert over_seeds(both, "test")["n"].tolist() == [2]
    assert names([entry(), entry(attention="fixed"), entry("odenet")], "attention") == [
        "attention=evolving", "attention=fixed", "attention=–"]


def test_the_papers_value_is_shown_for_its_own_settings_only() -> None:
    others = [full(schedule="joint"), full(epochs=1), entry(), replace(full(), partial=True)]
    assert runs_frame([full(), full(size="large"), *others])["paper"].tolist() == ["99.68 ± 0.03", "99.58", *[""] * 4]


def test_values_on_other_data_are_neither_mixed_nor_compared() -> None:
    runs = [entry("gru-d", experiment="ushcn", sample=s) for s in ("climate", "ou", "ou")]
    assert names(runs, "method") == ["GRU-D (sample=climate) (targets=3)", "GRU-D (sample=ou) (targets=1)"]
    first, second = names(runs)
    found = compare_groups(grouped_frame(runs), first).groups
    assert found["comparable"].tolist() == [True, False]
    assert not found["best"].any()
    assert grouped_frame(runs, "method")["question"].iloc[-1] == found["question"][second]


def test_only_differing_settings_are_listed() -> None:
    assert differing([entry(), entry(seed=1, snapshots=3, device="cpu")]) == []
    assert differing([entry(), entry(seed=1)], ignored=frozenset()) == ["seed"]
    assert differing([entry(), entry(rtol=1e-5)]) == ["rtol"]
    assert "experiment" in differing([entry(), entry(experiment="svhn")])
    old = entry(experiment="ushcn")
    old = replace(old, config={k: v for k, v in old.config.items() if k != "g"})  # added later, with a default
    assert differing([old, entry(experiment="ushcn", g="rows")]) == []
    assert differing([old, entry(experiment="ushcn", g="matrix")]) == ["g"]
