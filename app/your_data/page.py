"""The page Your data: import a file, or, with `?set=NAME`, train on an imported set."""

from __future__ import annotations

import streamlit as st

from .. import messages
from ..url_state import current_values
from .sets import SET, imported_sets


def show() -> None:
    """Show the set that the URL names, or the import of a file and the list of sets."""
    name = next(iter(current_values(SET)), "")
    if name and imported_sets().exists(name):
        from . import set as your_data_set

        your_data_set.show(name)
        return
    st.title("Your data")
    if name:
        st.warning(f"There is no imported set {messages.escape(name)} here", icon=":material/link_off:")
    st.markdown("Bring a table of series that were measured together, and see whether **attention between its "
                "variables** forecasts them better, and which variables it couples. Nothing leaves this machine.")
    from . import list as your_data_list
    from . import upload as your_data_upload

    your_data_upload.show()
    your_data_list.show()
