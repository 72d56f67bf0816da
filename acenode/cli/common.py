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
    from acenode.config import Config
    from acenode.runs.store import RunStore


RECORDED = "recorded"  # `--runs recorded`: the runs that come with the project


def run_store(options: Namespace, *, to_read: bool = False) -> RunStore:
    """Open the folder of runs: --runs, else ACENODE_RUNS, else runs/; the recorded runs are read beside its own.

    Commands that only read (`to_read`) also take `--runs recorded`.
    """
    from acenode.runs.recorded import chosen_recorded_runs
    from acenode.runs.stalled import within_limit
    from acenode.runs.store import RunStore

    if options.runs == RECORDED:
        folder = _recorded_folder(to_read)
        return RunStore(folder, recorded=folder)
    root = os.environ.get("ACENODE_RUNS") or "runs" if options.runs is None else options.runs
    if not root:
        raise UserError("--runs needs the name of a folder")
    try:
        is_file = within_limit(root, lambda: Path(root).exists() and not Path(root).is_dir())
    except TimeoutError as error:
        raise UserError(f"{root} cannot be read: {error.strerror}") from None
    if is_file:
        raise UserError(f"{root} is not a folder: choose another with --runs DIR")
    return RunStore(root, recorded=chosen_recorded_runs())


def _recorded_folder(to_read: bool) -> Path:
    from acenode.runs.recorded import chosen_recorded_runs, recorded_runs

    if not to_read:
        raise UserError("recorded runs can only be read: choose another folder with --runs DIR")
    folder = chosen_recorded_runs() or recorded_runs()
    if folder is None:
        raise UserError("there are no recorded runs in this installation")
    return folder


def data_words(config: Config) -> str:
    """Return what a run is trained on: `sample data`, `full data`, or `your data` for an imported set."""
    from acenode import experiments

    return experiments.YOUR_DATA if experiments.is_imported(config.experiment) else f"{config.data} data"


def print_json(value: Any) -> None:
    """Print a value as JSON; numbers that JSON does not have, which a foreign file may hold, become null."""
    try:
        print(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except ValueError:
        print(json.dumps(json.loads(json.dumps(value), parse_constant=lambda name: None), ensure_ascii=False))
