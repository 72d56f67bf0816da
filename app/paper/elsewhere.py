"""Results of other papers on the same data, each with its protocol and source."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
import streamlit as st

from acenode import experiments
from acenode.compare import paper
from acenode.compare.paper import Published

from .. import messages


def show(names: Iterable[str], key: str) -> None:
    """Show what others have published on the data of these experiments, in an expander; nothing if there is none.

    The table is made when the expander is opened: its Markdown takes a browser long to draw.
    """
    found = [result for name in names for result in paper.published_results(name)]
    if not found:
        return
    box = st.expander(f"Later and elsewhere: {len(found)} published results", icon=":material/library_books:", key=key,
                      on_change="rerun")
    if not box.open:
        return
    with box:
        st.caption("Protocols differ in splits, preprocessing and choice of the epoch, so these values are not "
                   "comparable with the tables above or with each other across protocols. None was measured here.")
        st.table(pd.DataFrame([_row(result) for result in found]), hide_index=True, border="horizontal")


def _row(result: Published) -> dict[str, str]:
    """Return one line of the table in Markdown, which wraps long texts."""
    data = experiments.get(result.experiment).title
    source = f"[{messages.escape(result.source.text)}]({result.source.url})"
    return {"Method": messages.escape(f"{result.method}, {data}"),
            "Result": messages.escape(f"{result.metric} {result.value}"),
            "Protocol and source": f"{messages.escape(result.protocol)}. {source}"}
