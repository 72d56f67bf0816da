"""Tables of runs, with names and formats for people."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from acenode.runs.entry import Entry

from . import labels
from .url_state import initial_selection

COLUMN_CONFIG = {
    "Open": st.column_config.LinkColumn("", display_text="Open", width=60),
    "Progress": st.column_config.ProgressColumn(min_value=0, max_value=1, format="percent", width="small"),
    "Test": st.column_config.NumberColumn(format="%.4g"),
    "Validation": st.column_config.NumberColumn(format="%.4g"),
    "Training time (s)": st.column_config.NumberColumn(format="%.0f"),
}

FITTED = ("State", "Experiment", "Method", "Settings", "Id")  # as wide as their longest text, which tells runs apart
CHARACTER, PADDING, WIDEST = 7, 18, 700  # pixels

MANY = 1000  # runs
_last: tuple[list[str], list[Entry], pd.DataFrame] = [], [], pd.DataFrame()


def run_table(entries: list[Entry], columns: list[str]) -> pd.DataFrame:
    """Return these columns of the runs, one row for each run. The last table of many runs is made once.

    "Test" and "Validation" are numbers, which sort, in the unit of "Metric and unit"; "Test result" and "Best
    validation" are text with the unit.
    """
    global _last
    if len(entries) < MANY:
        return _make_table(entries, columns)
    before, made_of, table = _last
    if before != columns or len(made_of) != len(entries) or not all(map(operator.is_, made_of, entries)):
        table = _compact(_make_table(entries, columns))
        _last = columns, entries, table
    return table


def _compact(table: pd.DataFrame) -> pd.DataFrame:
    """Store each text of a column once, where many rows share it: the browser then receives a third of the bytes."""
    shared = [name for name in table.select_dtypes(exclude="number") if table[name].nunique() < len(table) / 10]
    return table.astype(dict.fromkeys(shared, "category"))


def _make_table(entries: list[Entry], columns: list[str]) -> pd.DataFrame:
    made: dict[str, Callable[[], Any]] = {  # only those that are asked for: there may be thousands of runs
        "Open": lambda: [f"/{e.experiment}?runs={e.id}" for e in entries],
        "State": lambda: [labels.state(e) for e in entries],
        "Experiment": lambda: _titles(entries, lambda e: e.experiment, lambda e: labels.experiment_title(e.experiment)),
        "Method": lambda: _titles(entries, lambda e: (e.experiment, e.method),
                                  lambda e: labels.method_title(e.experiment, e.method)),
        "Settings": lambda: [labels.changes(e) if e.state != "unreadable" else e.error or "" for e in entries],
        "Data": lambda: [labels.data_title(e) for e in entries],
        "Seed": lambda: [e.seed for e in entries],
        "Progress": lambda: [e.progress for e in entries],
        "Metric": lambda: [labels.measure_of(e).title for e in entries],
        "Metric and unit": lambda: [labels.measure_of(e).heading for e in entries],
        "Test": lambda: np.array([e.value for e in entries], dtype=float) * _scales(entries),
        "Validation": lambda: np.array([e.best for e in entries], dtype=float) * _scales(entries),
        "Test result": lambda: [labels.value(e, e.value) for e in entries],
        "Best validation": lambda: [labels.value(e, e.best) for e in entries],
        "Training time": lambda: [labels.duration(e.seconds) for e in entries],
        "Training time (s)": lambda: np.array([e.seconds for e in entries], dtype=float),
        "Created": lambda: [time.strftime("%Y-%m-%d %H:%M", time.localtime(e.created)) if e.created else ""
                            for e in entries],
        "Device": lambda: [e.device for e in entries],
        "Code": lambda: [labels.code_version(e) for e in entries],
        "Tags": lambda: [", ".join(e.tags) for e in entries],
        "Notes": lambda: [e.notes for e in entries],
        "Id": lambda: [e.id for e in entries],
    }
    return pd.DataFrame({name: made[name]() for name in columns}, columns=columns)


def show(entries: list[Entry], columns: list[str]) -> None:
    """Show runs in a table."""
    table = run_table(entries, columns)
    st.dataframe(table, hide_index=True, column_config=column_config(table), placeholder="")


def select(name: str, entries: list[Entry], columns: list[str], preselected: list[int], height: int) -> list[Entry]:
    """Show runs in a table and return the selected ones; at first those in the URL, or the preselected rows.

    Args:
        name: prefix of the table's session key.
        height: the largest height in pixels.
    """
    ids, table = [e.id for e in entries], run_table(entries, columns)
    state = st.dataframe(
        table, hide_index=True, height=min(38 + 35 * max(len(entries), 1), height),
        on_select="rerun", selection_mode="multi-row", key=f"{name}/{hash(tuple(ids))}",
        column_config=column_config(table), selection_default=initial_selection(name, ids, preselected), placeholder="")
    return [entries[i] for i in state["selection"]["rows"] if i < len(entries)]


def _scales(entries: list[Entry]) -> np.ndarray:
    return np.array([labels.measure_of(e).scale for e in entries])


def _titles(entries: list[Entry], key: Callable[[Entry], Any], title: Callable[[Entry], str]) -> list[str]:
    """Return a title for each run; runs with equal keys share one, which is looked up once."""
    known = {key(e): e for e in entries}
    titles = {found: title(e) for found, e in known.items()}
    return [titles[key(e)] for e in entries]


def column_config(table: pd.DataFrame) -> dict[str, Any]:
    """Return the formats and widths of a table's columns. A browser would fit widths to the first few rows only."""
    fitted = {name: st.column_config.TextColumn(width=fitted_width(table[name])) for name in FITTED if name in table}
    return {name: config for name, config in COLUMN_CONFIG.items() if name in table} | fitted


def fitted_width(texts: pd.Series) -> int:
    """Return the width in pixels of a column that shows its texts whole."""
    longest = max((len(text) for text in texts.unique()), default=0)
    return min(PADDING + CHARACTER * max(longest, 8), WIDEST)
