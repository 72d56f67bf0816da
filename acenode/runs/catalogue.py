"""List all runs of a folder; files are read again only after they have changed, also by a new process (`index`)."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from acenode.runs.entry import UNREADABLE, CachedEntry, Entry, Stamps, read_entry, stamps_of
from acenode.runs.index import read_index, worth_keeping, write_index
from acenode.runs.store import Run, RunStore

if TYPE_CHECKING:
    from pandas import DataFrame

INDEXED_AFTER = 200  # runs read that the index lacks, before it is written again


class Catalogue:
    """The runs of a folder and the recorded ones, with a cache of their entries. Threads may share one."""

    def __init__(self, store: RunStore) -> None:
        self.store = store
        self._cache: dict[str, CachedEntry] = {}
        self._lock = threading.Lock()
        self._indexed: int | None = None  # entries in the index on disk; None: not read yet
        self._read_since: set[str] = set()  # runs read since the index was read or written

    def entries(self) -> list[Entry]:
        """List the runs of the folder, newest first and unreadable ones last; then the recorded runs, newest first."""
        with self._lock:
            if self._indexed is None:
                self._cache = read_index(self.store.root) | self._cache
                self._indexed = len(self._cache)
            entries = [entry for entry in self._all_entries() if entry.state != UNREADABLE or entry.path.is_dir()]
            present = {entry.id for entry in entries}
            self._cache = {name: cached for name, cached in self._cache.items() if name in present}
            to_index = self._to_index()
        if to_index:
            write_index(self.store.root, to_index)
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

    def _all_entries(self) -> list[Entry]:
        found: list[Entry] = []
        root = os.fspath(self.store.root)
        with suppress(OSError):  # the folder was removed, or may not be read
            for name in self.store.names():
                stamps = stamps_of(f"{root}/{name}")
                cached = self._cache.get(name)
                valid = cached is not None and cached.is_valid(stamps)
                found.append(cached.entry if cached and valid else self._read(self.store.run_of(name), stamps))
        with suppress(OSError):
            found += [self._entry(run) for run in self.store.recorded_runs()]
        return found

    def _to_index(self) -> list[CachedEntry]:
        """Return the entries to write to the index; none while the one on disk is nearly complete."""
        new = sum(name in self._read_since and worth_keeping(cached) for name, cached in self._cache.items())
        allowed = max(INDEXED_AFTER, len(self._cache) // 20)
        if new < allowed and (self._indexed or 0) < 2 * len(self._cache) + allowed:
            return []
        self._read_since.clear()
        kept = [cached for cached in self._cache.values() if worth_keeping(cached)]
        self._indexed = len(kept)
        return kept

    def _entry(self, run: Run) -> Entry:
        stamps = stamps_of(run.path)  # before reading, so that a change during reading is read next time
        cached = self._cache.get(run.id)
        if cached is not None and cached.is_valid(stamps):
            return cached.entry
        return self._read(run, stamps)

    def _read(self, run: Run, stamps: Stamps) -> Entry:
        cached = self._cache[run.id] = read_entry(run, stamps)
        self._read_since.add(run.id)
        return cached.entry
