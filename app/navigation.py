"""The pages there are, and how to get to one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamlit as st

from acenode.experiments import EXPERIMENTS

HERE = Path(__file__).parent
PAGES = HERE / "pages" if (HERE / "pages").exists() else HERE.parent / "pages"  # installed, or in the repository


def home() -> Any:
    return st.Page(PAGES / "home.py", title="Home", icon=":material/home:", default=True)


def experiment(name: str) -> Any:
    """One file serves every experiment; which one, `st.session_state["page"]` says."""
    return st.Page(PAGES / "experiment.py", title=EXPERIMENTS[name].title, icon=":material/science:", url_path=name)


def compare() -> Any:
    return st.Page(PAGES / "compare.py", title="Compare", icon=":material/compare_arrows:", url_path="compare")


def runs() -> Any:
    return st.Page(PAGES / "runs.py", title="Runs", icon=":material/list:", url_path="runs")


def sections() -> dict[str, list[Any]]:
    return {"": [home()], "Experiments": [experiment(name) for name in EXPERIMENTS], "Results": [compare(), runs()]}
