"""The scripts behind docs/results.md and docs/named.md: draws of targets, changes to ODE-RNN, and scores of links."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from acenode.compare import metric_records
from acenode.data import points
from acenode.errors import UserError
from acenode.experiments.forecast_errors import ObservedTargets
from acenode.runs.store import RunStore

DOCS = Path(__file__).parent.parent / "docs"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_other_draws_of_the_targets() -> None:
    """Two series with five times each, one value a time; the k-th squared error is k²."""
    series, k = np.repeat([0, 1], 5), np.tile(np.arange(5.0), 2)
    at = ObservedTargets(series, np.zeros(10, int), 150 + k, k, np.zeros(10))
    redraw = script("ushcn_errors").redraw
    assert redraw(at, 3, draws=4) == pytest.approx((0 + 1 + 4) / 3)  # three of the first three: no choice
    among_all = redraw(at, 100, draws=4000)
    assert among_all.mean() == pytest.approx(np.mean(k**2), rel=0.02)
    assert among_all.min() >= 5 / 3


def test_intervals_of_the_published_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before point i the gap from i − 2 to i − 1, reversed; before the second point the whole span."""
    monkeypatch.setattr(points, "euler_steps", points.euler_steps)
    script("ode_rnn_changes").intervals()
    t = np.array([0.0, 0.01, 0.025, 1.0], np.float32)
    found = points.euler_steps(t, backwards=False)
    assert found.dt.tolist() == pytest.approx([-0.01, 1.0, -0.01, -0.015])
    assert found.point.tolist() == [0, 1, 2, 3]


def test_links_above_a_strength(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Three variables: the strong link is found by the attention, the weak ones are not; and the recorded runs."""
    module = script("named_links")
    result = {"coupling": {"known": [[0, 0.9, 0.2], [0, 0, 0.3], [0, 0, 0]]},
              "attention": {"mean": [[0, 3, 0], [1, 0, 0], [1, 1, 0]]}}
    assert module.scores(result, 0.5) == {"attention": 1.0}
    assert module.scores(result, 0.0)["attention"] == pytest.approx(1 / 3)
    monkeypatch.setattr(sys, "argv", ["named_links.py"])
    module.main()
    out = capsys.readouterr().out
    assert "correlation: 0.900" in out
    assert "ace, 3 runs: attention 0.821, influence 0.831" in out


def test_settings_are_compared_on_validation_data_alone(tmp_path: Path) -> None:
    tried = script("try_settings")
    assert tried.settings("default") == {}
    assert tried.settings("penalty_weight=0.1,attention_in=both") == {"penalty_weight": 0.1, "attention_in": "both"}
    assert tried.measure("ushcn") == "negll"  # which selects the epoch, not the mean squared error
    with pytest.raises(UserError, match="did you mean penalty_weight"):  # before the default is trained
        tried.main(["mnist", "default", "penalty_wieght=0", "--data", "sample", "--folder", str(tmp_path)])
    with pytest.raises(UserError, match="seed comes from --seeds"):
        tried.main(["mnist", "seed=3", "--data", "sample", "--folder", str(tmp_path)])
    assert not list(RunStore(tmp_path))
    small = "batch_size=700"
    command = [sys.executable, str(DOCS / "try_settings.py"), "mnist", small, "--data", "sample", "--epochs", "1",
               "--device", "cpu", "--folder", str(tmp_path)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (run,) = RunStore(tmp_path)
    (record,) = metric_records.read(run).epochs
    first = record["validation_accuracy"]
    assert f"| {small} | {first:.4f} | 0: {first:.4f} (1) |" in printed
    assert run.result() is None  # not tested
    together = [*command, "--seeds", "0-2", "--together"]
    printed = subprocess.run(together, check=True, capture_output=True, text=True).stdout
    runs = sorted(RunStore(tmp_path), key=lambda run: run.config().seed)
    assert [run.config().seed for run in runs] == [0, 1, 2]  # seed 0 is not trained again
    assert f"0: {first:.4f} (1), 1: " in printed
    assert all("trained as one computation" in (run.path / "log.txt").read_text() for run in runs[1:])
    assert subprocess.run(together, check=True, capture_output=True, text=True).stdout == printed
