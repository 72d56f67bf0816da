"""What to take away from a study: tables, a page with players, a static site, and the code that repeats it."""

from __future__ import annotations

from typing import Any

import streamlit as st

from acenode.compare.study_answer import StudyReport
from acenode.export.study import TEXTS, render, to_commands, to_python
from acenode.runs.questions import Study

from .. import commands
from . import study_site

TABLES = {"tex": ("LaTeX", "text/plain"), "md": ("Markdown", "text/markdown"), "csv": ("CSV", "text/csv")}
CODES = {"Commands": lambda study: commands.here(to_commands(study)), "Python": to_python}


def show(study: Study, found: StudyReport | None) -> None:
    """Offer downloads, and show tables and code to copy; before a run has finished, the code alone."""
    st.header("Take away", anchor=False)
    if found is not None:
        _show_downloads(study, found)
    names = [*(title for title, _ in TABLES.values() if found is not None), *CODES]
    tabs = dict(zip(names, st.tabs(names, key="study/take", on_change="rerun"), strict=True))
    for kind, (title, _) in TABLES.items():
        if title in tabs and tabs[title].open and found is not None:
            _show_text(tabs[title], TEXTS[kind](found))
    for title, write in CODES.items():
        if tabs[title].open:
            _show_text(tabs[title], write(study))


def _show_text(place: Any, text: str) -> None:
    """Show text with a button that copies it. Coloured syntax would be too faint in dark."""
    place.code(text, language=None, wrap_lines=True)


def _show_downloads(study: Study, found: StudyReport) -> None:
    with st.container(horizontal=True):
        for kind, (title, mime) in TABLES.items():
            st.download_button(f"Table as {title}", TEXTS[kind](found), f"{study.name}.{kind}", mime,
                               key=f"study/take/{kind}", icon=":material/table:", on_click="ignore")
        st.download_button("HTML page", lambda: render(found), f"{study.name}.html", "text/html",
                           key="study/take/html", icon=":material/html:", on_click="ignore",
                           help="One self-contained file with answer, figures, table, players and code")
        st.download_button("Static site", lambda: study_site.pack_reports([found]), f"{study.name}.zip",
                           "application/zip", key="study/take/site", icon=":material/public:", on_click="ignore",
                           help="An index, the page of the study and a report for each of its runs, as a zip file")
