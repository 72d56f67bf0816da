"""An experiment of another package: what the lab offers for it, and what it leaves out."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import pytest

from acenode import experiments
from acenode.cli import main
from acenode.compare.study_answer import references
from acenode.compare.study_grid import kind_of, preset, presets
from acenode.errors import UserError
from acenode.experiments import Experiment

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """Add the experiment of examples/custom_experiment.py to the lab."""
    monkeypatch.syspath_prepend(EXAMPLES)
    found = importlib.import_module("custom_experiment").EXPERIMENT
    monkeypatch.setitem(experiments.EXPERIMENTS, found.name, found)
    return found


def test_it_has_the_presets_whose_settings_it_has(own: Experiment) -> None:
    assert [kind_of(study) for study in presets(own.name)] == ["schedule"]
    with pytest.raises(UserError, match="has no preset 'attention': choose one of schedule"):
        preset(own.name, "attention")


def test_without_ace_it_has_none(own: Experiment, monkeypatch: pytest.MonkeyPatch,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    method = replace(own.methods["ace"], name="plain")
    monkeypatch.setitem(experiments.EXPERIMENTS, own.name, replace(own, methods={"plain": method}))
    assert presets(own.name) == []
    with pytest.raises(UserError, match="has no preset 'attention': it has none"):
        preset(own.name, "attention")
    assert main(["study", "presets", own.name]) == 0
    assert capsys.readouterr().out == ("linear-system has no ready-made studies: make one with `acenode study new NAME "
                                       "linear-system --vary KEY=VALUE,VALUE`\n")


def test_it_has_no_references_and_that_is_no_failure(own: Experiment, tmp_path: Path) -> None:
    assert references(own.configure("ace"), tmp_path, "mse") == ()


def test_it_has_no_full_data(own: Experiment) -> None:
    with pytest.raises(UserError, match="linear-system has no other data: leave --data out"):
        own.configure("ace", "full")
