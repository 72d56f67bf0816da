"""metrics.jsonl as the exports read it: step and epoch records apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from acenode.runs.store import Run

MetricRecord = dict[str, Any]


@dataclass(frozen=True)
class MetricRecords:
    """What training reported, in order, without the `kind` that told them apart."""

    steps: list[MetricRecord]
    epochs: list[MetricRecord]

    def __bool__(self) -> bool:
        return bool(self.steps or self.epochs)


def read(run: Run) -> MetricRecords:
    found: dict[str, list[MetricRecord]] = {"step": [], "epoch": []}
    for record in run.metrics()[0]:
        kind = record.pop("kind", None)
        if isinstance(kind, str) and kind in found:
            found[kind].append(record)
    return MetricRecords(found["step"], found["epoch"])


def columns(records: list[MetricRecord]) -> list[str]:
    """Every key that ever occurs, in order of first appearance."""
    return list(dict.fromkeys(key for record in records for key in record))


def to_float(value: Any) -> float | None:
    """A numeric metric as a float, null (what JSON has no word for) as NaN; None for what is no number."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number beyond every float
        return math.inf


def axis_index(record: MetricRecord, key: str) -> int | None:
    """A record's place on an axis, where it has one."""
    value = record.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None
