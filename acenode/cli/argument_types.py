"""Read the values of command-line options strictly."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Literal

from acenode.config.vocabulary import check
from acenode.errors import UserError


def integer(text: str) -> int:
    """Read an integer in plain digits; int() would also take 1_0 and digits of other scripts."""
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text.strip()):
        raise ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def epoch(text: str) -> int | Literal["all"]:
    """Read the number of an epoch, or `all`."""
    return "all" if text == "all" else integer(text)


def device(text: str) -> str:
    """Read the name of a device."""
    try:
        return check("device", text)
    except UserError as error:
        raise ArgumentTypeError(str(error)) from None


def path(text: str) -> Path:
    """Read a path; an empty one would be the current folder."""
    if not text.strip():
        raise ArgumentTypeError("it needs the name of a file or folder")
    return Path(text)
