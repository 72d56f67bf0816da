"""The page Playground: NODE, augmented NODE and ACE-NODE train side by side while one watches."""

from __future__ import annotations

from typing import Any

import streamlit as st

from .. import components, navigation
from ..tour import texts as tour_texts
from . import texts as playground_texts


def show() -> None:
    """Show the page."""
    st.title(playground_texts.TITLE)
    st.markdown(playground_texts.INTRO)
    components.playground("playground", texts())
    st.header("What is shown")
    st.markdown(playground_texts.HOW)
    st.page_link(navigation.tour(), label=tour_texts.LINK, icon=":material/school:")


def texts() -> dict[str, Any]:
    """Return the titles and ranges that the component shows."""
    from acenode.playground.settings import RANGES

    sliders = [{"low": RANGES[key].low, "high": RANGES[key].high, "key": key, **about}
               for key, about in playground_texts.SLIDERS.items()]
    return {"problems": playground_texts.PROBLEMS, "networks": playground_texts.NETWORKS, "sliders": sliders,
            "attentions": playground_texts.ATTENTIONS, "examples": playground_texts.EXAMPLES}
