"""List all runs of a folder; files are read again only after they have changed, also by a new process (`index`)."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from acenode.files import Stamp, stamp
from acenode.runs.entry import CachedEntry, Entry, read_entry, stalled_entry, stamps_of
from acenode.runs.index import read_index, worth_keeping, write_index
from acenode.runs.stalled import each_within_limit
from acenode.runs.store import Run, RunStore

if TYPE_CHECKING:
    from pandas import DataFrame

INDEXED_AFTER = 200  # runs read that the index lacks, before it is written again
# In a folder of many runs, the files of a run are looked at if its folder has changed, as it does when the lab replaces
# a file. An editor may write a file in place, so that each run gets its turn in one of so many listings.
MANY = 2000
TURNS = 20
SETTLED = 2e9  # nanoseconds after which a further change of a folder has another time


class Catalogue:
    """The runs of a folder and the recorded ones, with a cache of their entries. Threads may share one."""

    def __init__(self, store: RunStore) -> None:
        self.store = store
        self._cache: dict[str, CachedEntry] = {}
        self._lock = threading.Lock()
        self._indexed: int | None = None  # entries in the index on disk; None: not read yet
        self._read_since: set[str] = set()  # runs read since the index was read or written
        self._folders: dict[str, Stamp] = {}  # stamps of folders whose files were looked at
        self._turn = 0
        self._looks = threading.local()  # the entries that a thread has listed within `one_look`

    @contextmanager
    def one_look(self) -> Iterator[None]:
        """Look at the runs once in the block, however often this thread lists them: a page shows one moment."""
        self._looks.entries, self._looks.active = None, True
        try:
            yield
        finally:
            self._looks.entries, self._looks.active = None, False

    def entries(self) -> list[Entry]:
        """List the runs of the folder, newest first and unreadable ones last; then the recorded runs, newest first."""
        if not getattr(self._looks, "active", False):
            return self._list_now()
        if self._looks.entries is None:
            self._looks.entries = self._list_now()
        return list(self._looks.entries)

    def _list_now(self) -> list[Entry]:
        with self._lock:
            recorded = {run.id: run for run in self.store.recorded_runs()}
            entries = self._entries_of(list(recorded), recorded.__getitem__)
            to_index = []
            with suppress(OSError):  # the folder was removed, or does not answer
                entries += self._own_entries()
                present = {entry.id for entry in entries}
                self._cache = {name: cached for name, cached in self._cache.items() if name in present}
                self._folders = {name: known for name, known in self._folders.items() if name in present}
                to_index = self._to_index()
        if to_index:
            write_index(self.store.root, to_index)
        return sorted(_newest_first(entries), key=lambda entry: entry.recorded)

    def busy_entries(self) -> list[Entry]:
        """List the running and queued runs, newest first. Open pages often ask for them: recorded runs are left out."""
        if getattr(self._looks, "active", False):
            return [entry for entry in self.entries() if entry.busy and not entry.recorded]
        with self._lock, suppress(OSError):
            return _newest_first([entry for entry in self._own_entries() if entry.busy])
        return []

    def entry(self, run_id: str) -> Entry | None:
        """Return the entry of exactly that id, or None if there is no such folder."""
        run = self.store.find(run_id)
        if run is None:
            return None
        with self._lock:
            return next(iter(self._entries_of([run.id], lambda _: run)), None)

    def frame(self) -> DataFrame:
        """Return all runs as a pandas frame, in the order of `entries`; see `entries_frame` for its columns."""
        from acenode.runs.frame import entries_frame  # pandas takes longer to import than runs take to list

        return entries_frame(self.entries())

    def _own_entries(self) -> list[Entry]:
        """Return the entries of the folder. Raise an OSError if it was removed or does not answer."""
        names = self.store.names()
        self._turn += 1
        if self._indexed is None:
            self._cache = read_index(self.store.root) | self._cache
            self._indexed = len(self._cache)
        return self._entries_of(names, self.store.run_of)

    def _entries_of(self, names: list[str], run_of: Callable[[str], Run]) -> list[Entry]:
        """Return the entries of runs in one folder."""
        if not names:
            return []
        start = os.fspath(run_of(names[0]).path).removesuffix(names[0])
        many = len(names) >= MANY
        read = each_within_limit([start + name for name in names],
                                 lambda place: self._current(place, place[len(start):], run_of, many))
        found = []
        for name, cached in zip(names, read, strict=True):
            if cached is None:
                found.append(stalled_entry(run_of(name)))
            elif cached.exists:
                found.append(self._keep(name, cached))
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

    def _current(self, place: str, name: str, run_of: Callable[[str], Run], many: bool) -> CachedEntry:
        """Return the entry of a run as its files are now; of one of many runs, as they were some listings ago."""
        cached = self._cache.get(name)
        if many:
            folder = stamp(place)
            unchanged = folder is not None and folder == self._folders.get(name)
            if cached and unchanged and not cached.entry.busy and hash(name) % TURNS != self._turn % TURNS:
                return cached
            if folder is not None and time.time_ns() - folder[0] > SETTLED:
                self._folders[name] = folder
        stamps = stamps_of(place)  # before reading, so that a change during reading is read next time
        return cached if cached and cached.is_valid(stamps) else read_entry(run_of(name), stamps)

    def _keep(self, name: str, cached: CachedEntry) -> Entry:
        if self._cache.get(name) is not cached:
            self._cache[name] = cached
            self._read_since.add(name)
        return cached.entry


def _newest_first(entries: list[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: (entry.created, entry.id), reverse=True)
