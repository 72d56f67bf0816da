"""The list of searches, and the experiments that a new one can be about."""

from __future__ import annotations

import streamlit as st

from acenode import experiments
from acenode.errors import UserError
from acenode.runs.questions import SearchStore

from .. import messages
from ..services import services
from . import search_links, search_live, study_links

ABOUT = ("A search tries settings of a method and keeps those that are best on the validation data. The test set is "
         "not used: the best settings can be trained over seeds and tested once.")


def show() -> None:
    """Show the page."""
    st.title("Searches")
    st.caption(ABOUT)
    names = SearchStore(services().store).names()
    if names:
        st.header("Your searches", anchor=False)
        for name in names:
            with st.container(border=True, gap="xsmall"):
                _show_search(name)
    else:
        st.info("No searches yet. Choose an experiment below, say which settings to try, then press **Start**: the "
                "trials are trained one after the other.", icon=":material/manage_search:")
    st.header("New search", anchor=False)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium", key="search-new"):
        name = st.selectbox("Experiment", study_links.experiment_names(), key="searches/experiment", width=260,
                            format_func=lambda n: experiments.get(n).title)
        search_links.show_new(name or "mnist", "Choose the settings")


def _show_search(name: str) -> None:
    search_links.show_search(name)
    try:
        report = search_live.report(name)
    except UserError as error:
        messages.error(error)
        return
    search = report.search
    st.caption(messages.escape(f"{experiments.get(search.experiment).title} ({search.data}), {search.method}, "
                               f"{report.status.state}: {report.counts_text}"
                               + f"; {report.best_text}" * bool(report.best_text)))
