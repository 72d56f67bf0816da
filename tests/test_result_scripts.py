"""The scripts behind docs/results.md and docs/named.md: draws of targets, and scores of links."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from acenode.experiments.forecast_errors import ObservedTargets

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
