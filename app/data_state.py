"""The full data set's state on an experiment's page, and its download."""

from __future__ import annotations

import streamlit as st

from acenode.experiments import Experiment

from . import say
from .lab import lab

PERIOD = "1s"  # between looks at a download


def show(experiment: Experiment) -> bool:
    """Whether the full data can be trained on; if not, how to get it."""
    if (source := experiment.source) is None:
        return True
    state = lab().fetcher.state(source)
    if state.data.state == "ready":
        where = say.plain(str(state.data.path))
        st.caption(f":material/database: {experiment.title}, {state.data.detail}, in {where}")
        return True
    if state.phase == "running":
        _progress(source)
        return False
    with st.container(border=True):
        if state.phase == "failed" and state.error:
            say.trouble(state.error)
        elif state.data.state == "broken":
            say.trouble(f"The file at {state.data.path} cannot be used. Download it again.")
        else:
            st.markdown(f"The full **{experiment.title}** set is not on this machine yet. The sample needs no "
                        "download.")
        if st.button("Download and prepare", icon=":material/download:", key="download"):
            lab().fetcher.start(source)
            st.rerun()
    return False


@st.fragment(run_every=PERIOD)
def _progress(name: str) -> None:
    state = lab().fetcher.state(name)
    if state.phase != "running":
        st.rerun(scope="app")
    share = min(1.0, state.done / state.total) if state.total else 0.0
    size = f"{state.done / 1e6:.1f}" + (f" of {state.total / 1e6:.1f} MB" if state.total else " MB")
    st.progress(share, f"{state.label} · {size}" if state.label else "starting the download")
