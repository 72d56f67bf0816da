"""What to take away from a study: tables, a page with players, a static site, and the code that repeats it."""

from __future__ import annotations

import streamlit as st

from acenode.export import study_code, study_page
from acenode.export.study_formats import TEXTS
from acenode.results.study_table import StudyReport
from acenode.runs.studies import Study

from . import study_site

TABLES = {"tex": ("LaTeX", "latex", "text/plain"), "md": ("Markdown", "markdown", "text/markdown"),
          "csv": ("CSV", None, "text/csv")}
CODES = {"sh": ("Commands", "bash", study_code.to_commands), "py": ("Python", "python", study_code.to_python)}


def show(study: Study, found: StudyReport | None) -> None:
    """Offer downloads, and show tables and code to copy; before a run has finished, the code alone."""
    st.subheader("Take away", anchor=False)
    if found is not None:
        _show_downloads(study, found)
    names = [*(title for title, *_ in TABLES.values() if found is not None), *(title for title, *_ in CODES.values())]
    tabs = dict(zip(names, st.tabs(names, key="study/take", on_change="rerun"), strict=True))
    for kind, (title, language, _) in TABLES.items():
        if title in tabs and tabs[title].open and found is not None:
            tabs[title].code(TEXTS[kind](found), language=language)
    for title, language, write in CODES.values():
        if tabs[title].open:
            tabs[title].code(write(study), language=language)


def _show_downloads(study: Study, found: StudyReport) -> None:
    with st.container(horizontal=True):
        for kind, (title, _, mime) in TABLES.items():
            st.download_button(f"Table as {title}", TEXTS[kind](found), f"{study.name}.{kind}", mime,
                               key=f"study/take/{kind}", icon=":material/table:", on_click="ignore")
        st.download_button("HTML page", lambda: study_page.render(found), f"{study.name}.html", "text/html",
                           key="study/take/html", icon=":material/html:", on_click="ignore",
                           help="One self-contained file with answer, figures, table, players and code")
        st.download_button("Static site", lambda: study_site.pack_reports([found]), f"{study.name}.zip",
                           "application/zip", key="study/take/site", icon=":material/public:", on_click="ignore",
                           help="An index, the page of the study and a report for each of its runs, as a zip file")
