"""The numbers of a comparison, against arithmetic by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from acenode_app import filters, groups

from acenode import experiments
from acenode.results import metric_format
from acenode.runs.catalogue import Entry

ACCURACY = metric_format.of("accuracy", "mnist")


def entry(method: str = "ace", value: float | None = 0.9, *, experiment: str = "mnist", data: str = "sample",
          seed: int = 0, created: float = 0.0, **given: Any) -> Entry:
    config = experiments.get(experiment).configure(method, data, seed=seed, **given).to_dict()
    config.pop("format")
    name = f"{experiment}-{method}-{seed}-{created}"
    return Entry(id=name, path=Path(name), state="finished", experiment=experiment, method=method, data=data, seed=seed,
                 config=config, created=created, value=value, metric="accuracy", test={"accuracy": value})


def value(e: Entry) -> float | None:
    return e.value


def test_mean_and_sample_deviation_over_seeds() -> None:
    (group,) = groups.gather([entry(value=0.90), entry(value=0.94, seed=1), entry(value=None, seed=2)], "settings")
    found = group.statistic(value)
    assert found.mean == pytest.approx(0.92)
    assert found.std == pytest.approx(0.0282842712)  # over n - 1
    assert found.text(ACCURACY) == "92.00 ± 2.83%"
    assert len(found.values) == 2  # a run without a number is none of them


def test_the_latest_run_of_a_seed_counts() -> None:
    (group,) = groups.gather([entry(value=0.5, created=2.0), entry(value=0.9, created=1.0)], "settings")
    assert group.statistic(value).values == (0.5,)


def test_one_seed_has_no_deviation() -> None:
    (group,) = groups.gather([entry(value=0.9)], "settings")
    assert group.statistic(value).text(ACCURACY) == "90.00%"


def test_experiments_and_data_are_never_mixed() -> None:
    found = groups.gather([entry(value=0.9), entry(value=0.5, experiment="cifar10"), entry(data="full")], "settings")
    assert [g.name for g in found] == ["mnist ACE-ODE-Net (sample)", "cifar10 ACE-ODE-Net (sample)",
                                       "mnist ACE-ODE-Net (full)"]


def test_numbers_of_other_data_are_neither_mixed_nor_compared() -> None:
    runs = [entry("gru-d", experiment="ushcn", sample=s) for s in ("climate", "ou", "ou")]
    by_method = groups.gather(runs, "method")
    assert [g.name for g in by_method] == ["GRU-D (sample=climate) (targets=3)", "GRU-D (sample=ou) (targets=1)"]
    first, second = groups.gather(runs, "settings")
    assert groups.question(first) != groups.question(second) == groups.question(by_method[1])
    assert groups.best([first, second], value) == []


def test_grouped_by_method_every_setting_counts() -> None:
    (group,) = groups.gather([entry(value=0.9), entry(value=0.7, schedule="joint")], "method")
    assert len(group.statistic(value).values) == 2


def test_grouped_by_a_setting() -> None:
    found = groups.gather([entry(), entry(attention="fixed"), entry("odenet")], "attention")
    assert [g.name for g in found] == ["attention=evolving", "attention=fixed", "attention=–"]


def test_the_distance_from_the_baseline() -> None:
    base, other = groups.gather([entry("odenet", 0.95), entry(value=0.9)], "settings")
    assert groups.difference(other.statistic(value), base.statistic(value), ACCURACY) == "−5.00"
    assert groups.difference(other.statistic(lambda e: None), base.statistic(value), ACCURACY) == "–"


def test_the_papers_number_stands_beside_its_own_settings_alone() -> None:
    def printed(**given: Any) -> str | None:
        return groups.gather([entry(**given)], "settings")[0].printed

    assert printed(data="full") == "99.68 ± 0.03"
    assert printed(data="full", size="large") == "99.58"
    assert printed() is None  # the sample
    assert printed(data="full", schedule="joint") is None
    assert printed(data="full", epochs=1) is None


def test_only_differing_settings_are_listed() -> None:
    assert groups.differing([entry(), entry(seed=1)]) == []
    assert groups.differing([entry(), entry(rtol=1e-5)]) == ["rtol"]
    assert "experiment" in groups.differing([entry(), entry(experiment="svhn")])


def test_search_knows_settings_notes_and_tags() -> None:
    one = entry(schedule="joint")
    assert filters.fits(one, "")
    assert filters.fits(one, "schedule=joint MNIST")
    assert not filters.fits(one, "schedule=joint svhn")
