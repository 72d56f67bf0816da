"""The list of studies, and the questions that a new one can ask."""

from __future__ import annotations

import streamlit as st

from acenode import experiments
from acenode.compare.study_grid import StudyGrid, make_grid
from acenode.errors import UserError
from acenode.runs.entry import Entry
from acenode.runs.questions import StoredStudy, StudyStore

from .. import messages
from ..services import services
from . import study_links, study_site

ABOUT = ("A study is a named question: what varies, what is held equal, and which seeds. It trains its runs and "
         "answers in words, with a 95% interval.")


def show() -> None:
    """Show the page."""
    st.title("Studies")
    st.caption(ABOUT)
    stored = StudyStore(services().store).list()
    if stored:
        st.header("Your studies", anchor=False)
        _show_stored(stored, services().catalogue.entries())
    else:
        st.info("No studies yet. Choose a question below, then press **Start**: its runs are trained one after the "
                "other, and the answer appears while they finish.", icon=":material/quiz:")
    st.header("New study", anchor=False)
    name = st.selectbox("Experiment", study_links.experiment_names(), key="studies/experiment", width=260,
                        format_func=lambda n: experiments.get(n).title)
    study_links.show_presets(experiments.get(name or "mnist"))


def _show_stored(stored: list[StoredStudy], entries: list[Entry]) -> None:
    """Show each study with how far it is, and offer a site of several."""
    finished = []
    for one in stored:
        with st.container(border=True, gap="xsmall"):
            try:
                if one.study is None:
                    raise UserError(one.error)
                grid = make_grid(one.study, entries)
            except UserError as error:
                st.markdown(f"**{messages.escape(one.name)}**")
                messages.error(error)
                continue
            study_links.show_study(one.name, one.study.question or one.name)
            st.caption(messages.escape(progress_text(grid)))
            if grid.finished:
                finished.append(one.study)
    if finished:
        study_site.show(finished)


def progress_text(grid: StudyGrid) -> str:
    """Say what a study is about and how far it is."""
    study, busy = grid.study, len(grid.running)
    training = f", {busy} queued or running" if busy else ""
    groups = " · ".join(row.name for row in grid.rows)
    experiment = experiments.get(study.experiment)
    data = "" if experiment.source is None else f" ({study.data})"  # it has one data set, which is no sample
    return (f"{study.name}: {experiment.title}{data}, {groups}; "
            f"{grid.finished} of {len(grid.cells)} runs finished{training}")
