"""Tables of runs, made from the catalogue's pandas frame with names and formats for people."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st

from acenode.runs.entry import Entry
from acenode.runs.frame import entries_frame

from . import labels
from .url_state import initial_selection

COLUMN_CONFIG = {
    "Open": st.column_config.LinkColumn("", display_text="Open"),
    "Run": st.column_config.TextColumn(width="medium"),
    "Progress": st.column_config.ProgressColumn(min_value=0, max_value=1, format="percent", width="small"),
    "Test": st.column_config.NumberColumn(format="%.4g"),
    "Validation": st.column_config.NumberColumn(format="%.4g"),
    "Training time (s)": st.column_config.NumberColumn(format="%.0f"),
}


def run_table(entries: list[Entry], columns: list[str]) -> pd.DataFrame:
    """Return these columns of the runs, one row for each run.

    "Test" and "Validation" are numbers, which sort; "Test result" and "Best validation" are text with the unit.
    """
    frame = entries_frame(entries)
    made: dict[str, Callable[[], Any]] = {  # only those that are asked for: there may be thousands of runs
        "Open": lambda: [f"/{e.experiment}?runs={e.id}" for e in entries],
        "State": lambda: [labels.state(e) for e in entries],
        "Experiment": lambda: frame["experiment"],
        "Run": lambda: [labels.group(e) if e.state != "unreadable" else e.error or "" for e in entries],
        "Data": lambda: [labels.data_title(e) for e in entries],
        "Seed": lambda: frame["seed"],
        "Progress": lambda: frame["progress"],
        "Metric": lambda: [labels.measure_of(e).title for e in entries],
        "Test": lambda: frame["test"],
        "Validation": lambda: frame["validation"],
        "Test result": lambda: [labels.value(e, e.value) for e in entries],
        "Best validation": lambda: [labels.value(e, e.best) for e in entries],
        "Training time": lambda: [labels.duration(e.seconds) for e in entries],
        "Training time (s)": lambda: frame["seconds"],
        "Created": lambda: [time.strftime("%Y-%m-%d %H:%M", time.localtime(e.created)) if e.created else ""
                            for e in entries],
        "Device": lambda: frame["device"],
        "Code": lambda: [labels.code_version(e) for e in entries],
        "Tags": lambda: frame["tags"],
        "Notes": lambda: frame["notes"],
        "Id": lambda: frame["run"],
    }
    return pd.DataFrame({name: made[name]() for name in columns}, columns=columns)


def show(entries: list[Entry], columns: list[str]) -> None:
    """Show runs in a table."""
    st.dataframe(run_table(entries, columns), hide_index=True, column_config=_config(columns), placeholder="")


def select(name: str, entries: list[Entry], columns: list[str], preselected: list[int], height: int) -> list[Entry]:
    """Show runs in a table and return the selected ones; at first those in the URL, or the preselected rows.

    Args:
        name: prefix of the table's session key.
        height: the largest height in pixels.
    """
    ids = [e.id for e in entries]
    state = st.dataframe(
        run_table(entries, columns), hide_index=True, height=min(38 + 35 * max(len(entries), 1), height),
        on_select="rerun", selection_mode="multi-row", key=f"{name}/{hash(tuple(ids))}", column_config=_config(columns),
        selection_default=initial_selection(name, ids, preselected), placeholder="")
    return [entries[i] for i in state["selection"]["rows"] if i < len(entries)]


def _config(columns: list[str]) -> dict[str, Any]:
    return {name: config for name, config in COLUMN_CONFIG.items() if name in columns}
