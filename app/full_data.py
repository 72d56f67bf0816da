"""The full data set on an experiment's page: its state and its download."""

from __future__ import annotations

import streamlit as st

from acenode.data.registry import FetchState
from acenode.experiments import Experiment

from . import messages
from .services import services

REFRESH = "1s"  # while a download runs


def is_ready(experiment: Experiment) -> bool:
    """Return True if the full data is on this machine."""
    return experiment.source is None or services().fetcher.state(experiment.source).data.state == "ready"


def show(experiment: Experiment, key: str = "download") -> bool:
    """Show the state of the full data and return True if it can be trained on; if not, offer the download.

    `key` is the session key of the button.
    """
    if (source := experiment.source) is None:
        return True
    state = services().fetcher.state(source)
    if state.data.state == "ready":
        path = messages.escape(str(state.data.path))
        st.caption(f":material/database: {experiment.title}, {state.data.detail}, in {path}")
        return True
    if state.phase == "running":
        _show_progress(source, [state])
        return False
    with st.container(border=True):
        if state.phase == "failed" and state.error:
            messages.error(state.error)
        elif state.data.state == "broken":
            messages.error(f"The file {state.data.path} is damaged. Download it again.")
        else:
            st.markdown(f"The full **{experiment.title}** data set is not on this machine yet. The sample needs no "
                        "download.")
        if st.button("Download and prepare", icon=":material/download:", key=key):
            services().fetcher.start(source)
            st.rerun()
    return False


@st.fragment(run_every=REFRESH)
def _show_progress(name: str, drawn: list[FetchState]) -> None:
    """Show the download. `drawn` holds its state when the whole page is drawn, which is not rerun then: a click on it
    would be lost."""
    state = drawn.pop() if drawn else services().fetcher.state(name)
    if state.phase != "running":
        st.rerun(scope="app")
    share = min(1.0, state.done / state.total) if state.total else 0.0
    size = f"{state.done / 1e6:.1f}" + (f" of {state.total / 1e6:.1f} MB" if state.total else " MB")
    st.progress(share, f"{state.label} · {size}" if state.label else "Starting the download")
