"""CSV tables of a run: steps, epochs, a summary and, for a time series, its records. Safe to open in a spreadsheet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from acenode.compare import result_charts
from acenode.compare.metrics import MetricRecord, as_text, read_records, record_columns
from acenode.compare.result_charts import SeriesRecord
from acenode.files import write_atomic
from acenode.player.snapshots import WORDS
from acenode.runs.store import Run

LONGEST_LIST = 2000  # characters; longer lists, such as points of a curve, are left out of the summary
RECORD_COLUMNS = ["record", "variable", "kind", "t", "value", "low", "high", "time unit", "unit"]
PRIVATE = frozenset({"process", "heartbeat"})  # keys of status.json that are only valid on this machine


def write(run: Run, out: Path) -> Path:
    """Write steps.csv, epochs.csv and summary.csv into the folder `out`, and records.csv if the result has records."""
    metrics, records = read_records(run), result_charts.read_series(run.result()).records
    frames = {"steps.csv": metrics_frame(metrics.steps), "epochs.csv": metrics_frame(metrics.epochs),
              "summary.csv": summary_frame(run)}
    if records:
        frames["records.csv"] = records_frame(records)
    contents = {name: to_csv(frame) for name, frame in frames.items()}  # all made before the first is written
    for name, content in contents.items():
        write_atomic(out / name, content.encode())
    return out


def metrics_frame(records: list[MetricRecord]) -> pd.DataFrame:
    """Return one row for each record, with "" where it lacks a column and None where a metric is not finite."""
    names = record_columns(records)
    return pd.DataFrame([[record.get(name, "") for name in names] for record in records], columns=names, dtype=object)


def summary_frame(run: Run) -> pd.DataFrame:
    """Return configuration, state and result as rows of dotted keys and values."""
    status = {k: v for k, v in run.status().items() if k not in PRIVATE}
    parts = {**run.description(), "status": status, "result": run.result() or {}}
    rows = [row for name, value in parts.items() for row in flat(name, value)]
    return pd.DataFrame(rows, columns=["key", "value"], dtype=object)


def records_frame(records: list[SeriesRecord]) -> pd.DataFrame:
    """Return the points of time series with their units: jumps, observed and held-out values, mean and band."""
    rows = []
    for record in records:
        time, units = WORDS.get(record.unit, record.unit), {v.name: v.unit for v in record.variables}
        rows += [(*row, time, units.get(row[1], "")) for row in _points(record)]
    return pd.DataFrame(rows, columns=RECORD_COLUMNS, dtype=object)


def _points(record: SeriesRecord) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a record. A jump has two rows of the model: before it, then after it."""
    yield from ((record.id, "", "jump", t, "", "", "") for t in record.jumps)
    for v in record.variables:
        for kind, times, values in (("observed", v.t, v.x), ("held out", v.target_t, v.target_x)):
            yield from ((record.id, v.name, kind, t, x, "", "") for t, x in zip(times, values, strict=True))
        edges = zip(v.low, v.high, strict=True) if v.low else [("", "")] * len(v.grid)
        yield from ((record.id, v.name, "model", t, mean, *edge)
                    for t, mean, edge in zip(v.grid, v.mean, edges, strict=True))


def to_csv(frame: pd.DataFrame) -> str:
    """Write a frame as CSV with every value as `cell` writes it; nothing for a frame without columns."""
    if frame.columns.empty:
        return ""
    cells = frame.map(cell).set_axis([cell(name) for name in frame.columns], axis=1)
    return cells.to_csv(index=False, lineterminator="\n")


def cell(value: Any) -> str:
    """Write numbers in full, None as `nan`, and texts that look like formulas after an apostrophe."""
    if value is None:
        return "nan"
    if isinstance(value, str):
        text = value.encode("utf-8", "replace").decode()  # without lone surrogates, which pandas refuses
        return as_text(text)
    if type(value) is float or type(value) is int:
        return repr(value)
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()  # true, false, [1, 2]


def flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield nested values under dotted names."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(f"{name}.{key}", inner)
    elif not (isinstance(value, list) and len(json.dumps(value)) > LONGEST_LIST):
        yield name, "" if value is None else value
