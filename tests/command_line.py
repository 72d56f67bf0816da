"""Run commands in this process."""

from __future__ import annotations

import io
import shlex
from contextlib import redirect_stderr, redirect_stdout

from acenode.cli import main


def command(line: str, code: int = 0) -> str:
    """Run a command that ends with this code, and return what it prints: for code 2, its errors."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            found = main(shlex.split(line))
        except SystemExit as stop:
            found = int(stop.code or 0)
    assert found == code, err.getvalue()
    return err.getvalue() if code == 2 else out.getvalue()
