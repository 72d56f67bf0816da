"""What went wrong, in one line that cannot be taken for markup."""

from __future__ import annotations

import streamlit as st

from app.labels import plain


def refused(why: object) -> None:
    """Something that was asked for and cannot be."""
    st.error(plain(str(why)), icon=":material/block:")


def trouble(what: object) -> None:
    """Something that happened."""
    st.error(plain(str(what)), icon=":material/error:")


def late(why: object) -> None:
    """Somebody else was faster."""
    st.toast(plain(str(why)), icon=":material/info:")
