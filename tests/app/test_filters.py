"""The search field of the lists of runs."""

from __future__ import annotations

from acenode_app import filters
from catalogue_entries import entry


def test_search_matches_settings_and_experiments() -> None:
    one = entry(schedule="joint")
    assert filters.matches(one, "")
    assert filters.matches(one, "schedule=joint MNIST")
    assert not filters.matches(one, "schedule=joint svhn")
