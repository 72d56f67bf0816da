"""The lab of this process: where runs are, who trains them, what is being downloaded. One for all tabs and users."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from acenode.data.background_fetch import Fetcher
from acenode.data.folder import data_dir
from acenode.runs.catalogue import Catalogue
from acenode.runs.store import RunStore

if TYPE_CHECKING:
    from acenode.execution.launcher import Launcher


class Lab:
    """What the pages work with."""

    def __init__(self, runs: Path | str, data_root: Path) -> None:
        self.store, self.data_root = RunStore(runs), data_root
        self.catalogue, self.fetcher = Catalogue(self.store), Fetcher(data_root)
        self._making = threading.Lock()
        self._launcher: Launcher | None = None

    @property
    def launcher(self) -> Launcher:
        """Made when it is first asked for, since it needs torch, which takes seconds to import; what a dead process
        left running is marked interrupted then."""
        with self._making:
            if self._launcher is None:
                from acenode.execution.launcher import Launcher

                self._launcher = Launcher(self.store, self.data_root)
                self._launcher.recover()
            return self._launcher

    @property
    def ready(self) -> bool:
        """Whether the launcher is there to be asked."""
        return self._launcher is not None

    def close(self) -> None:
        """Ask what runs to write a checkpoint and stop."""
        with self._making:
            if self._launcher is not None:
                self._launcher.close()


_lock = threading.Lock()
_lab: Lab | None = None


def lab() -> Lab:
    """The one lab, made when it is first asked for."""
    global _lab
    with _lock:
        if _lab is None:
            _lab = Lab(os.environ.get("ACENODE_RUNS") or "runs", data_dir())
        return _lab


def use(other: Lab | None) -> Lab | None:
    """Put another lab in its place (None: a new one at the next call); the one before."""
    global _lab
    with _lock:
        before, _lab = _lab, other
        return before


def close() -> None:
    """Close the one lab, if there is one."""
    before = use(None)
    if before is not None:
        before.close()
