"""The registry: backends are passed down, and what the lab offers for an experiment of another package."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acenode import experiments
from acenode.backend import Backend
from acenode.cli import main
from acenode.compare.study_answer import references
from acenode.compare.study_grid import kind_of, preset, presets
from acenode.errors import UserError
from acenode.experiments import EXPERIMENTS, Experiment

EXAMPLES = Path(__file__).parents[2] / "examples"
CASES = [(name, method, {}) for name, e in EXPERIMENTS.items() for method in e.methods]
CASES += [("ushcn", "ace", {"attention": "fixed"}), ("physionet", "ace", {"attention_in": "both"}),
          ("physionet", "ace", {"initial": "dense"}), ("mnist", "ace", {"initial": "dense"})]


def test_modules_have_the_backend_of_the_run() -> None:
    for experiment, method, given in CASES:
        entry, backend = EXPERIMENTS[experiment], Backend(accelerated=False, log=print)
        build: Any = entry.make.__self__.build  # type: ignore[union-attr]
        model = build(entry.configure(method, **given), backend)
        assert not [name for name, module in model.named_modules()
                    if getattr(module, "backend", backend) is not backend], (experiment, method, given)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """Add the experiment of examples/custom_experiment.py to the lab."""
    monkeypatch.syspath_prepend(EXAMPLES)
    found = importlib.import_module("custom_experiment").EXPERIMENT
    monkeypatch.setitem(experiments.EXPERIMENTS, found.name, found)
    return found


def test_an_own_experiment_has_the_presets_whose_settings_it_has(
        own: Experiment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert [kind_of(study) for study in presets(own.name)] == ["schedule"]
    with pytest.raises(UserError, match="has no preset 'attention': choose one of schedule"):
        preset(own.name, "attention")
    assert references(own.configure("ace"), tmp_path, "mse") == ()  # none, and that is no failure
    with pytest.raises(UserError, match="linear-system has no other data: leave --data out"):
        own.configure("ace", "full")
    method = replace(own.methods["ace"], name="plain")  # without ACE it has none
    monkeypatch.setitem(experiments.EXPERIMENTS, own.name, replace(own, methods={"plain": method}))
    assert presets(own.name) == []
    with pytest.raises(UserError, match="has no preset 'attention': it has none"):
        preset(own.name, "attention")
    assert main(["study", "presets", own.name]) == 0
    assert capsys.readouterr().out == ("linear-system has no ready-made studies: make one with `acenode study new NAME "
                                       "linear-system --vary KEY=VALUE,VALUE`\n")
