"""Influence and what if of a run, learned couplings against known ones, and what docs/named.md says of them."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from acenode import experiments
from acenode.compare import result_charts
from acenode.compare.influence import (
    FoundCoupling,
    Held,
    Influence,
    coupling_text,
    forecast_with,
    incoming_shares,
    is_uniform,
    named_influence,
    score,
    trained_task,
)
from acenode.errors import UserError
from acenode.execution.execute import create, execute
from acenode.runs.store import Run, RunStore

PAPER = Path(__file__).parents[2] / "runs" / "paper"
SMALL = {"epochs": 1, "batch_size": 32, "units": 8, "recognition": 8, "block": 2, "step_size": 0.2, "device": "cpu"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("named")
    made = create(RunStore(root), experiments.get("stocks").configure("ace", **SMALL))
    assert execute(made, root).state == "finished"
    return made


def test_influence_of_a_run(run, tmp_path):
    found = named_influence(trained_task(run, tmp_path))
    assert found.names[:2] == ("GOOG", "AAPL")
    assert found.influence.shape == found.attention.shape == (11, 6, 6)
    assert np.allclose(found.attention.sum(-1), 1)
    assert (found.influence > 0).all()
    assert found.scores() == {}  # nobody knows the links
    reported = np.array(run.result()["influence"]["mean"])
    assert found.influence.mean(0) == pytest.approx(reported, abs=1e-3)


def test_what_if_is_in_own_units(run, tmp_path):
    series = run.result()["records"][0]["id"]
    found = forecast_with(trained_task(run, tmp_path), series, [Held("AAPL", 2.0, 11.0, 13.0)])
    assert found.t[-1] == 15.0  # weeks
    assert found.held[found.t < 13, 1] == pytest.approx(2.0)
    assert 0.5 < found.without.mean() < 3
    assert np.abs(found.difference[-1]).max() > 0
    quiet = forecast_with(trained_task(run, tmp_path), series, [Held("GOOG", 0.0, 0.0, 20.0, source="AAPL")])
    assert np.abs(quiet.difference).max() > 0
    with pytest.raises(UserError, match="no series"):
        forecast_with(trained_task(run, tmp_path), "nobody", [])
    with pytest.raises(UserError, match="no variable 'IBM'"):
        forecast_with(trained_task(run, tmp_path), series, [Held("IBM", 2.0, 11.0, 13.0)])


def test_the_page_says_where_attention_and_influence_differ():
    known = [[0, 1.0, 0], [0, 0, 1.0], [0, 0, 0]]
    attention = [[0.1, 0.5, -0.6], [-0.2, 0.0, 0.2], [0.1, 0.0, -0.1]]
    same = [[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.4, 0.3, 0.3]]
    other = [[0.1, 0.1, 0.8], [0.8, 0.1, 0.1], [0.3, 0.5, 0.1]]
    for influence, words in ((same, "agree on"), (other, "differ on")):
        found = result_charts.read({"coupling": {"names": ["a", "b", "c"], "known": known, "learned": attention,
                                                 "influence": influence}}).coupling
        assert any(words in text for text in found.words()), found.words()
        assert list(found.shares()) == ["known", "learned", "influence"]
    assert any(text.startswith("Influence: 0 of 2 known links") for text in found.words())


def test_influence_and_attention_are_scored_apart():
    found = Influence(("a", "b", "c", "d"), np.zeros(1), KNOWN[None], 1 - KNOWN[None], KNOWN)
    assert {name: s.auroc for name, s in found.scores().items()} == {"attention": 0.0, "influence": 1.0}


KNOWN = np.array([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0.0]])


@pytest.mark.parametrize(("learned", "auroc", "recovered", "verdict"), [
    (0.1 * KNOWN + 5 * np.eye(4), 1.0, 3, " better than chance"),  # the diagonal is no link, however strong
    (-KNOWN, 0.0, 0, " worse than chance"), (np.ones((4, 4)), 0.5, 1, "no better than chance"),
    (np.where(KNOWN > 0, np.nan, 0.0), 0.0, 0, " worse than chance")])  # missing values are the weakest
def test_couplings_are_ranked(learned, auroc, recovered, verdict):
    found = score(KNOWN, learned)
    assert (found.links, found.pairs, found.recovered, found.auroc) == (3, 12, recovered, auroc)
    assert found.recovered_by_chance == pytest.approx(9 / 12)
    assert f"{recovered} of 3 known links recovered (by chance 0.8); AUROC {auroc:.2f}, " in found.text
    assert verdict in found.text


def test_the_range_of_chance_holds_95_percent_of_random_rankings():
    rng = np.random.default_rng(0)
    known = (rng.random((8, 8)) < 0.25) * 1.0
    found = [score(known, rng.random((8, 8))) for _ in range(400)]
    assert 0.92 < np.mean([s.chance[0] <= s.auroc <= s.chance[1] for s in found]) < 0.98
    assert np.mean([s.recovered for s in found]) == pytest.approx(found[0].recovered_by_chance, rel=0.1)
    for other in (np.zeros((3, 3)), np.ones((3, 3)), np.ones((2, 3))):  # links and pairs without one are needed
        assert score(other, np.ones((3, 3))) is None


def test_shares_of_the_incoming_flow_have_one_unit():
    shares = incoming_shares(np.array([[9.0, 3.0, 1.0], [2.0, 0.0, 2.0], [0.0, 0.0, 7.0]]))
    np.testing.assert_allclose(shares[0, 1:], [0.25, -0.25])
    np.testing.assert_allclose(shares[1, [0, 2]], 0.0)  # uniform
    assert np.isnan(shares[2]).all()  # nothing flows in
    assert np.isnan(np.diag(shares)).all()


def test_the_strongest_influences_are_named_and_equal_rows_noticed():
    shares = np.array([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7], [0.3, 0.0, 0.7]])
    assert coupling_text(FoundCoupling(("a", "b", "c"), None, shares, 3), 2) == "b ← c (70%), a ← b (50%)"
    assert is_uniform(np.array([[0.3, 0.7], [0.31, 0.69]]))
    assert not is_uniform(np.array([[0.3, 0.7], [0.7, 0.3]]))


# Recorded runs show what docs/named.md says ---------------------------------------------------------------------------


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
