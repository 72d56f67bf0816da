"""List all runs of a folder; files are read again only after they have changed."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from acenode.runs.entry import UNREADABLE, CachedEntry, Entry, read_entry, stamps_of
from acenode.runs.store import Run, RunStore

if TYPE_CHECKING:
    from pandas import DataFrame


class Catalogue:
    """The runs of a folder and the recorded ones, with a cache of their entries. Threads may share one."""

    def __init__(self, store: RunStore) -> None:
        self.store = store
        self._cache: dict[str, CachedEntry] = {}
        self._lock = threading.Lock()

    def entries(self) -> list[Entry]:
        """List the runs of the folder, newest first and unreadable ones last; then the recorded runs, newest first."""
        with self._lock:
            found = [(run, self._entry(run)) for run in self._folders()]
            entries = [entry for run, entry in found if entry.state != UNREADABLE or run.path.is_dir()]
            present = {entry.id for entry in entries}
            self._cache = {name: cached for name, cached in self._cache.items() if name in present}
        newest_first = sorted(entries, key=lambda entry: (entry.created, entry.id), reverse=True)
        return sorted(newest_first, key=lambda entry: entry.recorded)

    def entry(self, run_id: str) -> Entry | None:
        """Return the entry of exactly that id, or None if there is no such folder."""
        run = self.store.find(run_id)
        if run is None:
            return None
        with self._lock:
            return self._entry(run)

    def frame(self) -> DataFrame:
        """Return all runs as a pandas frame, in the order of `entries`; see `entries_frame` for its columns."""
        from acenode.runs.frame import entries_frame  # pandas takes longer to import than runs take to list

        return entries_frame(self.entries())

    def _folders(self) -> list[Run]:
        found: list[Run] = []
        for runs in (self.store, self.store.recorded_runs()):
            with suppress(OSError):  # the folder was removed, or may not be read
                found += runs
        return found

    def _entry(self, run: Run) -> Entry:
        stamps = stamps_of(run)  # before reading, so that a change during reading is read next time
        cached = self._cache.get(run.id)
        if cached is None or not cached.is_valid(stamps):
            cached = self._cache[run.id] = read_entry(run, stamps)
        return cached.entry
