"""Results of other papers on the same data, each with its protocol and source."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
import streamlit as st

from acenode import experiments
from acenode.results import elsewhere

COLUMNS = {
    "Result": st.column_config.TextColumn(width="small"),
    "Protocol": st.column_config.TextColumn(width="large"),
    "Link": st.column_config.LinkColumn("", display_text="Open", width="small"),
}


def show(names: Iterable[str]) -> None:
    """Show what others have published on the data of these experiments, in an expander; nothing if there is none."""
    found = [result for name in names for result in elsewhere.of(name)]
    if not found:
        return
    with st.expander(f"Later and elsewhere: {len(found)} published results", icon=":material/library_books:"):
        st.caption("Protocols differ in splits, preprocessing and choice of the epoch, so these values are not "
                   "comparable with the tables above or with each other across protocols. None was measured here.")
        st.dataframe(pd.DataFrame([{
            "Data": experiments.get(r.experiment).title, "Method": r.method, "Metric": r.metric, "Result": r.value,
            "Protocol": r.protocol, "Source": r.source.text, "Link": r.source.url} for r in found]),
            hide_index=True, column_config=COLUMNS, height="content")
