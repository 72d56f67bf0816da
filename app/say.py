"""Texts that cannot be taken for markup, and what went wrong in one line of them."""

from __future__ import annotations

import re

import streamlit as st

MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~$:&])")


def plain(text: str) -> str:
    """The text as Markdown that shows it letter by letter."""
    return MARKDOWN.sub(r"\\\1", text.replace("\n", " "))


def refused(why: object) -> None:
    """Something that was asked for and cannot be."""
    st.error(plain(str(why)), icon=":material/block:")


def trouble(what: object) -> None:
    """Something that happened."""
    st.error(plain(str(what)), icon=":material/error:")


def late(why: object) -> None:
    """Somebody else was faster."""
    st.toast(plain(str(why)), icon=":material/info:")
