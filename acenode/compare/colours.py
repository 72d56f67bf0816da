"""Colours that all figures share: one for each run or group, and one for each class.

The player has the colours of the classes in js/colours.js; a test compares the two.
"""

from __future__ import annotations

PALETTE = ("#2b62d9", "#d9662b", "#2a9d74", "#a24bc9", "#c9a227", "#d63864", "#4aa3c7", "#7a6f5d", "#7fb23f", "#8b7be8")
NEUTRAL = "#8a94a3"  # visible on light and dark: for what belongs to no run
CLASS_COLOURS = ("#4e79a7", "#f28e2b", "#e15759", "#3fa7a0", "#59a14f", "#d0a215", "#b07aa1", "#f06292", "#9c755f",
                 "#8a8f98")


def class_colour(k: int) -> str:
    """Return the colour of class k; classes after the tenth get hues that are far from their neighbours'."""
    return CLASS_COLOURS[k] if 0 <= k < len(CLASS_COLOURS) else f"hsl({k * 137.5 % 360:g}, 55%, 52%)"
