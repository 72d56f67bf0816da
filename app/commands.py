"""Commands that a page shows, as they work in a terminal in the folder where the app was started."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

NAME = "acenode"


def here(text: str) -> str:
    """Return commands, one a line, with the program as it can be called from here."""
    return re.sub(rf"^{NAME} ", lambda match: f"{program()} ", text, flags=re.MULTILINE)


def program() -> str:
    """Return `acenode` if the terminal finds it, else its path, as after `make app`: `.venv/bin/acenode`."""
    if shutil.which(NAME):
        return NAME
    script = shutil.which(NAME, path=sysconfig.get_path("scripts"))
    if script is None:
        return f"{shlex.quote(sys.executable)} -m acenode.cli"
    path, folder = Path(script), Path.cwd()
    return shlex.quote(str(path.relative_to(folder) if path.is_relative_to(folder) else path))
