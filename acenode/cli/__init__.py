"""`acenode`: the command line. Every error that a user can cause is one line on stderr and exit code 2."""

from __future__ import annotations

import importlib.util
import os
import sys
from argparse import Namespace
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


def app(options: Namespace) -> int:
    """Replace this process by the app's server; the library does not import the app."""
    if importlib.util.find_spec("acenode_app") is None or importlib.util.find_spec("streamlit") is None:
        raise UserError("the app is not installed: run `make app` in the repository, or install acenode[app]")
    if options.port is not None and not 1 <= options.port <= 65535:
        raise UserError(f"--port takes a number from 1 to 65535, not {options.port}")
    from acenode.cli.common import run_store

    root = run_store(options).root.resolve()
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")  # glibc keeps freed memory for every thread that answers requests
    words = [sys.executable, "-P", "-m", "acenode_app", f"--runs={root}", f"--address={options.address}"]
    words += [f"--port={options.port}"] if options.port is not None else []
    words += [f"--allow-host={name}" for name in options.allow_host]
    words += ["--headless"] if options.headless else []
    if options.on is not None:
        from acenode.execution.cluster.ray_cluster import RayCluster, address_of, check_address

        check_address(RayCluster(address_of(options.on)).address, connect=True)  # an error is shown here already
        words.append(f"--on={options.on}")
    os.execv(sys.executable, words + (["--no-token"] if options.no_token else []))
