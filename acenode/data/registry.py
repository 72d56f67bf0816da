"""Every data set that can be downloaded or prepared, by name, and downloads in background threads."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from acenode.data.activity import ACTIVITY
from acenode.data.images import IMAGE_SOURCES
from acenode.data.physionet import PHYSIONET
from acenode.data.source import DataSource, DataState
from acenode.data.ushcn import USHCN
from acenode.errors import UserError
from acenode.files import Stamp, stamp

DATA_SOURCES: dict[str, DataSource[Any]] = {
    **IMAGE_SOURCES, **{source.name: source for source in (PHYSIONET, ACTIVITY, USHCN)}}


def source_of(name: str, sources: Mapping[str, DataSource[Any]] = DATA_SOURCES) -> DataSource[Any]:
    """Return the data set of that name; the error lists the names there are."""
    if name not in sources:
        raise UserError(f"there is no data set {name!r}: choose one of {', '.join(sources)}")
    return sources[name]


@dataclass(frozen=True)
class FetchState:
    """Progress of a download: `done` of `total` bytes of the file `label`. `data` is the state of the prepared file."""

    name: str
    data: DataState
    phase: Literal["idle", "running", "done", "failed"] = "idle"
    done: int = 0
    total: int | None = None
    label: str = ""
    error: str | None = None


class Fetcher:
    """Prepares data sets, with at most one download of a set at a time. Threads may share one."""

    def __init__(self, data_root: Path, sources: Mapping[str, DataSource[Any]] = DATA_SOURCES) -> None:
        self.data_root, self.sources = data_root, sources
        self._fetches: dict[str, dict[str, Any]] = {}  # what FetchState says of each download, replaced as a whole
        self._checked: dict[str, tuple[Stamp | None, DataState]] = {}
        self._starting, self._checking = threading.Lock(), threading.Lock()

    def start(self, name: str) -> None:
        source = source_of(name, self.sources)
        with self._starting:
            if self._fetches.get(name, {}).get("phase") == "running":
                return
            self._fetches[name] = {"phase": "running"}
            threading.Thread(target=self._work, args=(name, source), name=f"acenode-fetch-{name}", daemon=True).start()

    def state(self, name: str) -> FetchState:
        """Return the progress; the prepared file is checked again only after it has changed."""
        source = source_of(name, self.sources)
        with self._checking:  # one thread reads a hundred megabytes, the others wait for its result
            now, known = stamp(source.path(self.data_root)), self._checked.get(name)
            if known is None or known[0] != now:
                known = self._checked[name] = now, source.check(self.data_root)
        return FetchState(name, known[1], **self._fetches.get(name, {}))

    def _work(self, name: str, source: DataSource[Any]) -> None:
        def show(done: int, total: int | None, label: str) -> None:
            self._fetches[name] = {"phase": "running", "done": done, "total": total, "label": label}

        error = None
        try:
            source.prepare(self.data_root, show)
        except UserError as failure:
            error = str(failure)
        except Exception as failure:  # otherwise the download would stay `running` for ever
            error = f"{type(failure).__name__}: {failure}".splitlines()[0]
        self._fetches[name] = {**self._fetches[name], "phase": "failed" if error else "done", "error": error}
