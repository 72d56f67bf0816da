"""The runs of a study that players show side by side: one of each group, all of the same seed or fold."""

from __future__ import annotations

from collections.abc import Mapping

from acenode.compare.study_grid import GridRow, StudyGrid
from acenode.runs.entry import Entry
from acenode.runs.studies import Repeat

MOST_PLAYERS = 4  # side by side
ATTENTION = ("evolving", "fixed")  # are shown first, in this order


def playable(grid: StudyGrid, *, finished: bool = False) -> dict[Repeat, dict[str, Entry]]:
    """Return the runs with snapshots by seed and group, groups with evolving attention first.

    Args:
        grid: the study.
        finished: with runs that have a value only, else also with those that train.
    """
    found: dict[Repeat, dict[str, Entry]] = {}
    for row in sorted(grid.rows, key=_order):
        for cell in row.cells:
            entry = cell.entry
            if entry is not None and (cell.value is not None or not finished) and entry.run.snapshots():
                found.setdefault(cell.repeat, {})[row.name] = entry
    return {repeat: found[repeat] for repeat in grid.study.repeats if repeat in found}


def fullest(found: Mapping[Repeat, Mapping[str, Entry]]) -> Repeat | None:
    """Return the seed or fold with runs of most groups, the first of several; None if there is no run."""
    return max(found, key=lambda repeat: len(found[repeat]), default=None)


def _order(row: GridRow) -> int:
    """Sort evolving attention before fixed attention, and both before the others."""
    kind = row.config.get("attention")
    return ATTENTION.index(kind) if kind in ATTENTION else len(ATTENTION)
