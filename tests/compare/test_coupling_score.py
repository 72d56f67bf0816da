"""A learned coupling against the known one: links recovered, AUROC, and what chance would give."""

from __future__ import annotations

import numpy as np
import pytest

from acenode.compare.influence import incoming_shares, score

KNOWN = np.array([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0.0]])


def test_the_right_coupling_has_the_best_score() -> None:
    found = score(KNOWN, 0.1 * KNOWN + 5 * np.eye(4))  # the diagonal is no link, however strong
    assert found is not None
    assert (found.links, found.pairs, found.recovered, found.auroc) == (3, 12, 3, 1.0)
    assert found.recovered_by_chance == pytest.approx(9 / 12)
    assert found.better_than_chance
    assert found.text.startswith("3 of 3 known links recovered (by chance 0.8); AUROC 1.00, better than chance")


def test_the_opposite_and_the_constant_coupling() -> None:
    worst, constant = score(KNOWN, -KNOWN), score(KNOWN, np.ones((4, 4)))
    assert worst is not None
    assert constant is not None
    assert (worst.auroc, worst.recovered) == (0.0, 0)
    assert "worse than chance" in worst.text
    assert constant.auroc == 0.5
    assert "no better than chance" in constant.text


def test_the_range_of_chance_holds_95_percent_of_random_rankings() -> None:
    rng = np.random.default_rng(0)
    known = (rng.random((8, 8)) < 0.25) * 1.0
    found = [score(known, rng.random((8, 8))) for _ in range(400)]
    inside = [s.chance[0] <= s.auroc <= s.chance[1] for s in found if s is not None]
    assert 0.92 < np.mean(inside) < 0.98
    recovered, expected = [s.recovered for s in found if s], [s.recovered_by_chance for s in found if s]
    assert np.mean(recovered) == pytest.approx(expected[0], rel=0.1)


def test_signed_couplings_are_ranked_by_size() -> None:
    signs = score(KNOWN, -KNOWN, signed=True)
    assert signs is not None
    assert signs.auroc == 1.0


def test_missing_values_are_the_weakest() -> None:
    learned = np.where(KNOWN > 0, np.nan, 0.0)
    found = score(KNOWN, learned)
    assert found is not None
    assert found.auroc == 0.0


@pytest.mark.parametrize("known", [np.zeros((3, 3)), np.ones((3, 3)), np.ones((2, 3))])
def test_no_score_without_both_links_and_pairs_without_one(known: np.ndarray) -> None:
    assert score(known, np.ones((3, 3))) is None


def test_shares_of_the_incoming_flow_have_one_unit() -> None:
    shares = incoming_shares(np.array([[9.0, 3.0, 1.0], [2.0, 0.0, 2.0], [0.0, 0.0, 7.0]]))
    np.testing.assert_allclose(shares[0, 1:], [0.25, -0.25])
    np.testing.assert_allclose(shares[1, [0, 2]], 0.0)  # uniform
    assert np.isnan(shares[2]).all()  # nothing flows in
    assert np.isnan(np.diag(shares)).all()
