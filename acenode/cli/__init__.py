"""`acenode`: the command line. Every error that a user can cause is one line on stderr and exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

from acenode.cli.parser import make_parser
from acenode.errors import UserError

PACKAGES = {"sklearn": "scikit-learn"}  # whose names differ from those of their modules


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; docs/command-line.md lists the codes."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # a terminal without UTF-8 gets replacements
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    options = make_parser().parse_args(arguments)
    try:
        return options.run(options)
    except UserError as error:
        print(f"acenode: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package in ("", "acenode", "acenode_app"):
            raise
        print(f"acenode: {package} is not installed: run `pip install {PACKAGES.get(package, package)}`",
              file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe has closed it
        sys.stderr.close()
        return 0
    except OSError as error:
        print(f"acenode: {error.strerror or error}: {error.filename or 'a file'} could not be read or written",
              file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("acenode: interrupted", file=sys.stderr)
        return 130
