"""Where data sets are kept."""

import os
from pathlib import Path

from acenode.errors import UserError
from acenode.files import user_cache


def data_dir(explicit: Path | str | None = None) -> Path:
    """Return the data folder: `explicit`, else ACENODE_DATA, else `acenode` in the user's cache folder."""
    if explicit is not None:
        return Path(explicit).expanduser()
    if named := os.environ.get("ACENODE_DATA"):
        return Path(named).expanduser()
    try:
        return user_cache() / "acenode"
    except RuntimeError as error:  # an account without a home folder
        raise UserError("there is no home folder to keep data in: set ACENODE_DATA to a folder") from error
