"""Messages to the user, text that Markdown must not interpret, and commands as they work in the user's terminal."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import sysconfig
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

from acenode.errors import UserError

MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~$:&])")
PROGRAM = "acenode"


@cache
def words() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "assets" / "words.toml").read_text(encoding="utf-8"))


def escape(text: str) -> str:
    """Return Markdown that shows the text literally, on one line."""
    return MARKDOWN.sub(r"\\\1", text.replace("\n", " "))


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def invalid(reason: object) -> None:
    st.error(escape(str(reason)), icon=":material/block:")


def warning(text: object, icon: str = "warning") -> None:
    """Show what should be known before what follows is trusted."""
    st.warning(escape(str(text)), icon=f":material/{icon}:")


def error(reason: object) -> None:
    st.error(escape(str(reason)), icon=":material/error:")


def notify(text: object) -> None:
    st.toast(escape(str(text)), icon=":material/info:")


def attempt(action: Callable[..., object], *given: object) -> None:
    """Call an action; its error, such as that of a run which has ended meanwhile, is a notice."""
    try:
        action(*given)
    except (UserError, OSError) as error:
        notify(error)


def commands(text: str) -> str:
    """Return commands, one a line, with the program as it can be called where the app was started."""
    return re.sub(rf"^{PROGRAM} ", lambda match: f"{program()} ", text, flags=re.MULTILINE)


def program() -> str:
    """Return `acenode` if the terminal finds it, else its path, as after `make app`: `.venv/bin/acenode`."""
    if shutil.which(PROGRAM):
        return PROGRAM
    script = shutil.which(PROGRAM, path=sysconfig.get_path("scripts"))
    if script is None:
        return f"{shlex.quote(sys.executable)} -m acenode.cli"
    path, folder = Path(script), Path.cwd()
    return shlex.quote(str(path.relative_to(folder) if path.is_relative_to(folder) else path))
