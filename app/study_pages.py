"""The page Studies: a list, the form of a new study (`?preset=`), or one study (`?study=`), as the URL says."""

from __future__ import annotations

import streamlit as st

from .study_links import EXPERIMENT, PRESET, STUDY


def show() -> None:
    """Show the part that the URL names."""
    if STUDY in st.query_params:
        from . import study_view

        study_view.show(st.query_params[STUDY])
    elif PRESET in st.query_params:
        from . import study_form

        study_form.show(st.query_params.get(EXPERIMENT, "mnist"), st.query_params[PRESET])
    else:
        from . import study_list

        study_list.show()
