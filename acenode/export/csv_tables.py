"""CSV: steps.csv, epochs.csv and summary.csv, and of a time series records.csv, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from acenode.files import write_atomic
from acenode.results import metric_records, series_charts
from acenode.results.series_records import SeriesRecord
from acenode.runs.store import Run

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # what makes a spreadsheet compute a text
LONGEST_LIST = 2000  # characters: a confusion matrix is a summary, two thousand points are not
RECORDS = ("record", "variable", "kind", "t", "value", "low", "high")
PRIVATE = frozenset({"process", "heartbeat"})  # of status.json: who trained it, of no use elsewhere


def write(run: Run, out: Path) -> Path:
    """Three files in the folder `out`, and a fourth where the result has records of a time series."""
    found, shown = metric_records.read(run), series_charts.read(run.result()).records
    files = {
        "steps.csv": table(found.steps),
        "epochs.csv": table(found.epochs),
        "summary.csv": text([("key", "value"), *summary(run)]),
    }
    if shown:
        files["records.csv"] = text([RECORDS, *(row for record in shown for row in points(record))])
    for name, content in files.items():  # all made before the first is written
        write_atomic(out / name, content.encode("utf-8", "replace"))
    return out


def table(rows: list[metric_records.MetricRecord]) -> str:
    """One line a record; empty where a record lacks a column."""
    if not rows:
        return ""
    names = metric_records.columns(rows)
    return text([names, *([row.get(name, "") for name in names] for row in rows)])


def text(rows: Iterable[Iterable[Any]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([cell(value) for value in row] for row in rows)
    return buffer.getvalue()


def cell(value: Any) -> str:
    """Numbers as they are, `nan` for the null of a metric; texts that look like formulas behind an apostrophe."""
    if value is None:
        return "nan"
    if isinstance(value, str):
        return f"'{value}" if value.startswith(FORMULA) else value
    if type(value) is float or type(value) is int:
        return repr(value)
    return json.dumps(value, ensure_ascii=False)  # true, false, [1, 2]


def points(record: SeriesRecord) -> Iterator[tuple[Any, ...]]:
    """A record's jumps, and what was seen, held out and said of each variable. At a jump the model speaks twice: before
    it, then after."""
    yield from ((record.id, "", "jump", t, "", "", "") for t in record.jumps)
    for v in record.variables:
        for kind, at, x in (("observed", v.t, v.x), ("held out", v.target_t, v.target_x)):
            yield from ((record.id, v.name, kind, t, value, "", "") for t, value in zip(at, x, strict=True))
        edges = zip(v.low, v.high, strict=True) if v.low else [("", "")] * len(v.grid)
        yield from ((record.id, v.name, "model", t, mean, *edge)
                    for t, mean, edge in zip(v.grid, v.mean, edges, strict=True))


def summary(run: Run) -> Iterator[tuple[str, Any]]:
    """Configuration, state and result under dotted names."""
    status = {k: v for k, v in run.status().items() if k not in PRIVATE}
    parts = {**run.description(), "status": status, "result": run.result() or {}}
    for name, value in parts.items():
        yield from flat(name, value)


def flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(f"{name}.{key}", inner)
    elif not (isinstance(value, list) and len(json.dumps(value)) > LONGEST_LIST):
        yield name, "" if value is None else value
