"""Find the recorded runs that come with the project: runs on the full data, kept in a compact form."""

from __future__ import annotations

import os
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


def repository_folder() -> Path | None:
    """Return the folder in which the repository keeps recorded runs, or None in an installed package."""
    return PACKAGE.parent / "runs" / "paper" if (PACKAGE.parent / "pyproject.toml").is_file() else None


def chosen_recorded_runs() -> Path | None:
    """Return the folder in the environment variable ACENODE_RECORDED, or the project's own.

    If the variable is empty, no recorded runs are read. For the command line and the app, which pass it to `RunStore`.
    """
    chosen = os.environ.get("ACENODE_RECORDED")
    if chosen is None:
        return recorded_runs()
    return Path(chosen) if chosen else None
