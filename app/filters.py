"""Filters over the list of runs, kept in the URL."""

from __future__ import annotations

import streamlit as st

from acenode.experiments import EXAMPLES, EXPERIMENTS
from acenode.runs.entry import Entry
from acenode.runs.store import STATES

from . import labels
from .url_state import options


def show(entries: list[Entry]) -> list[Entry]:
    """Show one row of filters and return the entries that pass all of them."""
    named = sorted({e.experiment for e in entries if e.experiment})
    titles = {name: labels.experiment_title(name) for name in (*EXPERIMENTS, *EXAMPLES, *named)}
    methods = {(name, method): labels.method_title(name, method) for name, method in
               sorted({(e.experiment, e.method) for e in entries if e.method})}
    _accept_ids("experiment", list(titles.items()))
    _accept_ids("methods", [(method, title) for (_, method), title in methods.items()])
    states = options("states", [*STATES, "unreadable", *(["recorded"] if any(e.recorded for e in entries) else [])])
    tags = options("tags", sorted({t for e in entries for t in e.tags}))
    columns = st.columns([2, 2, 2, 2, 3] if tags else [2, 2, 2, 3], vertical_alignment="bottom")
    experiment = columns[0].multiselect("Experiment", options("experiment", titles.values()), key="experiment",
                                        bind="query-params", placeholder="All")
    method = columns[1].multiselect("Method", options("methods", sorted(methods.values())), key="methods",
                                    bind="query-params", placeholder="All")
    state = columns[2].multiselect("State", states, key="states", bind="query-params", placeholder="All")
    tag = columns[3].multiselect("Tags", tags, key="tags", bind="query-params", placeholder="All") if tags else []
    text = columns[-1].text_input("Search", key="search", bind="query-params", type="search",
                                  placeholder="Name, setting=value, note or tag")
    return [e for e in entries
            if (not experiment or titles.get(e.experiment) in experiment)
            and (not method or methods.get((e.experiment, e.method)) in method)
            and (not state or labels.state_name(e) in state) and (not tag or set(tag) & set(e.tags))
            and matches(e, text or "")]


def _accept_ids(key: str, titles: list[tuple[str, str]]) -> None:
    """Replace ids in the URL, such as `odenet`, by the titles that they have, before a filter reads it."""
    given = st.query_params.get_all(key)
    if key in st.session_state or not given:
        return
    known = {title for _, title in titles}
    wanted = [title for value in given for title in
              ([] if value in known else [title for name, title in titles if name == value]) or [value]]
    if (unique := list(dict.fromkeys(wanted))) != list(dict.fromkeys(given)):
        st.query_params[key] = unique
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
