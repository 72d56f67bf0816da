"""Filters over the list of runs, kept in the URL."""

from __future__ import annotations

import streamlit as st

from acenode.experiments import EXPERIMENTS
from acenode.runs.catalogue import Entry
from acenode.runs.store import STATES

from .address import options


def show(entries: list[Entry]) -> list[Entry]:
    """The entries that fit what is chosen in one row of filters."""
    kinds = options("experiment", [*EXPERIMENTS, *sorted({e.experiment for e in entries if e.experiment})])
    methods = options("methods", sorted({e.method for e in entries if e.method}))
    states = options("states", [*STATES, "unreadable"])
    tags = options("tags", sorted({t for e in entries for t in e.tags}))
    columns = st.columns([2, 2, 2, 2, 3] if tags else [2, 2, 2, 3], vertical_alignment="bottom")
    experiment = columns[0].multiselect("Experiment", kinds, key="experiment", bind="query-params", placeholder="all")
    method = columns[1].multiselect("Method", methods, key="methods", bind="query-params", placeholder="all")
    state = columns[2].multiselect("State", states, key="states", bind="query-params", placeholder="all")
    tag = columns[3].multiselect("Tags", tags, key="tags", bind="query-params", placeholder="all") if tags else []
    text = columns[-1].text_input("Search", key="search", bind="query-params", type="search",
                                  placeholder="name, setting=value, note, tag")
    return [e for e in entries
            if (not experiment or e.experiment in experiment) and (not method or e.method in method)
            and (not state or e.state in state) and (not tag or set(tag) & set(e.tags)) and fits(e, text or "")]


def fits(entry: Entry, text: str) -> bool:
    """Whether every word is found in what is said of the run; `key=value` looks at its settings."""
    said = " ".join([entry.id, entry.state, entry.data or "", entry.notes, *entry.tags, entry.error or "",
                     *(f"{k}={v}" for k, v in entry.config.items())]).lower()
    return all(word in said for word in text.lower().split())
