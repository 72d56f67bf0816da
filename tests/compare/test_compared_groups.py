"""Chosen runs in groups: the answer in words and the table, against arithmetic by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from catalogue_entries import entry

from acenode.compare.groups import grouped_frame
from acenode.compare.verdict import ComparedGroups, compare_groups, comparison_table
from acenode.runs.entry import Entry

HOST = (0.90, 0.91, 0.92)


def runs(method: str, values: tuple[float | None, ...], first: int = 0) -> list[Entry]:
    return [entry(method, value, seed=first + n) for n, value in enumerate(values)]


def found(entries: list[Entry], baseline: str = "ODE-Net") -> ComparedGroups:
    return compare_groups(grouped_frame(entries), baseline)


def row(of: ComparedGroups, name: str) -> dict[str, str]:
    table = comparison_table(of)
    return next(dict(zip(table.heads, cells, strict=True)) for cells in table.rows if cells[0].startswith(name))


def test_a_clear_difference_helps() -> None:
    answer = found([*runs("odenet", HOST), *runs("ace", (0.92, 0.93, 0.942))])
    (text, *_) = answer.sentences
    # differences 2, 2, 2.2 points: mean 2.0667, s = 0.11547, t(2) = 4.3027, half = 0.28684
    assert text == ("ACE-ODE-Net helps: accuracy +2.07 points against ODE-Net, 95% interval +1.78 to +2.35, 3 seeds.")
    assert row(answer, "ACE")["Difference (95% interval)"] == "+2.07 (+1.78 to +2.35)"
    assert row(answer, "ACE-ODE-Net (best)")["Effect"] == "helps"
    assert row(answer, "ODE-Net (baseline)")["Effect"] == "baseline"


def test_two_seeds_cannot_tell() -> None:
    answer = found([*runs("odenet", HOST[:2]), *runs("ace", (0.95, 0.96))])
    assert "cannot be told with 2 seeds" in answer.sentences[0]
    assert not answer.groups["best"].any()
    assert row(answer, "ACE")["Effect"] == "cannot be told"


def test_only_seeds_of_both_groups_count() -> None:
    answer = found([*runs("odenet", HOST), *runs("ace", (0.92, 0.93, 0.99), first=1)])
    assert answer.comparisons["ACE-ODE-Net"].pairs == 2
    assert answer.comparisons["ACE-ODE-Net"].difference == pytest.approx(0.01)
    apart = found([*runs("odenet", HOST), *runs("ace", HOST, first=7)])
    assert apart.sentences == ["ACE-ODE-Net: no run of ODE-Net with the same seed has finished yet."]
    assert row(apart, "ACE")["Difference (95% interval)"] == "+0.00 (other seeds)"


def test_runs_on_other_data_are_not_compared() -> None:
    answer = found([*runs("odenet", HOST), entry(value=0.99, data="full")], "ODE-Net (sample)")
    assert answer.sentences == []
    assert row(answer, "ACE")["Effect"] == "not comparable"


def test_validation_values_are_named() -> None:
    entries = [replace(e, best=e.value, value=None) for e in [*runs("odenet", HOST), *runs("ace", HOST)]]
    answer = found(entries)
    assert answer.sentences[0].startswith("ACE-ODE-Net makes no difference")
    assert answer.sentences[-1] == "These are validation values, because ODE-Net has no test result."


def test_folds_are_called_folds() -> None:
    def folds(method: str, shift: float) -> list[Entry]:
        return [replace(entry(method, 0.5 + 0.01 * n + shift, experiment="ushcn", fold=n), metric="mse")
                for n in range(5)]

    answer = found([*folds("gru-ode-bayes", 0.0), *folds("augmented", 0.1)], "GRU-ODE-Bayes")
    (text,) = answer.sentences
    assert text.endswith("5 folds.")
    assert " hurts: MSE +0.100 against GRU-ODE-Bayes" in text  # lower is better
