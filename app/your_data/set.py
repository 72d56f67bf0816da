"""An imported set: its preview, training in one click, and the answer."""

from __future__ import annotations

import streamlit as st

from acenode import experiments
from acenode.compare.fairness import parameter_counts
from acenode.compare.study_grid import ACE, StudyGrid, make_grid, set_study
from acenode.errors import UserError
from acenode.execution.study_run import queue_study
from acenode.runs.entry import Entry
from acenode.runs.questions import StudyStore

from .. import estimates, messages
from ..services import services
from . import answer as your_data_answer
from . import preview as your_data_preview
from .sets import TASKS, load, open_set, show_error, window_of

REFRESH = "2s"
FAIR = ("ACE and the same model without attention are trained with the same data, split, epochs and three seeds, and "
        "compared seed by seed. Of each run, the epoch with the best validation result is tested.")
PRESS = {"forecast": "Train to forecast", "fill": "Train to fill in", "classify": "Train to classify"}


def show(name: str) -> None:
    """Show a set."""
    st.button("All sets", key="your-data/back", icon=":material/arrow_back:", on_click=open_set, args=(None,),
              type="tertiary")
    try:
        found = load(name)
    except UserError as error:
        st.title(messages.escape(name))
        show_error(error)
        return
    st.title(messages.escape(found.title or name))
    st.caption(messages.escape(f"{TASKS[found.task]}. {found.note}"))
    grid = _show_training(name, found.task)
    if grid is not None and grid.finished:
        your_data_answer.show(found, grid)
    with st.expander("The data", icon=":material/table_chart:", expanded=grid is None or not grid.finished):
        your_data_preview.show_counts(found, window_of(name))
        your_data_preview.show_variables(found, f"your-data/{name}/preview")


def _show_training(name: str, task: str) -> StudyGrid | None:
    """Show the button that trains, and the progress; return the study with the runs there are."""
    try:
        entries = services().catalogue.entries()
        with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
            button = st.container(width="content")
            epochs = st.number_input("Epochs", 1, 10_000, _epochs(name, entries), key=f"your-data/{name}/epochs",
                                     width=140)
        study = set_study(name, task, int(epochs))
        grid = make_grid(study, entries)
        todo = len(grid.wanted)
        with button:
            pressed = st.button(PRESS[task], type="primary", icon=":material/play_arrow:", disabled=not todo,
                                key=f"your-data/{name}/train",
                                help=f"{todo} of {len(grid.cells)} runs are missing" if todo else "All runs are there")
        _show_plan(grid, task)
        if pressed:
            store = StudyStore(services().store)
            if not store.exists(study.name):
                store.write(study)
            queue_study(grid, services().launcher, entries)
            st.rerun()
    except (UserError, OSError) as error:
        show_error(error)
        return None
    failed = {cell.entry.error for row in grid.rows for cell in row.cells
              if cell.entry is not None and cell.entry.state == "failed" and cell.entry.error}
    for reason in failed:
        messages.error(reason)
    if grid.running:
        _show_progress(name, task, int(epochs), grid.finished)
    return grid


def _show_plan(grid: StudyGrid, task: str) -> None:
    """Say how long training takes here, and how the methods are compared."""
    if configs := [cell.config for cell in grid.wanted]:
        estimates.show(f"**{len(configs)} run{'s' * (len(configs) > 1)}**, {{time}}{{order}}", configs)
    beside = "Majority class and" if task == "classify" else "Last value, mean and"
    sizes = " and ".join(f"{count:,} in {row.name}" for row, count in zip(grid.rows, parameter_counts(grid),
                                                                          strict=True))
    st.caption(messages.escape(f"{FAIR} {beside} regression are computed on the same test part. Parameters: {sizes}."))


def _epochs(name: str, entries: list[Entry]) -> int:
    """Return the epochs that the page opens with: of the newest run on the set, so that its answer is shown again."""
    newest = next((entry for entry in entries if entry.experiment == name and entry.epochs), None)
    return newest.epochs if newest is not None else int(experiments.get(name).configure(ACE).get("epochs"))


@st.fragment(run_every=REFRESH)
def _show_progress(name: str, task: str, epochs: int, finished: int) -> None:
    """Show how much is trained, and rerun the page when another run has finished."""
    grid = make_grid(set_study(name, task, epochs), services().catalogue.entries())
    st.progress(grid.progress, f"Training: {grid.finished} of {len(grid.cells)} runs are finished")
    st.button("Stop", key=f"your-data/{name}/stop", icon=":material/stop:", on_click=_stop, args=(grid,),
              help="Writes checkpoints; Train continues from them")
    if grid.finished != finished or not grid.running:
        st.rerun(scope="app")


def _stop(grid: StudyGrid) -> None:
    for cell in reversed(grid.running):  # the last ones first, so that no queued run starts meanwhile
        if cell.entry is not None:
            try:
                services().launcher.stop(cell.entry.run)
            except UserError as error:  # it has ended meanwhile
                messages.notify(error)
