"""The colour of each class, the same in the player, in the app's charts and in reports.

The player has the same list in player/colours.js; a test compares the two.
"""

from __future__ import annotations

CLASS_COLOURS = ("#4e79a7", "#f28e2b", "#e15759", "#3fa7a0", "#59a14f", "#d0a215", "#b07aa1", "#f06292", "#9c755f",
                 "#8a8f98")


def class_colour(k: int) -> str:
    """Return the colour of class k; classes after the tenth get hues that are far from their neighbours'."""
    return CLASS_COLOURS[k] if 0 <= k < len(CLASS_COLOURS) else f"hsl({k * 137.5 % 360:g}, 55%, 52%)"
