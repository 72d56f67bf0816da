"""The pages of the app and their addresses."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import streamlit as st

from acenode.errors import UserError
from acenode.experiments import EXAMPLES, EXPERIMENTS, get, imported_names

HERE = Path(__file__).resolve().parent
PAGES = HERE / "pages" if (HERE / "pages").exists() else HERE.parent / "pages"  # installed, or in the repository


def home() -> Any:
    """Return the home page."""
    return st.Page(PAGES / "home.py", title="Home", icon=":material/home:", default=True)


def tour() -> Any:
    """Return the page that explains ACE-NODE in five steps."""
    return st.Page(PAGES / "tour.py", title="What is ACE-NODE?", icon=":material/school:", url_path="tour")


def playground() -> Any:
    """Return the page on which tiny networks train while one watches."""
    return st.Page(PAGES / "playground.py", title="Playground", icon=":material/toys:", url_path="playground")


def paper() -> Any:
    """Return the page with the paper's tables and figures."""
    return st.Page(PAGES / "paper.py", title="Paper", icon=":material/article:", url_path="paper")


def experiment(name: str) -> Any:
    """Return an experiment's page. All share one file, which reads the name from `st.session_state["page"]`."""
    return st.Page(PAGES / "experiment.py", title=get(name).title, icon=":material/science:", url_path=name)


def imported() -> list[Any]:
    """Return the pages of the imported sets that can be read."""
    pages = []
    for name in imported_names():
        with contextlib.suppress(UserError):  # the page Your data says what is wrong with the others
            pages.append(experiment(name))
    return pages


def your_data() -> Any:
    """Return the page that imports tables and trains on them."""
    return st.Page(PAGES / "your_data.py", title="Your data", icon=":material/upload_file:", url_path="your-data")


def studies() -> Any:
    """Return the page of studies: their list, the form of a new one, or one study, as the URL says."""
    return st.Page(PAGES / "studies.py", title="Studies", icon=":material/quiz:", url_path="studies")


def searches() -> Any:
    """Return the page of searches: their list, the form of a new one, or one search, as the URL says."""
    return st.Page(PAGES / "searches.py", title="Searches", icon=":material/manage_search:", url_path="searches")


def compare() -> Any:
    """Return the page that compares runs."""
    return st.Page(PAGES / "compare.py", title="Compare", icon=":material/compare_arrows:", url_path="compare")


def runs() -> Any:
    """Return the page that lists runs."""
    return st.Page(PAGES / "runs.py", title="Runs", icon=":material/list:", url_path="runs")


def sections() -> dict[str, list[Any]]:
    """Return all pages under the headings of the sidebar."""
    first = [home(), tour(), playground(), paper(), studies(), searches(), your_data()]
    return {"": first, "Results": [compare(), runs()], "Experiments": [experiment(name) for name in EXPERIMENTS],
            "Named variables": [*(experiment(name) for name in EXAMPLES), *imported()]}
