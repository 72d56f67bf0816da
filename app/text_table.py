"""Small tables of texts, which wrap in their cells instead of being cut where the page is narrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from . import messages

MOST = 12  # rows without scrolling
HEIGHT = 480  # pixels, of longer ones


def show(rows: Sequence[Mapping[str, object]], alt: str) -> None:
    """Show a row for each mapping, with its keys as heads.

    Args:
        rows: the texts, which Markdown does not interpret.
        alt: what the table shows, for screen readers.
    """
    shown = [{messages.escape(head): messages.escape(str(cell)) for head, cell in row.items()} for row in rows]
    st.table(pd.DataFrame(shown), hide_index=True, height="content" if len(shown) <= MOST else HEIGHT, alt=alt)
