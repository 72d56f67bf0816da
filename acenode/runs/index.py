"""The index of a folder of runs: their entries as they were last read, so that a new process need not read every run.

The run folders remain the only source of truth. An entry of the index is used only while the run's files have the
stamps that they had when they were read. A missing, damaged or foreign index is ignored and written again.
"""

from __future__ import annotations

import dataclasses
import json
import os
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from acenode.config import KEYS
from acenode.files import open_regular, parse_json, write_atomic
from acenode.garbage import collector_paused
from acenode.runs.entry import UNREADABLE, CachedEntry, Entry

FILE = ".index.json"
MAX_BYTES = 1_000_000_000
_VERSION = 1  # changes whenever entries are read differently
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,), "str | None": (str, type(None)), "bool": (bool,), "int": (int,), "float": (int, float),
    "float | None": (int, float, type(None)), "dict[str, Any]": (int,), "Values": (dict,), "tuple[str, ...]": (list,),
}
_FIELDS = [f for f in dataclasses.fields(Entry) if f.name not in ("path", "recorded")]
_NAMES = [f.name for f in _FIELDS]
_KINDS = [_TYPES[str(f.type)] for f in _FIELDS]  # of the values in a row; the configuration is a number in `configs`
_CONFIG, _SEED, _TAGS = (_NAMES.index(name) for name in ("config", "seed", "tags"))


def worth_keeping(cached: CachedEntry) -> bool:
    """Return True if an entry belongs in the index: one that no process changes and that could be read."""
    entry = cached.entry
    return not entry.recorded and not entry.busy and entry.state != UNREADABLE and not cached.may_come_back


def write_index(root: Path, entries: Iterable[CachedEntry]) -> None:
    """Write the index of a folder; a folder that cannot be written has none."""
    configs: dict[str, int] = {}  # runs of many seeds share a configuration
    rows = []
    for cached in filter(worth_keeping, entries):
        values = [getattr(cached.entry, name) for name in _NAMES]
        config = cached.entry.config
        shared = json.dumps({**config, "seed": 0} if config.get("seed") == cached.entry.seed else config)
        values[_CONFIG] = configs.setdefault(shared, len(configs))
        rows.append([cached.stamps, values])
    content = json.dumps({"configs": [json.loads(text) for text in configs], "rows": rows}, ensure_ascii=False,
                         allow_nan=False).encode()
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
        with collector_paused():  # it would search all entries again and again while they are made
            stored = parse_json(content)
            found = (_cached(root, stamps, values, stored["configs"]) for stamps, values in stored["rows"])
            return {cached.entry.id: cached for cached in found}
    except (OSError, ValueError, TypeError, KeyError, IndexError):
        return {}


def _header(content: bytes) -> bytes:
    """Return the first line: what wrote the index, and a checksum of the rest."""
    written_by = zlib.crc32(" ".join([str(_VERSION), *_NAMES, *KEYS]).encode())
    return f"{written_by:08x} {zlib.crc32(content):08x}\n".encode()


def _cached(root: Path, stamps: list[Any], values: list[Any], configs: list[dict[str, Any]]) -> CachedEntry:
    """Return the entry of a row; raise a TypeError or ValueError if a value has the wrong type."""
    if len(values) != len(_KINDS) or not all(map(isinstance, values, _KINDS)):
        raise TypeError
    config = configs[values[_CONFIG]]
    values[_CONFIG] = {**config, "seed": values[_SEED]} if "seed" in config else {**config}
    values[_TAGS] = tuple(values[_TAGS])
    entry = Entry(path=root / values[0], **dict(zip(_NAMES, values, strict=True)))
    return CachedEntry(tuple(None if s is None else (s[0], s[1], s[2]) for s in stamps), entry)
