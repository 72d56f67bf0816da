"""List all runs of a folder; files are read again only after they have changed, also by a new process (`index`)."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from acenode.config import KEYS
from acenode.files import Stamp, json_bytes, open_regular, parse_json, stamp, write_atomic
from acenode.garbage import collector_paused
from acenode.runs.entry import UNREADABLE, CachedEntry, Entry, read_entry, stamps_of, unreadable_entry
from acenode.runs.process import REASON, each_within_limit
from acenode.runs.store import Run, RunStore

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
        if getattr(self._looks, "active", False) and self._looks.entries is not None:
            return list(self._looks.entries)
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
        entries = sorted(_newest_first(entries), key=lambda entry: entry.recorded)
        if getattr(self._looks, "active", False):
            self._looks.entries = list(entries)
        return entries

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

    def _own_entries(self) -> list[Entry]:
        self._turn += 1
        names = self.store.names()  # first: it gives up on a disk that does not answer
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
                run = run_of(name)
                found.append(unreadable_entry(run, f"{run.path} cannot be read: {REASON}"))
            elif cached.exists:
                if self._cache.get(name) is not cached:
                    self._cache[name] = cached
                    self._read_since.add(name)
                found.append(cached.entry)
        return found

    def _to_index(self) -> list[CachedEntry]:
        kept = {name: cached for name, cached in self._cache.items() if worth_keeping(cached)}
        allowed = max(INDEXED_AFTER, len(self._cache) // 20)
        if len(self._read_since & kept.keys()) < allowed and (self._indexed or 0) < 2 * len(self._cache) + allowed:
            return []
        self._read_since.clear()
        self._indexed = len(kept)
        return list(kept.values())

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


def _newest_first(entries: list[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: (entry.created, entry.id), reverse=True)


# The index: entries as they were last read, so that a new process need not read every run ---------------------------
#
# The run folders remain the only source of truth. An entry of the index is used only while the run's files have the
# stamps that they had when they were read. A missing, damaged or foreign index is ignored and written again.

FILE = ".index.json"
MAX_BYTES = 1_000_000_000
_VERSION = 2  # changes whenever entries are read differently
_NAMES = [f.name for f in dataclasses.fields(Entry) if f.name not in ("path", "recorded")]


def worth_keeping(cached: CachedEntry) -> bool:
    """Return True if an entry belongs in the index: one that no process changes and that could be read."""
    entry = cached.entry
    return not entry.recorded and not entry.busy and entry.state != UNREADABLE and not cached.may_come_back


def write_index(root: Path, entries: Iterable[CachedEntry]) -> None:
    """Write the index of a folder; a folder that cannot be written has none."""
    content = json_bytes([[cached.stamps, [getattr(cached.entry, name) for name in _NAMES]] for cached in entries])
    with suppress(OSError):
        write_atomic(root / FILE, _header(content) + content)


def read_index(root: Path) -> dict[str, CachedEntry]:
    """Return the entries of a folder's index by id, whether their runs still exist or not; none if it is invalid."""
    try:
        with open_regular(root / FILE) as file:
            if os.fstat(file.fileno()).st_size > MAX_BYTES:
                return {}
            header, _, content = file.read(MAX_BYTES).partition(b"\n")
        if header + b"\n" != _header(content):
            return {}
        found = {}
        with collector_paused():  # it would search all entries again and again while they are made
            for stamps, values in parse_json(content):
                known = dict(zip(_NAMES, values, strict=True))
                entry = Entry(**known | {"path": root / known["id"], "tags": tuple(known["tags"])})
                found[entry.id] = CachedEntry(tuple(None if s is None else (s[0], s[1], s[2]) for s in stamps), entry)
        return found
    except (OSError, ValueError, TypeError, KeyError, IndexError):
        return {}


def _header(content: bytes) -> bytes:
    written_by = zlib.crc32(" ".join([str(_VERSION), *_NAMES, *KEYS]).encode())
    return f"{written_by:08x} {zlib.crc32(content):08x}\n".encode()
