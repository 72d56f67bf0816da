"""What several commands need: the folder of runs, and JSON output.

Commands import what they need when they run, so that `acenode --help` is quick.
"""

from __future__ import annotations

import json
import os
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acenode.errors import UserError

if TYPE_CHECKING:
    from acenode.runs.store import RunStore


def run_store(options: Namespace) -> RunStore:
    """Open the folder of runs: --runs, else ACENODE_RUNS, else runs/."""
    from acenode.runs.store import RunStore

    root = os.environ.get("ACENODE_RUNS") or "runs" if options.runs is None else options.runs
    if not root:
        raise UserError("--runs needs the name of a folder")
    if Path(root).exists() and not Path(root).is_dir():
        raise UserError(f"{root} is not a folder: choose another with --runs DIR")
    return RunStore(root)


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, allow_nan=False))
