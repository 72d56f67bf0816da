"""The lab of this process: where runs are, who trains them, what is being downloaded. One for all tabs and users."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from acenode.catalogue import Catalogue
from acenode.data.store import data_dir
from acenode.fetching import Fetcher
from acenode.runs import RunStore

if TYPE_CHECKING:
    from acenode.launch import Launcher  # needs torch, which takes seconds to import


@dataclass(frozen=True)
class Lab:
    """What the pages work with."""

    store: RunStore
    data_root: Path
    launcher: Launcher
    catalogue: Catalogue
    fetcher: Fetcher


_lock = threading.Lock()
_lab: Lab | None = None


def make(runs: Path | str, data_root: Path) -> Lab:
    """A lab over a folder of runs; what a dead process left there is marked interrupted."""
    from acenode.launch import Launcher

    store = RunStore(runs)
    launcher = Launcher(store, data_root)
    launcher.recover()
    return Lab(store, data_root, launcher, Catalogue(store), Fetcher(data_root))


def lab() -> Lab:
    """The one lab, made when it is first asked for."""
    global _lab
    with _lock:
        if _lab is None:
            _lab = make(os.environ.get("ACENODE_RUNS") or "runs", data_dir())
        return _lab


def use(other: Lab | None) -> Lab | None:
    """Put another lab in its place (None: a new one at the next call); the one before."""
    global _lab
    with _lock:
        before, _lab = _lab, other
        return before


def close() -> None:
    """Ask what runs to write a checkpoint and stop."""
    before = use(None)
    if before is not None:
        before.launcher.close()
