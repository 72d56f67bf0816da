"""Widgets whose value the address keeps: what they hold stays a choice, even when no run has it any more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import streamlit as st


def held(key: str) -> list[str]:
    """What the session, or else the address, holds for a widget."""
    value = st.session_state.get(key, st.query_params.get_all(key))
    return [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, str) and v]


def options(key: str, known: Iterable[str]) -> list[str]:
    """The known values, and those that the widget holds already."""
    return list(dict.fromkeys([*known, *held(key)]))


def chosen_first(table: str, names: list[str], otherwise: list[int]) -> Any:
    """The rows that a table begins with: the address's runs, or others. The same as long as the table has these rows,
    since a table whose beginning changes forgets what was clicked."""
    key = f"first/{table}/{hash(tuple(names))}"
    if key not in st.session_state:
        wanted = set(st.query_params.get("runs", "").split(","))
        st.session_state[key] = [i for i, name in enumerate(names) if name in wanted] or otherwise
    return {"selection": {"rows": st.session_state[key]}}
