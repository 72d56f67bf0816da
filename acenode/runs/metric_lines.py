"""Lines of metrics.jsonl: one JSON object each, which ends with a checksum that shows whether the line was changed.

    {"kind": "step", "step": 0, "L_h": 2.31, "crc": "5f0c91d2"}

The checksum is the CRC-32 of the line without it. Lines that older versions wrote have none.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from typing import Any

KEY = "crc"
_END = re.compile(rb', "crc": "([0-9a-f]{8})"\}$', re.MULTILINE)
_NAMED = 5  # most line numbers in a sentence


def encode(record: dict[str, Any]) -> bytes:
    """Return a record as a line with its checksum."""
    text = json.dumps(record).encode()
    return text[:-1] + f', "{KEY}": "{zlib.crc32(text):08x}"}}\n'.encode()


def without_checksums(lines: bytes) -> bytes:
    """Return lines as they were before their checksums were added."""
    return _END.sub(b"}", lines)


def changed_lines(lines: bytes) -> list[int]:
    """Return the numbers of the lines, counted from 1, that do not match their checksums.

    After the first line with a checksum all have one, so that a line without one was changed too.
    """
    changed, begun = [], False
    for number, line in enumerate(lines[:lines.rfind(b"\n") + 1].splitlines(), 1):
        end = _END.search(line)
        begun = begun or end is not None
        if (end is not None and int(end[1], 16) != zlib.crc32(line[:end.start()] + b"}")) or (begun and end is None):
            changed.append(number)
    return changed


def describe(changed: Sequence[int]) -> str:
    """Say which lines were changed; empty if none were."""
    if not changed:
        return ""
    named = ", ".join(map(str, changed[:_NAMED])) + (" …" if len(changed) > _NAMED else "")
    lines = f"line {named} was" if len(changed) == 1 else f"{len(changed)} lines ({named}) were"
    return f"metrics.jsonl: {lines} changed after training wrote {'it' if len(changed) == 1 else 'them'}, so that " \
           "curves may be wrong there; restore the file from a backup, or train the run again"
