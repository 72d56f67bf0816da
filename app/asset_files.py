"""Where the browser's files are: the app's own, and the trajectory player, which reports use as well."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from acenode.player import assets as player_assets

FOLDERS = (Path(__file__).parent / "assets", player_assets.FOLDER)


def find(name: str) -> Path | None:
    """Return the file of this name, or None."""
    return next((folder / name for folder in FOLDERS if (folder / name).is_file()), None)


@cache
def version() -> str:
    """Return a hash of all files: part of their address, so that a browser keeps them until one changes."""
    contents = (p.read_bytes() for folder in FOLDERS for p in sorted(folder.iterdir()) if p.is_file())
    return hashlib.sha256(b"".join(contents)).hexdigest()[:12]
