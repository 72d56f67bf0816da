"""The records of metrics.jsonl, with steps and epochs apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from acenode.runs.store import Run

MetricRecord = dict[str, Any]


@dataclass(frozen=True)
class MetricRecords:
    """The records of steps and epochs in order, without their key `kind`."""

    steps: list[MetricRecord]
    epochs: list[MetricRecord]

    def __bool__(self) -> bool:
        return bool(self.steps or self.epochs)


def read(run: Run) -> MetricRecords:
    """Read the records of a run; records of other kinds are left out."""
    found: dict[str, list[MetricRecord]] = {"step": [], "epoch": []}
    for record in run.metrics()[0]:
        kind = record.pop("kind", None)
        if isinstance(kind, str) and kind in found:
            found[kind].append(record)
    return MetricRecords(found["step"], found["epoch"])


def columns(records: list[MetricRecord]) -> list[str]:
    """List all keys of the records, in order of first appearance."""
    return list(dict.fromkeys(key for record in records for key in record))


def to_float(value: Any) -> float | None:
    """Return a number as a float, None (null in JSON, for a value that is not finite) as NaN, else None."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer beyond the range of floats
        return math.inf


def axis_index(record: MetricRecord, key: str) -> int | None:
    """Return a record's position on an axis (`step` or `epoch`), or None."""
    value = record.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None
