"""The page Playground: NODE, augmented NODE and ACE-NODE train side by side while one watches."""

from __future__ import annotations

from typing import Any

import streamlit as st

from . import components, messages, navigation

SLIDERS: dict[str, dict[str, Any]] = {
    "learning_rate": {"title": "Learning rate", "scale": "log"},
    "tolerance": {"title": "Solver tolerance", "scale": "log"},
    "penalty_weight": {"title": "Penalty on attention (λ)", "scale": "log0", "least": 1e-6},
    "hidden": {"title": "Hidden units (starts again)", "scale": "whole"},
    "seed": {"title": "Seed (starts again)", "scale": "whole", "high": 20},
}
ATTENTIONS = (
    {"name": "elementwise", "title": "Elementwise (Eq. 5)"},
    {"name": "pairwise", "title": "Pairwise (Eq. 4)"},
)


def show() -> None:
    words = messages.words()["playground"]
    st.title("Playground")
    st.markdown(words["intro"])
    components.show("playground", "playground", texts())
    st.header("What is shown")
    st.markdown(words["how"])
    st.page_link(navigation.page("tour"), label=navigation.TOUR, icon=":material/school:")


def texts() -> dict[str, Any]:
    from acenode.playground.settings import RANGES

    sliders = [{"low": RANGES[key].low, "high": RANGES[key].high, "key": key, **about}
               for key, about in SLIDERS.items()]
    words = messages.words()["playground"]
    return {"sliders": sliders, "attentions": ATTENTIONS, **{key: words[key] for key in ("problems", "networks",
                                                                                         "examples")}}
