"""A TensorBoard event file, written by hand: TFRecords (length, data, their masked checksums) of Event messages.

    Event    1: wall_time (double)   2: step (int64)   3: file_version (string)   5: summary
    Summary  1: value, repeated      Value  1: tag (string)   2: simple_value (float)
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

from acenode.export.crc32c import crc32c
from acenode.files import write_atomic
from acenode.results import metric_records
from acenode.runs.store import Run

MASK = 0xA282EAD8
LARGEST = 3.4028235e38  # of a float
AXES = frozenset({"step", "epoch"})  # where a record stands, no metrics of it


def write(run: Run, out: Path) -> Path:
    """One event file in the folder `out`, which is what `tensorboard --logdir` takes."""
    created = metric_records.to_float(run.description().get("created")) or 0.0
    start = created if math.isfinite(created) else 0.0
    # The name is the run's own: exporting again replaces the curves and does not draw them twice.
    write_atomic(out / f"events.out.tfevents.{int(start):010d}.{run.id}", framed(list(events(run, start))))
    return out


def events(run: Run, start: float) -> Iterator[bytes]:
    """train/… over steps, epoch/… over epochs, test/… at the end; the clock counts training time alone."""
    found = metric_records.read(run)
    yield event(start, None, string(3, "brain.Event:2"))
    now, last = start, 0
    for record in found.steps:
        seconds = metric_records.to_float(record.get("seconds", 0.0))
        now += seconds if seconds is not None and math.isfinite(seconds) else 0.0
        step = metric_records.axis_index(record, "step")
        if step is not None:
            yield from scalars(now, step, "train", record)
            last = max(last, step + 1)
    for record in found.epochs:
        epoch, elapsed = metric_records.axis_index(record, "epoch"), metric_records.to_float(record.get("elapsed", 0.0))
        if epoch is not None:
            yield from scalars(start + (elapsed if elapsed is not None and math.isfinite(elapsed) else 0.0), epoch,
                               "epoch", record)
    test = (run.result() or {}).get("test")
    if isinstance(test, dict):
        yield from scalars(now, last, "test", test)


def scalars(wall_time: float, step: int, family: str, record: metric_records.MetricRecord) -> Iterator[bytes]:
    """All numbers of a record in one event."""
    values = b"".join(value(f"{family}/{key}", number) for key, given in record.items()
                      if key not in AXES and (number := metric_records.to_float(given)) is not None)
    if values:
        yield event(wall_time, step, message(5, values))


# Wire format --------------------------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    """Seven bits a byte, lowest first."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*parts, value))


def message(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def string(field: int, text: str) -> bytes:
    return message(field, text.encode("utf-8", "replace"))


def event(wall_time: float, step: int | None, content: bytes) -> bytes:
    return struct.pack("<Bd", 1 << 3 | 1, wall_time) + (b"" if step is None else b"\x10" + varint(step)) + content


@lru_cache(maxsize=4096)
def _head(tag: str) -> bytes:
    """A Value up to its number, which has the same bytes for every number."""
    inner = string(1, tag) + struct.pack("<B", 2 << 3 | 5)
    return varint(1 << 3 | 2) + varint(len(inner) + 4) + inner


def value(tag: str, number: float) -> bytes:
    if abs(number) > LARGEST:
        number = math.copysign(math.inf, number)
    return _head(tag) + struct.pack("<f", number)


def framed(blocks: list[bytes]) -> bytes:
    """The blocks as TFRecords."""
    lengths = [struct.pack("<Q", len(b)) for b in blocks]
    checks = zip(masked(crc32c(lengths)), masked(crc32c(blocks)), strict=True)
    return b"".join(part for length, block, (a, b) in zip(lengths, blocks, checks, strict=True)
                    for part in (length, a, block, b))


def masked(checks: np.ndarray) -> list[bytes]:
    """Checksums turned and shifted, as TFRecords store them."""
    turned = (checks >> 15 | checks << 17) + np.uint32(MASK)
    return [c.tobytes() for c in turned.astype("<u4")]
