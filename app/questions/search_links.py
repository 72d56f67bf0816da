"""Links to searches: to one of them, to the form of a new one, and to all."""

from __future__ import annotations

import streamlit as st

from .. import messages, navigation

SEARCH, EXPERIMENT = "search", "experiment"  # query parameters of the page Searches


def show_all() -> None:
    """Show the link to the list of searches."""
    st.page_link(navigation.searches(), label="All searches", icon=":material/arrow_back:")


def show_search(name: str) -> None:
    """Show the link to a search."""
    st.page_link(navigation.searches(), label=messages.escape(name), icon=":material/manage_search:",
                 query_params={SEARCH: name})


def show_new(experiment: str, label: str = "New search") -> None:
    """Show the link to the form of a new search."""
    st.page_link(navigation.searches(), label=label, icon=":material/manage_search:",
                 query_params={EXPERIMENT: experiment})


def go_to(name: str) -> None:
    """Open a search at the next rerun."""
    st.query_params.from_dict({SEARCH: name})
