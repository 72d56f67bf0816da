"""Messages to the user, and text that Markdown must not interpret."""

from __future__ import annotations

import re

import streamlit as st

MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~$:&])")


def escape(text: str) -> str:
    """Return Markdown that shows the text literally, on one line."""
    return MARKDOWN.sub(r"\\\1", text.replace("\n", " "))


def invalid(reason: object) -> None:
    """Show why an input is not valid."""
    st.error(escape(str(reason)), icon=":material/block:")


def warning(text: object) -> None:
    """Show what should be known before what follows is trusted."""
    st.warning(escape(str(text)), icon=":material/warning:")


def error(reason: object) -> None:
    """Show what went wrong."""
    st.error(escape(str(reason)), icon=":material/error:")


def notify(text: object) -> None:
    """Show a short notice that disappears by itself."""
    st.toast(escape(str(text)), icon=":material/info:")
