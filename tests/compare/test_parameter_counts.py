"""Counts of parameters are kept, so that a table of runs is printed without building models."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from acenode import experiments
from acenode.cli import main
from acenode.compare import fairness

MNIST = experiments.get("mnist")


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fairness._known_counts.cache_clear()
    fairness.count.cache_clear()
    yield
    fairness._known_counts.cache_clear()
    fairness.count.cache_clear()


def test_counts_are_those_of_the_model_and_independent_of_the_seed() -> None:
    for method, given in (("resnet", {}), ("ace", {"size": "large"}), ("ace", {})):
        for seed in (0, 1):
            config = MNIST.configure(method, "full", seed=seed, **given)
            assert fairness.count(config) == MNIST.count(config)
    assert len(fairness._known_counts()) == 3
    fairness._known_counts.cache_clear()
    fairness.count.cache_clear()
    assert len(fairness._known_counts()) == 3


@pytest.mark.parametrize("text", ["", "{", "[]", '{"code": 1, "counts": {"x": 1}}', '{"code": 1, "counts": 3}'])
def test_counts_of_another_version_or_damaged_ones_are_not_used(text: str) -> None:
    path = fairness._counts_file()
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert fairness._known_counts() == {}
    config = MNIST.configure("resnet", "full")
    assert fairness.count(config) == MNIST.count(config)


def test_a_changed_file_of_a_model_makes_other_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    fairness.count(MNIST.configure("resnet", "full"))
    fairness._known_counts.cache_clear()
    fairness.count.cache_clear()
    monkeypatch.setattr(fairness, "_code", lambda: 7)
    assert fairness._known_counts() == {}


def test_a_second_table_needs_no_torch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["table", "mnist", "--runs", str(tmp_path)]
    assert main(words) == 0
    code = f"import sys; from acenode.cli import main; main({words!r}); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == capsys.readouterr().out
