"""Tables of runs, with names and formats for people; filters over them, kept in the URL; small tables of texts."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from acenode.experiments import EXAMPLES, EXPERIMENTS
from acenode.runs.entry import Entry
from acenode.runs.store import STATES

from . import labels, messages, navigation

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
MOST_TEXTS, TEXTS_HEIGHT = 12, 480  # rows of a table of texts without scrolling; pixels of longer ones
_last: tuple[list[str], list[Entry], pd.DataFrame] = [], [], pd.DataFrame()


def run_table(entries: list[Entry], columns: list[str]) -> pd.DataFrame:
    """Return these columns of the runs, one row for each run. The last table of many runs is made once."""
    global _last
    if len(entries) < MANY:
        return _make_table(entries, columns)
    before, made_of, table = _last
    if before != columns or len(made_of) != len(entries) or not all(map(operator.is_, made_of, entries)):
        table = _make_table(entries, columns)
        # each text of a column once, where many rows share it: the browser then receives a third of the bytes
        shared = [name for name in table.select_dtypes(exclude="number") if table[name].nunique() < len(table) / 10]
        table = table.astype(dict.fromkeys(shared, "category"))
        _last = columns, entries, table
    return table


def _make_table(entries: list[Entry], columns: list[str]) -> pd.DataFrame:
    experiment, method, state = cache(labels.experiment_title), cache(labels.method_title), labels.state_name
    scales = np.array([labels.measure_of(e).scale for e in entries]) if {"Test", "Validation"} & {*columns} else 1.0
    made: dict[str, Callable[[], Any]] = {  # only those that are asked for: there may be thousands of runs
        "Open": lambda: [f"/{e.experiment}?runs={e.id}" for e in entries],
        "State": lambda: [f"{labels.ICONS[state(e)]} {state(e)}" for e in entries],
        "Experiment": lambda: [experiment(e.experiment) for e in entries],
        "Method": lambda: [method(e.experiment, e.method) for e in entries],
        "Settings": lambda: [labels.changes(e) if e.state != "unreadable" else e.error or "" for e in entries],
        "Data": lambda: [labels.data_title(e) for e in entries],
        "Seed": lambda: [e.seed for e in entries],
        "Progress": lambda: [e.progress for e in entries],
        "Metric": lambda: [labels.measure_of(e).title for e in entries],
        "Metric and unit": lambda: [labels.measure_of(e).heading for e in entries],
        "Test": lambda: np.array([e.value for e in entries], dtype=float) * scales,
        "Validation": lambda: np.array([e.best for e in entries], dtype=float) * scales,
        "Test result": lambda: [labels.measure_of(e).text(e.value) for e in entries],
        "Best validation": lambda: [labels.measure_of(e).text(e.best) for e in entries],
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
    table = run_table(entries, columns)
    st.dataframe(table, hide_index=True, column_config=column_config(table), placeholder="")


def select(name: str, entries: list[Entry], columns: list[str], preselected: list[int], height: int) -> list[Entry]:
    """Show runs in a table, at most `height` pixels high, and return the selected ones; at first those in the URL, or
    the preselected rows. `name` is the prefix of the table's session key."""
    ids, table = [e.id for e in entries], run_table(entries, columns)
    first = f"first/{name}/{hash(tuple(ids))}"  # kept while the rows are: a table whose default changes loses clicks
    if first not in st.session_state:
        linked = set(navigation.linked_runs())
        st.session_state[first] = [i for i, run_id in enumerate(ids) if run_id in linked] or preselected
    state = st.dataframe(
        table, hide_index=True, height=min(38 + 35 * max(len(entries), 1), height),
        on_select="rerun", selection_mode="multi-row", key=f"{name}/{hash(tuple(ids))}",
        column_config=column_config(table), placeholder="",
        selection_default={"selection": {"rows": st.session_state[first]}})
    return [entries[i] for i in state["selection"]["rows"] if i < len(entries)]


