"""Find the recorded runs that come with the project: runs on the full data, kept in a compact form."""

from __future__ import annotations

from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


@cache
def recorded_runs() -> Path | None:
    """Return the folder of recorded runs, or None if there is none.

    An installed package has them inside itself, the repository in runs/paper.
    """
    folders = (PACKAGE / "recorded", PACKAGE.parent / "runs" / "paper")
    return next((folder for folder in folders if folder.is_dir()), None)
