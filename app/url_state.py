"""Widgets whose values are kept in the URL. A value from the URL stays an option even if no run has it any more."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import streamlit as st

from . import messages

MISSING = "missing runs"  # session key


def current_values(key: str) -> list[str]:
    """Return the values of a widget in the session, or else in the URL."""
    value = st.session_state.get(key, st.query_params.get_all(key))
    return [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, str) and v]


def options(key: str, known: Iterable[str]) -> list[str]:
    """Return the known values and those that the widget has already."""
    return list(dict.fromkeys([*known, *current_values(key)]))


def initial_selection(table: str, ids: list[str], otherwise: list[int]) -> Any:
    """Return the rows of a table that are selected at first: the runs in the URL, or `otherwise`.

    The answer stays the same while the table has these rows: a table whose default changes loses what was clicked.
    """
    key = f"first/{table}/{hash(tuple(ids))}"
    if key not in st.session_state:
        wanted = set(st.query_params.get("runs", "").split(","))
        st.session_state[key] = [i for i, run_id in enumerate(ids) if run_id in wanted] or otherwise
    return {"selection": {"rows": st.session_state[key]}}


def keep_in_url(ids: list[str]) -> None:
    """Write the chosen runs to the URL."""
    text = ",".join(ids)
    if st.query_params.get("runs", "") != text:
        st.query_params["runs"] = text


def linked_runs() -> list[str]:
    """Return the runs in the URL, each once."""
    return list(dict.fromkeys(n for n in st.query_params.get("runs", "").split(",") if n))


def warn_about_missing(wanted: Iterable[str], known: Container[str], place: str = "in this folder") -> None:
    """Say which runs in the URL do not exist here, so that others are not taken for them.

    The warning stays until another page is opened or `forget_missing` is called, because the URL changes with the next
    selection.
    """
    if missing := [n for n in wanted if n not in known]:
        st.session_state[MISSING] = missing
    if missing := st.session_state.get(MISSING, []):
        names = messages.escape(", ".join(missing)[:300])
        st.warning(f"The link names {'a run that is' if len(missing) == 1 else f'{len(missing)} runs that are'} not "
                   f"{place}: {names}", icon=":material/link_off:")


def forget_missing() -> None:
    """Remove the warning about runs in the URL that do not exist."""
    st.session_state.pop(MISSING, None)
