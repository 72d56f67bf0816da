"""Widgets whose value the address keeps: what they hold stays a choice, even when no run has it any more."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st


def held(key: str) -> list[str]:
    """What the session, or else the address, holds for a widget."""
    value = st.session_state.get(key, st.query_params.get_all(key))
    return [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, str) and v]


def options(key: str, known: Iterable[str]) -> list[str]:
    """The known values, and those that the widget holds already."""
    return list(dict.fromkeys([*known, *held(key)]))
