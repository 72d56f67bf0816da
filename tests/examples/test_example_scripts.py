"""The scripts in examples/ run, and do what they say."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from acenode import experiments
from acenode.execution.execute import create, execute
from acenode.runs.store import RunStore

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def _examples_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", ["example"])
    monkeypatch.setattr(experiments, "EXPERIMENTS", dict(experiments.EXPERIMENTS))


def run(name: str) -> Any:
    return importlib.import_module(name).main()


def test_every_example_is_tested_and_named_in_the_documentation() -> None:
    source, page = Path(__file__).read_text(), (EXAMPLES.parent / "docs" / "own-model.md").read_text()
    for script in EXAMPLES.glob("*.py"):
        assert f'run("{script.stem}")' in source
        assert f"examples/{script.name}" in page


def test_ace_in_your_network() -> None:
    assert run("ace_in_your_network") > 0.9


def test_custom_task() -> None:
    assert run("custom_task") < 0.2  # of the error before training


def test_custom_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("custom_experiment") < 0.3
    assert "finished" in capsys.readouterr().out


def test_the_custom_experiment_uses_seed_and_batch_size(tmp_path: Path) -> None:
    entry = importlib.import_module("custom_experiment").EXPERIMENT
    experiments.EXPERIMENTS[entry.name] = entry

    def error(**given: Any) -> float:
        config = entry.configure("ace", epochs=1, device="cpu", **given)
        return execute(create(RunStore(tmp_path), config), tmp_path).metrics["mse"]

    first = error(seed=0)
    assert error(seed=0) == first
    assert error(seed=1) != first
    assert error(seed=0, batch_size=16) != first


def test_seeds_of_the_custom_task_share_the_data_that_compares_them() -> None:
    task = importlib.import_module("custom_task").LinearSystem
    (start, _), (other, _) = (task(seed).held_out("test") for seed in (0, 1))
    assert torch.equal(start, other)
    assert not torch.equal(start, task(0).held_out("validation")[0])
    assert not torch.equal(task(0).batch(0, 0)[0], task(1).batch(0, 0)[0])


def test_load_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    labels, forecast, prices = run("load_a_run")
    assert len(labels) == 2
    assert np.isfinite(forecast).all()
    assert prices.shape == (4, 6)
    assert 0.5 < prices.min() <= prices.max() < 2
    assert "forecast at [8.]" in capsys.readouterr().out


@pytest.mark.long
def test_distributed_training(capfd: pytest.CaptureFixture[str]) -> None:
    run("distributed_training")
    out = capfd.readouterr().out
    assert "same parameters everywhere: True" in out
    before, after = (float(word) for word in out.replace(",", "").split() if word[0].isdigit())
    assert after < before / 2