def column_config(table: pd.DataFrame) -> dict[str, Any]:
    """Return the formats and widths of a table's columns. A browser would fit widths to the first few rows only."""
    fitted = {name: st.column_config.TextColumn(width=fitted_width(table[name])) for name in FITTED if name in table}
    return {name: config for name, config in COLUMN_CONFIG.items() if name in table} | fitted


def fitted_width(texts: pd.Series) -> int:
    longest = max((len(text) for text in texts.unique()), default=0)
    return min(PADDING + CHARACTER * max(longest, 8), WIDEST)


def show_texts(rows: Sequence[Mapping[str, object]], alt: str) -> None:
    """Show a row for each mapping, with its keys as heads; texts wrap in their cells and are not read as Markdown.
    `alt` says what the table shows, for screen readers."""
    shown = [{messages.escape(head): messages.escape(str(cell)) for head, cell in row.items()} for row in rows]
    st.table(pd.DataFrame(shown), hide_index=True, alt=alt,
             height="content" if len(shown) <= MOST_TEXTS else TEXTS_HEIGHT)


def filtered(entries: list[Entry]) -> list[Entry]:
    """Show one row of filters and return the entries that pass all of them."""
    named = sorted({e.experiment for e in entries if e.experiment})
    titles = {name: labels.experiment_title(name) for name in (*EXPERIMENTS, *EXAMPLES, *named)}
    methods = {(name, method): labels.method_title(name, method) for name, method in
               sorted({(e.experiment, e.method) for e in entries if e.method})}
    _accept_ids("experiment", list(titles.items()))
    _accept_ids("methods", [(method, title) for (_, method), title in methods.items()])
    recorded = ["recorded"] * any(e.recorded for e in entries)
    filters: dict[str, tuple[str, Iterable[str], Callable[[Entry], Iterable[str | None]]]] = {
        "experiment": ("Experiment", titles.values(), lambda e: [titles.get(e.experiment)]),
        "methods": ("Method", sorted(methods.values()), lambda e: [methods.get((e.experiment, e.method))]),
        "states": ("State", [*STATES, "unreadable", *recorded], lambda e: [labels.state_name(e)]),
        "tags": ("Tags", sorted({tag for e in entries for tag in e.tags}), lambda e: e.tags)}
    offered = {key: navigation.options(key, known) for key, (_, known, _) in filters.items()}
    if not offered["tags"]:
        del filters["tags"]
    columns = st.columns([2] * len(filters) + [3], vertical_alignment="bottom")
    for column, (key, (title, _, values)) in zip(columns, filters.items(), strict=False):
        chosen = set(column.multiselect(title, offered[key], key=key, bind="query-params", placeholder="All"))
        if chosen:
            entries = [e for e in entries if chosen & set(values(e))]
    text = columns[-1].text_input("Search", key="search", bind="query-params", type="search",
                                  placeholder="Name, setting=value, note or tag")
    return [e for e in entries if matches(e, text or "")]


def _accept_ids(key: str, titles: list[tuple[str, str]]) -> None:
    """Replace ids in the URL, such as `odenet`, by the titles that they have, before a filter reads it."""
    given = st.query_params.get_all(key)
    if key in st.session_state or not given:
        return
    known = {title for _, title in titles}
    wanted = dict.fromkeys(title for value in given for title in
                           ([] if value in known else [title for name, title in titles if name == value]) or [value])
    if wanted != dict.fromkeys(given):
        st.query_params[key] = list(wanted)
        st.rerun()


def matches(entry: Entry, text: str) -> bool:
    """Return True if every word of the text occurs in the run: id, state, notes, tags, error, `key=value` settings."""
    if not text.strip():
        return True
    searched = " ".join([entry.id, labels.experiment_title(entry.experiment),
                         labels.method_title(entry.experiment, entry.method), labels.state_name(entry),
                         entry.data or "", entry.data_note, entry.notes, *entry.tags, entry.error or "",
                         *(f"{k}={v}" for k, v in entry.config.items())]).lower()
    return all(word in searched for word in text.lower().split())
