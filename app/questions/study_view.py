"""The page of one study: its live grid, the answer in words, table and figures, players, and what to take away."""

from __future__ import annotations

import streamlit as st

from acenode import experiments
from acenode.compare.study_answer import caption
from acenode.compare.study_grid import StudyGrid, make_grid, with_device
from acenode.errors import UserError
from acenode.execution.devices import device_choices
from acenode.runs.questions import Study, StudyStore

from .. import components, estimates, labels, messages
from ..services import services
from . import study_actions, study_answer, study_links, study_live, study_players, study_takeaway


def show(name: str) -> None:
    """Show the study with this name."""
    study_links.show_all()
    try:
        study = StudyStore(services().store).read(name)
        grid = make_grid(study, services().catalogue.entries())
    except UserError as error:
        st.title("Study", anchor=False)
        messages.invalid(error)
        return
    experiment = experiments.get(study.experiment)
    st.title(messages.escape(study.question or study.name), anchor=False)
    apart = study.data == "sample" and experiment.source is not None
    note = " Not comparable with the paper" if apart else ""
    st.caption(messages.escape(f"{study.name}: {caption(grid, labels.settings_words)}.{note}"))
    with st.container(key="study-controls"):  # a container each: what comes or goes does not rebuild the rest
        _show_controls(grid)
    components.study_grid("study-grid", study.name, study_live.describe(grid))
    with st.container():
        found = study_answer.show(grid)
        if found is not None:
            study_answer.show_table(found)
        study_answer.show_fairness(grid)
    with st.container():
        study_players.show(grid)
    with st.container():
        if found is not None:
            study_answer.show_figures(found)
    with st.container():
        study_takeaway.show(study, found)


def _show_controls(grid: StudyGrid) -> None:
    """Say what is left and how long it takes; offer to start, continue, stop and delete."""
    study, wanted, device = grid.study, grid.wanted, st.session_state.get("study/device", "auto")
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="study-line"):
        with st.container(width="stretch", key="study-sentence"):
            if wanted:
                configs = [with_device(cell.config, device) for cell in wanted]
                count = f"**{len(wanted)} run{'s' * (len(wanted) > 1)}** not trained yet"
                estimates.show(f"{count}, {{time}}{{order}}", configs)
            elif grid.running:
                st.markdown("Training. The answer below follows every run that finishes")
            else:
                st.markdown("All runs are finished")
        if wanted and len(known := device_choices()) > 1:
            device = st.selectbox("Device", known, key="study/device", width=120,
                                  label_visibility="collapsed")
        if wanted:
            begun = any(cell.entry is not None for cell in grid.cells)
            st.button("Resume" if begun else "Start", key="study/resume", type="primary", icon=":material/play_arrow:",
                      on_click=_start, args=(study, device), help="Trains what is missing, and continues unfinished "
                      "runs from their last checkpoint")
        if grid.running:
            st.button("Stop", key="study/stop", icon=":material/stop:", on_click=study_actions.stop, args=(grid,),
                      help="Running runs write a checkpoint, queued ones leave the queue")
        with st.popover("Delete", icon=":material/delete:", key="study/delete-box"):
            st.markdown("Deletes the study. Its runs stay.")
            if st.button("Delete the study", key="study/delete"):
                _delete(study.name)


def _start(study: Study, device: str) -> None:
    try:
        study_actions.start(study, device)
    except (UserError, OSError) as error:
        messages.notify(error)


def _delete(name: str) -> None:
    try:
        study_actions.delete(name)
    except UserError as error:
        messages.error(error)
        return
    st.query_params.clear()
    st.rerun()
