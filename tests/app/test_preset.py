"""The values a form starts with when an earlier run is repeated with changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from acenode_app.experiment import preset

from acenode import experiments

PHYSIONET = experiments.get("physionet")


def entry(**changed: Any) -> Any:
    config = PHYSIONET.configure("ace").to_dict() | changed
    return SimpleNamespace(method="ace", data="sample", config=config)


def test_constants_that_differ_in_an_older_run_are_named() -> None:
    assert preset._no_longer_set(PHYSIONET, entry(gru_units=6), {}) == ["gru_units=6"]


def test_nothing_is_named_for_a_run_of_this_version() -> None:
    assert preset._no_longer_set(PHYSIONET, entry(), {}) == []
