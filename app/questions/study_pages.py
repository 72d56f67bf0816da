"""The page Studies: a list, the form of a new study (`?preset=`), or one study (`?study=`), as the URL says."""

from __future__ import annotations

import streamlit as st

from .study_links import EXPERIMENT, PRESET, STUDY

ADDRESS = "studies/address"  # session key: what the address named when it was last written


def _write_address() -> None:
    """Write the URL again when it names something else: links within one page do not change the browser's address."""
    named = [st.query_params.get(key) for key in (STUDY, EXPERIMENT, PRESET)]
    if st.session_state.get(ADDRESS) != named:
        st.session_state[ADDRESS] = named
        st.query_params.from_dict(st.query_params.to_dict())


def show() -> None:
    """Show the part that the URL names."""
    _write_address()
    if STUDY in st.query_params:
        from . import study_view

        study_view.show(st.query_params[STUDY])
    elif PRESET in st.query_params:
        from . import study_form

        study_form.show(st.query_params.get(EXPERIMENT, "mnist"), st.query_params[PRESET])
    else:
        from . import study_list

        study_list.show()
