"""Commands that start other programs of the package: app, bench."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from argparse import Namespace

from acenode.cli.common import run_store
from acenode.errors import UserError


def app(options: Namespace) -> int:
    """Replace this process by the app's server; the library does not import the app."""
    if importlib.util.find_spec("acenode_app") is None or importlib.util.find_spec("streamlit") is None:
        raise UserError("the app is not installed: run `make app` in the repository, or install acenode[app]")
    if options.port is not None and not 1 <= options.port <= 65535:
        raise UserError(f"--port takes a number from 1 to 65535, not {options.port}")
    root = run_store(options).root.resolve()
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")  # glibc keeps freed memory for every thread that answers requests
    words = [sys.executable, "-P", "-m", "acenode_app", f"--runs={root}", f"--address={options.address}"]
    words += [f"--port={options.port}"] if options.port is not None else []
    words += [f"--allow-host={name}" for name in options.allow_host]
    words += ["--headless"] if options.headless else []
    if options.on is not None:
        from acenode.execution.cluster.address import check_answer
        from acenode.execution.cluster.ray_cluster import RayCluster, address_of

        check_answer(RayCluster(address_of(options.on)).address)  # an error is shown here already
        words.append(f"--on={options.on}")
    os.execv(sys.executable, words + (["--no-token"] if options.no_token else []))
