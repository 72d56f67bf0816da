"""Which of several runs a page shows first: one with default settings, whose training the player can follow."""

from __future__ import annotations

from acenode.compare.groups import group_settings
from acenode.runs.entry import Entry

CHOSEN = frozenset({"attention", "epochs"})  # pages choose the attention themselves; the length changes no method


def rank(entry: Entry) -> tuple[int, int, int]:
    """Return a key that sorts the run to show first to the front: fewest changed settings, then most snapshots, then
    the smallest seed."""
    return len(group_settings(entry.config).keys() - CHOSEN), -len(entry.run.snapshots()), entry.seed


def longest_first(entry: Entry) -> tuple[int, int, int, int]:
    """Return a key like `rank` that puts longer training before more snapshots: the runs of the paper's tables."""
    changed, snapshots, seed = rank(entry)
    return changed, -entry.epochs, snapshots, seed
