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
        assert min(r["links"][kind] for r in own) >= max(0.9, *(r["links"][kind] for r in mixed))
    assert max(r["test"]["mse"] for r in own) < min(r["test"]["mse"] for r in mixed)


@pytest.mark.parametrize(("name", "evolves"), [
    ("oscillators", True), ("predator-prey", True), ("la-speeds", True), ("ny-speeds", True), ("stocks", False),
    ("air-quality", True), ("liver", True)])
def test_recorded_runs_beat_a_constant_and_their_attention_evolves(name, evolves):
    """A penalty that is too large holds g at zero, and a(t) stays a(0)."""
    found, paths = results(f"{name}-ace"), sorted(PAPER.glob(f"{name}-ace-2*"))
    assert found
    for result in found:
        if name == "liver":
            assert result["test"]["auc"] > result["references"]["majority class"]["auc"]
        else:
            assert result["test"]["mse"] < result["references"]["mean"]["mse"]
    for run in map(Run, paths if evolves else ()):
        weights = softmax(run.snapshot(run.snapshots()[-1])["a"].astype(float), -1)  # (times, samples, V, V)
        assert np.ptp(weights, axis=0).max() > 0.05
