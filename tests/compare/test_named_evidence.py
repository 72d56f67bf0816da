"""The recorded runs on named variables show what docs/named.md says."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from acenode.runs.store import Run

PAPER = Path(__file__).parents[2] / "runs" / "paper"


def results(start: str) -> list[dict]:
    return [json.loads((run / "result.json").read_text()) for run in sorted(PAPER.glob(f"{start}-2*"))]


def test_attention_and_influence_find_who_drives_whom():
    own, mixed = results("oscillators-ace"), results("oscillators-mixed")
    assert len(own) == len(mixed) == 3
    for kind in ("attention", "influence"):
        assert min(r["links"][kind] for r in own) >= 0.9
        assert min(r["links"][kind] for r in own) > max(r["links"][kind] for r in mixed)
    assert max(r["test"]["mse"] for r in own) < min(r["test"]["mse"] for r in mixed)


@pytest.mark.parametrize("name", ["oscillators", "predator-prey", "la-speeds", "ny-speeds", "stocks", "air-quality"])
def test_every_recorded_forecast_is_better_than_the_mean(name):
    found = results(f"{name}-ace")
    assert found
    assert all(r["test"]["mse"] < r["references"]["mean"]["mse"] for r in found)


def test_liver_patients_are_told_apart_better_than_by_chance():
    assert all(r["test"]["auc"] > r["references"]["majority class"]["auc"] for r in results("liver-ace"))


@pytest.mark.parametrize("name", ["oscillators", "predator-prey", "la-speeds", "ny-speeds", "liver", "air-quality"])
def test_attention_between_named_variables_evolves(name):
    """A penalty that is too large holds g at zero, and a(t) stays a(0)."""
    paths = sorted(PAPER.glob(f"{name}-ace-2*"))
    assert paths
    for path in paths:
        run = Run(path)
        weights = softmax(run.snapshot(run.snapshots()[-1])["a"].astype(float), -1)  # (times, samples, V, V)
        assert np.ptp(weights, axis=0).max() > 0.05
