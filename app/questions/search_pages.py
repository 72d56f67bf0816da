"""The page Searches: a list, the form of a new search (`?experiment=`), or one search (`?search=`), as the URL says."""

from __future__ import annotations

import streamlit as st

from .search_links import EXPERIMENT, SEARCH

ADDRESS = "searches/address"  # session key: what the address named when it was last written


def _write_address() -> None:
    """Write the URL again when it names something else: links within one page do not change the browser's address."""
    named = [st.query_params.get(key) for key in (SEARCH, EXPERIMENT)]
    if st.session_state.get(ADDRESS) != named:
        st.session_state[ADDRESS] = named
        st.query_params.from_dict(st.query_params.to_dict())


def show() -> None:
    """Show the part that the URL names."""
    _write_address()
    if SEARCH in st.query_params:
        from . import search_view

        search_view.show(st.query_params[SEARCH])
    elif EXPERIMENT in st.query_params:
        from . import search_form

        search_form.show(st.query_params[EXPERIMENT])
    else:
        from . import search_list

        search_list.show()
